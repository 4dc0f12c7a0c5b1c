"""A registry on loopback, with the schemas that ``fixtures/schemas`` recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.schema_registry import SchemaRegistryServer, schema_registry


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    """One that answers as it was recorded, until a test plants something else."""
    with schema_registry() as made:
        yield made
