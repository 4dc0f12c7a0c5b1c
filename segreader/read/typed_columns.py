"""Record batches with their keys and values decoded: what ``read`` gives where a read has schemas."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

import pyarrow as pa

from segreader.errors import UndecodableValueError
from segreader.segment import TopicIdPartition
from segreader.typed.decoder import DecodedValues, UndecodableRow, ValueDecoder, sentence
from segreader.typed.decoding import Decoding, Framing, Undecodable

Count = Callable[[str], None]
"""Is called for each value that is undecodable and left out, with a text that says which."""

_HAVE_IDS_IN_HEADERS: Final = frozenset((Framing.CONFLUENT,))


class TypedColumns:
    """Decodes the keys and values of record batches. Use it from one thread.

    Args:
        names: of the columns to give, in order.
        decodings: of one side or of both.
        schema: of what is given, as ``schema_of`` has it.
        count: is called for each value that is left out.
    """

    def __init__(
        self,
        names: Sequence[str],
        decodings: Sequence[Decoding],
        schema: pa.Schema,
        *,
        kernel: str | None,
        count: Count,
    ) -> None:
        self._names, self._schema, self._count = names, schema, count
        used = [one for one in decodings if not set(one.columns).isdisjoint(names)]
        self._decoders = [(one, ValueDecoder(one, kernel=kernel)) for one in used]
        made = {name for one in used for name in one.columns}
        raw = [*(one.side.value for one in used), *(name for name in names if name not in made)]
        if self._decoders and "offset" not in raw:
            raw.append("offset")
        if "headers" not in raw and any(one.framing in _HAVE_IDS_IN_HEADERS for one, _ in self._decoders):
            raw.append("headers")
        self.raw_names = tuple(raw)

    def decode(self, batch: pa.RecordBatch, partition: TopicIdPartition) -> Generator[pa.RecordBatch, None, None]:
        """The rows of a batch of ``raw_names``, decoded: one batch, or more where a column would be too large.

        Raises:
            UndecodableValueError: a value is not what its schema says, after the rows before it.
        """
        start = 0
        while start < batch.num_rows:
            rest = batch.slice(start)
            made: dict[str, tuple[Decoding, DecodedValues]] = {}
            rows = rest.num_rows
            for decoding, decoder in self._decoders:
                found = self._decode(decoding, decoder, rest.slice(0, rows))
                made[decoding.side.value] = decoding, found
                rows = min(rows, len(found.array))
            failed = [
                (one, bad)
                for one, found in made.values()
                if one.on_undecodable is Undecodable.FAIL
                for bad in found.undecodable
                if bad.row == rows
            ]
            if rows:
                yield self._batch(rest.slice(0, rows), made, partition)
            if failed:
                raise _error(*failed[0], rest, partition)
            start += rows

    @staticmethod
    def _decode(decoding: Decoding, decoder: ValueDecoder, rows: pa.RecordBatch) -> DecodedValues:
        headers = rows.column("headers") if decoding.framing in _HAVE_IDS_IN_HEADERS else None
        stops = decoding.on_undecodable is Undecodable.FAIL
        return decoder.decode(rows.column(decoding.side.value), headers, stop_at_first=stops)

    def _batch(
        self,
        rows: pa.RecordBatch,
        made: dict[str, tuple[Decoding, DecodedValues]],
        partition: TopicIdPartition,
    ) -> pa.RecordBatch:
        arrays: dict[str, pa.Array] = {}
        for side, (decoding, found) in made.items():
            arrays[side] = found.array.slice(0, rows.num_rows)
            bad = [one for one in found.undecodable if one.row < rows.num_rows]
            for one in bad:
                self._count(_text(decoding, one, rows, partition))
            if decoding.on_undecodable is Undecodable.KEEP:
                arrays[f"{side}_raw"], arrays[f"{side}_error"] = _kept(rows.column(side), bad)
        columns = [arrays[name] if name in arrays else rows.column(name) for name in self._names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _kept(raw: pa.Array, bad: Sequence[UndecodableRow]) -> tuple[pa.Array, pa.Array]:
    """The bytes of undecodable values, and what is wrong with each; null for all others."""
    if not bad:
        return pa.nulls(len(raw), pa.binary()), pa.nulls(len(raw), pa.string())
    values: list[bytes | None] = [None] * len(raw)
    reasons: list[str | None] = [None] * len(raw)
    for one in bad:
        values[one.row], reasons[one.row] = raw[one.row].as_py(), _reason(one)
    return pa.array(values, pa.binary()), pa.array(reasons, pa.string())


def _reason(bad: UndecodableRow) -> str:
    schema = "" if bad.schema_id is None else f" (schema {bad.schema_id})"
    detail = f": {bad.detail}" if bad.detail else ""
    return f"{sentence(bad.bad)}, at byte {bad.position}{schema}{detail}"


def _text(decoding: Decoding, bad: UndecodableRow, rows: pa.RecordBatch, partition: TopicIdPartition) -> str:
    offset = rows.column("offset")[bad.row].as_py()
    return f"{partition.topic}-{partition.partition} offset {offset}: undecodable {decoding.side}: {_reason(bad)}"


def _error(
    decoding: Decoding, bad: UndecodableRow, rows: pa.RecordBatch, partition: TopicIdPartition
) -> UndecodableValueError:
    return UndecodableValueError(
        f"undecodable {decoding.side}: {sentence(bad.bad)}{f' ({bad.detail})' if bad.detail else ''}",
        source=f"{partition.topic}-{partition.partition}",
        found=None if bad.schema_id is None else f"schema id {bad.schema_id}",
        position=bad.position,
        offset=rows.column("offset")[bad.row].as_py(),
        hint="on_undecodable='null' or 'keep' goes on behind it; 'segreader schemas ls' shows which schemas occur",
    )
