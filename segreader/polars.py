"""Topics in Polars: ``scan`` makes one a ``LazyFrame``. ``docs/how-to/python.md`` shows it.

The module is named after its engine; ``import polars`` is Polars' own everywhere, here too.

A predicate of Polars chooses what is read: its tree is read as JSON and becomes an Arrow expression that is true
wherever the predicate is. The form of that tree may change with any version of Polars: what is not known here exactly
is left out, and costs reading, not records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from segreader.tables.dataset import TopicDataset, open_dataset

if TYPE_CHECKING:
    from polars import DataFrame, Expr, LazyFrame


_PLACES: Final = frozenset(("topic", "partition", "offset", "timestamp", "timestamp_ms"))
"""The columns of a record's place. None of them has nulls."""

_COMPARISONS: Final = {
    "Eq": pc.equal,
    "EqValidity": pc.equal,
    "NotEq": pc.not_equal,
    "NotEqValidity": pc.not_equal,
    "Lt": pc.less,
    "LtEq": pc.less_equal,
    "Gt": pc.greater,
    "GtEq": pc.greater_equal,
}
_TURNED: Final = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_EDGES: Final = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}
_INTEGERS: Final = frozenset(("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"))
_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")


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
        threads: number of threads that decode one query; by default as for ``segreader.scan``.
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

    names = dataset.schema.names if with_columns is None else with_columns
    where, needed = None, set(names)
    if predicate is not None:
        tree = _predicate_tree(predicate)
        predicate = None if tree is None else _as_predicate(tree)
    if predicate is not None:
        needed |= set(predicate.meta.root_names())
        where = _where_it_may_match(tree, dataset.schema) if n_rows is None else None
    columns = [name for name in dataset.schema.names if name in needed]
    scanner = dataset.scanner(columns or ["partition"], where)
    left = n_rows
    with closing(scanner.to_batches()) as batches:
        for batch in batches:
            frame = polars.DataFrame(batch if left is None else batch.slice(0, left))
            left = None if left is None else left - frame.height
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame.select(names) if names else frame.drop(frame.columns)  # select([]) would forget the rows
            if left == 0:
                return


def _predicate_tree(predicate: Expr) -> Any:
    """The predicate as Polars' JSON tree, without what Polars adds to it while a query runs.

    A sort with a limit makes conditions that change meanwhile, ``dynamic_pred``: they only spare work, and cannot be
    evaluated by anyone else. ``None`` if nothing else is there.
    """
    return _without_dynamic(json.loads(predicate.meta.serialize(format="json")))


def _as_predicate(tree: Any) -> Expr:
    """The tree as a Polars expression again."""
    import polars

    return polars.Expr.deserialize(BytesIO(json.dumps(tree).encode()), format="json")


def _where_it_may_match(tree: Any, schema: pa.Schema) -> pc.Expression | None:
    """An Arrow expression that is true of every record that the predicate is true of; ``None`` if nothing is known.

    Args:
        tree: of ``_predicate_tree``.
        schema: of the table.
    """
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            known = [one for side in (left, right) if (one := _where_it_may_match(side, schema)) is not None]
            return known[0] & known[1] if len(known) == 2 else known[0] if known else None
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            one, two = _where_it_may_match(left, schema), _where_it_may_match(right, schema)
            return None if one is None or two is None else one | two
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": {"Literal": value}}}:
            return _compared(name, op, value, schema)
        case {"BinaryExpr": {"left": {"Literal": value}, "op": op, "right": {"Column": name}}}:
            return _compared(name, _TURNED.get(op, op), value, schema)
        case {
            "Function": {
                "input": [{"Column": name}, {"Literal": low}, {"Literal": high}],
                "function": {"Boolean": {"IsBetween": {"closed": edges}}},
            }
        }:
            above, below = _EDGES.get(edges, ("", ""))
            one, two = _compared(name, above, low, schema), _compared(name, below, high, schema)
            return None if one is None or two is None else one & two
        case {
            "Function": {
                "input": [{"Column": name}, {"Literal": {"Scalar": {"List": list(data)}}}],
                "function": {"Boolean": {"IsIn": _}},
            }
        }:
            return _member(name, bytes(data), schema)
    return None


def _compared(name: object, op: str, value: Any, schema: pa.Schema) -> pc.Expression | None:
    literal = _scalar(name, value, schema)
    if literal is None or op not in _COMPARISONS:
        return None
    return _COMPARISONS[op](pc.field(name), literal)


def _scalar(name: object, value: Any, schema: pa.Schema) -> pa.Scalar | None:
    """A literal of the column's own type; ``None`` where it is another, or the column says nothing of places."""
    if name not in _PLACES or name not in schema.names:
        return None
    kind = schema.field(name).type
    match value:
        case {"Scalar": {"String": str(text)}} if pa.types.is_string(kind):
            return pa.scalar(text, kind)
        case {"Scalar": {"Datetime": [int(micros), "Microseconds", {"inner": "UTC"}]}} if kind == _MICROSECONDS:
            return pa.scalar(micros, kind)
        case {"Scalar": Mapping() as typed} if pa.types.is_integer(kind) and len(typed) == 1:
            [(width, number)] = typed.items()
            if width in _INTEGERS and type(number) is int:
                return pa.scalar(number, pa.int64()) if -(1 << 63) <= number < 1 << 63 else None
    return None


def _member(name: object, data: bytes, schema: pa.Schema) -> pc.Expression | None:
    """Membership in a list, which comes as an Arrow IPC stream of one column."""
    if name not in _PLACES or name not in schema.names:
        return None
    kind = schema.field(name).type
    try:
        column = pa.ipc.open_stream(data).read_all().column(0)
        while pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            column = pc.list_flatten(column)
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.string())
        values = pa.array([one for one in column.to_pylist() if one is not None], column.type)
        if pa.types.is_integer(values.type) and pa.types.is_integer(kind):
            values = values.cast(pa.int64())
            return pc.field(name).cast(pa.int64()).isin(values) if kind != pa.int64() else pc.field(name).isin(values)
        return pc.field(name).isin(values.cast(kind)) if _is_alike(values.type, kind) else None
    except (pa.ArrowException, IndexError):
        return None


def _is_alike(one: pa.DataType, two: pa.DataType) -> bool:
    is_text = pa.types.is_string(one) or pa.types.is_large_string(one)
    return bool(is_text if pa.types.is_string(two) else one == two)


def _without_dynamic(tree: Any) -> Any:
    match tree:
        case {"Display": {"fmt_str": str(text)}} if text.startswith("dynamic_pred"):
            return None
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd" as op, "right": right}}:
            one, two = _without_dynamic(left), _without_dynamic(right)
            if one is None or two is None:
                return two if one is None else one
            return {"BinaryExpr": {"left": one, "op": op, "right": two}}
    return tree
