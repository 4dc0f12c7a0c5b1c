"""Record batches as text or files: what ``segreader cat`` prints."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from json.encoder import encode_basestring as quoted
from typing import IO, Any

import pyarrow as pa

from segreader.cli.output import (
    ENCODINGS,
    Encode,
    Write,
    console,
    is_terminal,
    json_array,
    ndjson,
    printable,
    say,
    shown_time,
    stdout,
)
from segreader.cli.progress import progress
from segreader.format.batch import TimestampType
from segreader.live.metrics import LiveMetrics
from segreader.read.base_scan import BaseScan
from segreader.read.metrics import lacks
from segreader.read.options import DEFAULT_COLUMNS
from segreader.read.records import RECORD_COLUMNS
from segreader.storage.metrics import metrics_of

CSV_FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "leader_epoch",
    "key",
    "key_encoding",
    "value",
    "value_encoding",
    "headers",
)
_TYPE_NAMES = {int(kind): kind.java_name for kind in TimestampType}
_PAGE_ROWS = 200
_ROW_GROUP_BYTES = 64 << 20

WriteBatch = Callable[[pa.RecordBatch], None]


def columns_for(form: str) -> tuple[str, ...]:
    """The columns to read for an output format."""
    return (*DEFAULT_COLUMNS, "leader_epoch") if form in ("parquet", "arrow") else RECORD_COLUMNS


def print_records(
    scan: BaseScan,
    form: str,
    *,
    key_encoding: str,
    value_encoding: str,
    limit: int | None,
    output_file: str | None,
    stats: bool = False,
) -> bool:
    """Print the records of a scan as they come, and holes and notes on stderr.

    Returns:
        Whether nothing damaged was left out.

    Raises:
        SegreaderError: as ``Scan.to_batches``, after the records before it are printed.
    """
    scan.plan()  # before a file is emptied for a request that cannot be met
    teller = _Teller(scan)
    with (
        opened(output_file) as file,
        _ticking(scan, output_file) as tick,
        _writer(form, file, scan, key_encoding, value_encoding) as write,
    ):
        try:
            for batch in _limited(scan, limit):
                write(batch)
                teller.tell()
                tick()
        finally:
            teller.tell()
            if stats:
                say_stats(scan)
    return _tell_ends(scan, limit)


def _tell_ends(scan: BaseScan, limit: int | None) -> bool:
    """Tell what is missing and where partitions end early; returns whether nothing is missing."""
    plan = scan.plan()
    for gap in plan.gaps:
        say(f"missing: {gap.text}")
    for one in scan.metrics.missing:
        say(f"missing: {one.text}")
    if limit is None:
        for end in plan.ends:
            if end.reason.is_early:
                say(end.text)
    if plan.dropped:
        say(f"note: {len(plan.dropped)} parts of segments hold no offsets of the live log; segreader plan names them")
    return not lacks(plan, scan.metrics)


def say_stats(scan: BaseScan) -> None:
    """Tell on stderr what a read cost, a name and a value a line."""
    metrics = scan.metrics
    rows: dict[str, object] = {"kernel": metrics.kernel, "records": metrics.records, "batches": metrics.batches}
    rows |= {"bytes_read": metrics.bytes_read, "bytes_decompressed": metrics.body_bytes}
    rows |= {"control_batches": metrics.control_batches, "aborted_batches": metrics.aborted_batches}
    stored = metrics_of(scan.store)
    rows |= stored.as_dict() if stored is not None else {"requests": metrics.requests}
    if isinstance(metrics, LiveMetrics):
        rows |= metrics.as_dict()
    for name, value in rows.items():
        say(f"{name:<20} {f'{value:.4f}' if isinstance(value, float) else value}")


def _ticking(scan: BaseScan, output_file: str | None) -> AbstractContextManager[Callable[[], None]]:
    """A progress bar, unless the records themselves go to the terminal."""
    return nullcontext(lambda: None) if output_file is None and is_terminal() else progress(lambda: _standing(scan))


def _standing(scan: BaseScan) -> tuple[int, int, int]:
    return scan.metrics.bytes_read, scan.plan().size, scan.metrics.records


def _limited(scan: BaseScan, limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    if left == 0:
        return
    with closing(scan.to_batches()) as batches:  # type: ignore[type-var]
        for batch in batches:
            if left is None:
                yield batch
                continue
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
            if not left:
                return


class _Teller:
    """Remembers which holes and notes of a scan have been printed on stderr."""

    def __init__(self, scan: BaseScan) -> None:
        self._scan, self._holes, self._notes = scan, 0, 0

    def tell(self) -> None:
        """Tell those that are new."""
        metrics = self._scan.metrics
        for note in metrics.notes[self._notes :]:
            say(f"note: {note}")
        for hole in metrics.holes[self._holes :]:
            say(f"left out: {hole.text}")
        self._notes, self._holes = len(metrics.notes), len(metrics.holes)


@contextmanager
def opened(path: str | None) -> Iterator[IO[bytes]]:
    """The file to write to; stdout, if none is named."""
    if path is None:
        yield stdout()
        return
    with open(path, "wb") as file:
        yield file


def _writer(
    form: str, file: IO[bytes], scan: BaseScan, key_encoding: str, value_encoding: str
) -> AbstractContextManager[WriteBatch]:
    if form == "parquet":
        return parquet_file(file, scan.schema)
    if form == "arrow":
        return arrow_stream(file, scan.schema)
    if form == "table":
        return _table(file)
    if form == "csv":
        return nullcontext(_csv(file, key_encoding, value_encoding))
    return _json(json_array(file) if form == "json" else ndjson(file), key_encoding, value_encoding)


@contextmanager
def _json(rows: AbstractContextManager[Write], key_encoding: str, value_encoding: str) -> Iterator[WriteBatch]:
    with rows as write:
        yield lambda batch: write(json_lines(batch, key_encoding, value_encoding))


def json_lines(batch: pa.RecordBatch, key_encoding: str, value_encoding: str) -> list[str]:
    """Each row of ``RECORD_COLUMNS`` as one JSON object, without a line end."""
    encode_key, encode_value = ENCODINGS[key_encoding], ENCODINGS[value_encoding]
    # Only with auto would a reader not know what a text is: there base64 is named.
    key_note = ',"key_encoding":"base64"' if key_encoding == "auto" else ""
    value_note = ',"value_encoding":"base64"' if value_encoding == "auto" else ""
    lines = []
    names = {kind: quoted(name) for kind, name in _TYPE_NAMES.items()}
    for topic, partition, offset, time, kind, epoch, key, value, headers in _rows(batch):
        notes = ""
        if key is None:
            key_text = "null"
        else:
            text, used = encode_key(key)
            key_text = quoted(text)
            if used == "base64":
                notes = key_note
        if value is None:
            value_text = "null"
        else:
            text, used = encode_value(value)
            value_text = quoted(text)
            if used == "base64":
                notes += value_note
        header_text = _headers_json(headers, encode_value, value_note) if headers else "[]"
        lines.append(
            f'{{"topic":"{topic}","partition":{partition},"offset":{offset},"timestamp":{time},'
            f'"timestamp_type":{names[kind]},"leader_epoch":{"null" if epoch is None else epoch},'
            f'"key":{key_text},"value":{value_text},"headers":{header_text}{notes}}}'
        )
    return lines


def _headers_json(headers: list[dict[str, Any]], encode: Encode, note: str) -> str:
    texts = []
    for header in headers:
        value_text, used = "null", ""
        if (value := header["value"]) is not None:
            text, used = encode(value)
            value_text = quoted(text)
        texts.append(f'{{"key":{quoted(header["key"])},"value":{value_text}{note if used == "base64" else ""}}}')
    return f"[{','.join(texts)}]"


def _csv(file: IO[bytes], key_encoding: str, value_encoding: str) -> WriteBatch:
    encode_key, encode_value = ENCODINGS[key_encoding], ENCODINGS[value_encoding]
    note = ',"value_encoding":"base64"' if value_encoding == "auto" else ""
    file.write((",".join(CSV_FIELDS) + "\n").encode())

    def cells(data: bytes | None, encode: Encode) -> tuple[str, str]:
        if data is None:
            return "", ""
        text, used = encode(data)
        return csv_cell(text), used

    def write(batch: pa.RecordBatch) -> None:
        lines = []
        for topic, partition, offset, time, kind, epoch, key, value, headers in _rows(batch):
            start = f"{topic},{partition},{offset},{time},{_TYPE_NAMES[kind]},{'' if epoch is None else epoch}"
            key_text, key_used = cells(key, encode_key)
            value_text, value_used = cells(value, encode_value)
            header_text = csv_cell(_headers_json(headers, encode_value, note))
            lines.append(f"{start},{key_text},{key_used},{value_text},{value_used},{header_text}\n")
        file.write("".join(lines).encode())

    return write


def csv_cell(text: str) -> str:
    """A null is an empty cell, so an empty text is a quoted one."""
    if text and not any(mark in text for mark in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


@contextmanager
def _table(file: IO[bytes]) -> Iterator[WriteBatch]:
    from rich.table import Table
    from rich.text import Text

    out = console(io.TextIOWrapper(file, "utf-8", write_through=True) if file is not stdout() else None)

    def cell(data: bytes | None, encode: Encode = ENCODINGS["auto"]) -> Text:
        return Text("null", "dim") if data is None else Text(printable(encode(data)[0]))

    def write(batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, _PAGE_ROWS):
            page = Table("partition", "offset", "time (UTC)", "key", "value", "headers", box=None, pad_edge=False)
            for topic, partition, offset, time, _, _, key, value, headers in _rows(batch.slice(start, _PAGE_ROWS)):
                named = ", ".join(f"{printable(h['key'], 20)}={cell(h['value'])}" for h in headers)
                page.add_row(f"{topic}-{partition}", str(offset), shown_time(time), cell(key), cell(value), Text(named))
            out.print(page)

    yield write


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in RECORD_COLUMNS), strict=True)


@contextmanager
def arrow_stream(file: IO[bytes], schema: pa.Schema) -> Iterator[WriteBatch]:
    """An Arrow IPC stream. It is ended properly even when an error ends the records."""
    with pa.ipc.new_stream(pa.PythonFile(_Counted(file), "w"), schema) as writer:
        yield writer.write_batch


@contextmanager
def parquet_file(file: IO[bytes], schema: pa.Schema) -> Iterator[WriteBatch]:
    """A Parquet file, zstd, in row groups of about 64 MiB. It is ended properly even when an error ends the records."""
    import pyarrow.parquet as pq

    held: list[pa.RecordBatch] = []
    size = 0
    with pq.ParquetWriter(pa.PythonFile(_Counted(file), "w"), schema, compression="zstd") as writer:

        def flush() -> None:
            nonlocal size
            if held:
                writer.write_table(pa.Table.from_batches(held, schema))
            held.clear()
            size = 0

        def write(batch: pa.RecordBatch) -> None:
            nonlocal size
            held.append(batch)
            size += batch.nbytes
            if size >= _ROW_GROUP_BYTES:
                flush()

        try:
            yield write
        finally:
            flush()


class _Counted(io.RawIOBase):
    """A file that knows its position although it may be a pipe."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._position = file, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._file.flush()
