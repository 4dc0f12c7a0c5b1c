"""Topics in Polars: ``scan`` makes one a ``LazyFrame``. ``docs/how-to/python.md`` shows it.

The module is named after its engine; ``import polars`` is Polars' own everywhere, here too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from segreader.tables.dataset import TopicDataset, open_dataset

if TYPE_CHECKING:
    from polars import DataFrame, Expr, LazyFrame


def scan(
    location: str | os.PathLike[str] | None = None,
    *,
    refresh: bool = False,
    threads: int | None = None,
    **arguments: Any,
) -> LazyFrame:
    """A topic as a Polars ``LazyFrame``.

    Only the columns that a query needs are decoded, and conditions on ``topic``, ``partition``, ``offset`` and
    ``timestamp`` choose what is read.

    Args:
        location: as of ``segreader.scan``.
        refresh: whether each query lists segments again; by default all see the same.
        threads: number of threads that decode one query; by default one for local files, otherwise one per core, four
            at most.
        arguments: others of ``segreader.scan``: ``topic``, ``storage_options``, ``since``, ``bootstrap_servers`` …

    Raises:
        OptionError: an argument is unknown. ObjectNotFoundError: the directory is not there.
    """
    return lazy_frame(open_dataset(location, refresh=refresh, threads=threads, **arguments))


def lazy_frame(dataset: TopicDataset) -> LazyFrame:
    """A dataset of a topic as a Polars ``LazyFrame``; each query reads it again."""
    import polars
    from polars.io.plugins import register_io_source

    empty = polars.from_arrow(dataset.schema.empty_table())
    assert isinstance(empty, polars.DataFrame)

    def read(
        with_columns: list[str] | None, predicate: Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[DataFrame]:
        return _frames(dataset, with_columns, predicate, n_rows)

    return register_io_source(read, schema=empty.schema, is_pure=True)


def _frames(
    dataset: TopicDataset, with_columns: list[str] | None, predicate: Expr | None, n_rows: int | None
) -> Iterator[DataFrame]:
    """The frames of one query. Rows are counted before the predicate is asked, as Polars does."""
    import polars

    from segreader.tables.polars_predicate import as_predicate, predicate_tree, where_it_may_match

    names = dataset.schema.names if with_columns is None else with_columns
    where, needed = None, set(names)
    if predicate is not None:
        tree = predicate_tree(predicate)
        predicate = None if tree is None else as_predicate(tree)
    if predicate is not None:
        needed |= set(predicate.meta.root_names())
        where = where_it_may_match(tree, dataset.schema) if n_rows is None else None
    columns = [name for name in dataset.schema.names if name in needed]
    scanner = dataset.scanner(columns or ["partition"], where)
    left = n_rows
    with closing(scanner.to_batches()) as batches:
        for batch in batches:
            frame = polars.DataFrame(batch if left is None else batch.slice(0, left))
            left = None if left is None else left - frame.height
            yield (frame if predicate is None else frame.filter(predicate)).select(names)
            if left == 0:
                return
