"""One scan of a table: columns and a filter in, record batches out. What a pyarrow ``Scanner`` is to a ``Dataset``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from segreader.errors import OptionError
from segreader.tables.rows import PartOfRows, Rows, chosen, shaped

Columns = Sequence[str] | Mapping[str, pc.Expression] | None
"""Columns by name, or new ones by what they are computed from; ``None`` is all."""


class TopicScanner:
    """Rows of a topic that a filter matches. Each way to take them reads anew.

    Args:
        schema: of the table.
        rows: where its rows come from.
        keep: is given each error that a read raises: some engines keep no more than its text.

    Raises:
        OptionError: a column, or one that the filter needs, is not in the table.
    """

    def __init__(
        self,
        schema: pa.Schema,
        rows: Rows | PartOfRows,
        columns: Columns,
        predicate: pc.Expression | None,
        batch_size: int | None,
        keep: Callable[[BaseException], None],
    ) -> None:
        self.dataset_schema = schema
        self._rows, self._predicate, self._batch_size, self._keep = rows, predicate, batch_size, keep
        if isinstance(columns, Mapping):
            names, values = list(columns), list(columns.values())
            self._shape = shaped(predicate, names, values)
            self.projected_schema = self._shape(_empty(schema)).schema
        else:
            names = schema.names if columns is None else list(columns)
            _refuse_unknown(names, schema)
            values = []
            self._shape = chosen(predicate, names)
            self.projected_schema = pa.schema([schema.field(name) for name in names])
        used = [*values] if predicate is None else [predicate, *values]
        needed = {name for name in schema.names if any(_needs(one, schema, name) for one in used)}
        if not values:
            needed |= set(names)
        self._columns = tuple(name for name in schema.names if name in needed)

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """The rows, ordered by topic, partition and offset; what they stand on is let go of when they are closed.

        Raises:
            FormatError: data is damaged, after the rows before it.
            StorageError: bytes cannot be had.
        """
        # Rows cannot be counted where no column is: the cheapest of all stands in, and is projected away.
        columns = self._columns or ("partition",)
        try:
            with closing(self._rows.batches(columns, self._predicate, self._shape, self._batch_size)) as batches:
                for batch in batches:
                    if batch.num_rows:
                        yield batch
        except GeneratorExit:
            raise
        except BaseException as error:
            self._keep(error)
            raise

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow stream; raises as ``to_batches``."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """All rows; raises as ``to_batches``."""
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; reading ends with them."""
        return pa.Table.from_batches(_first(self.to_batches(), num_rows), self.projected_schema)

    def count_rows(self) -> int:
        """How many rows there are; columns that only the projection needs are not built."""
        counting = TopicScanner(self.dataset_schema, self._rows, [], self._predicate, self._batch_size, self._keep)
        return sum(batch.num_rows for batch in counting.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """The Arrow C stream of ``to_reader``. Source: the Arrow PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def _first(batches: Generator[pa.RecordBatch, None, None], rows: int) -> Iterator[pa.RecordBatch]:
    with closing(batches):
        while rows > 0 and (batch := next(batches, None)) is not None:
            yield batch.slice(0, rows)
            rows -= batch.num_rows


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _needs(expression: pc.Expression, schema: pa.Schema, name: str) -> bool:
    """Whether an expression uses a column: without one it cannot be bound."""
    rest = pa.schema([field for field in schema if field.name != name])
    try:
        ds.dataset(rest.empty_table()).scanner(columns={"it": expression})
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return True
    return False


def _refuse_unknown(names: Sequence[str], schema: pa.Schema) -> None:
    for name in names:
        if name not in schema.names:
            raise OptionError(
                f"the table has no column {name!r}",
                expected=", ".join(schema.names),
                hint="Ask for more with columns=[…] where the table is made",
            )
