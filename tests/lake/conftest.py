"""Readers of tables that run beside the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from duckdb_lake import DuckDB, fetch_packages, started
from servers.pool import skip_or_fail
from servers.process import NotAvailableError


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDB]:
    """DuckDB with its extensions for tables; where it cannot be had, the tests are skipped."""
    try:
        packages = fetch_packages()
    except NotAvailableError as error:
        skip_or_fail("duckdb", error.message)
    with started(packages) as one:
        yield one
