"""Topics in DuckDB: ``register`` makes one a view of a connection. ``docs/how-to/sql.md`` shows it.

The module is named after its engine; ``import duckdb`` is DuckDB's own everywhere, here too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from segreader.tables.dataset import TopicDataset, open_dataset

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
"""The columns of a view by default. DuckDB counts rows by the first one, and ``topic`` costs least."""


def register(
    connection: DuckDBPyConnection,
    name: str,
    location: str | os.PathLike[str] | None = None,
    *,
    refresh: bool = False,
    threads: int | None = None,
    **arguments: Any,
) -> TopicDataset:
    """Make a topic a view of a DuckDB connection.

    DuckDB requests only the columns that a query needs. Conditions on ``topic``, ``partition``, ``offset`` and
    ``timestamp`` skip data.

    Args:
        connection: the connection that gets the view.
        name: of the view.
        location: as of ``segreader.scan``.
        refresh: whether each query lists segments again. By default the first query of a partition does, and later ones
            see the same records.
        threads: number of threads that decode one query; by default as for ``segreader.scan``.
        arguments: others of ``segreader.scan``: ``topic``, ``storage_options``, ``since``, ``bootstrap_servers`` … Of
            ``columns``, name ``topic`` or ``partition`` first: by the first one DuckDB counts rows.

    Returns:
        The dataset behind the view. ``last_error`` is the original error of the last query, ``metrics`` counts the last
        read, and ``close()`` closes connections.

    Raises:
        OptionError: an argument is unknown. ObjectNotFoundError: the directory is not there.
    """
    given = {"columns": COLUMNS, **arguments}
    dataset = open_dataset(location, refresh=refresh, threads=threads, **given)
    connection.register(name, dataset)
    return dataset
