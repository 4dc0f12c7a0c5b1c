from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from corpus import Case, cases

from segreader import scan
from segreader.errors import CorruptBatchError
from segreader.format.compression import Codec
from segreader.plan.request import Policy, ReadOptions
from segreader.plan.split import Split
from segreader.ranges import OffsetRange
from segreader.read.arrow import schema
from segreader.read.decoders import COLUMNS_OF_HEADERS, HeaderDecoder, decoder_of
from segreader.read.metrics import ScanMetrics
from segreader.read.split_reader import SplitReader
from segreader.storage.base import ObjectStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import ProducerRecord

COLUMNS = tuple(sorted(COLUMNS_OF_HEADERS))
READABLE = [case for case in cases("tv2", remote=True) if case.topic != "recreated"]


def tables(store: ObjectStore | None, split: Split, batch_rows: int = 1000) -> tuple[pa.Table, pa.Table, ScanMetrics]:
    """What headers tell, what records say, and what the first of them cost."""
    options = ReadOptions(columns=COLUMNS, batch_rows=batch_rows)
    metrics = ScanMetrics()
    assert store is not None
    reader = SplitReader(store, options, metrics=metrics, decoder=HeaderDecoder)
    told = pa.Table.from_batches(reader.read(split), _schema(options))
    decoded = pa.Table.from_batches(SplitReader(store, options).read(split), _schema(options))
    return told, decoded, metrics


def _schema(options: ReadOptions) -> pa.Schema:
    return schema(options.columns)


@pytest.mark.parametrize("case", READABLE, ids=str)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_headers_tell_what_records_say(case: Case, isolation: str) -> None:
    read = scan(case.remote[0].parent, topic=case.topic, isolation_level=isolation)
    for split in read.plan().splits:
        told, decoded, _ = tables(read.store, split)
        assert told.equals(decoded)


@pytest.fixture
def written(tmp_path: Path) -> tuple[ObjectStore, Split]:
    """Fifty batches of ten, one split."""
    segment = SegmentBuilder(100)
    for number in range(50):
        segment.batch([b"v" * 20] * 10, codec=Codec.ZSTD if number % 2 else Codec.LZ4)
    write_local_tiered(tmp_path, "t", [segment])
    read = scan(tmp_path)
    (split,) = read.plan().splits
    assert read.store is not None
    return read.store, split


@pytest.mark.parametrize(("start", "stop"), [(100, 600), (105, 123), (149, 150), (250, 250), (0, None), (599, 600)])
@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_any_range_is_clipped_to_the_offset(
    written: tuple[ObjectStore, Split], start: int, stop: int | None, batch_rows: int
) -> None:
    store, split = written
    told, decoded, metrics = tables(store, replace(split, offsets=OffsetRange(start, stop)), batch_rows)

    assert told.equals(decoded)
    assert metrics.records == len(told)
    assert max((len(batch) for batch in told.to_batches()), default=0) <= batch_rows


def test_nothing_is_decompressed(written: tuple[ObjectStore, Split]) -> None:
    told, _, metrics = tables(*written)
    assert len(told) == 500
    assert metrics.body_bytes == 0


def test_a_batch_with_fewer_records_than_offsets_is_decoded(tmp_path: Path) -> None:
    segment = SegmentBuilder().batch([b"v"] * 3, codec=Codec.ZSTD)
    kept = [ProducerRecord(b"v", offset=3), ProducerRecord(b"v", offset=7)]
    segment.batch(kept, last_offset=9, codec=Codec.ZSTD).batch([b"v"], codec=Codec.ZSTD)
    write_local_tiered(tmp_path, "t", [segment])
    read = scan(tmp_path)
    told, decoded, metrics = tables(read.store, read.plan().splits[0])

    assert told.equals(decoded)
    assert told["offset"].to_pylist() == [0, 1, 2, 3, 7, 10]
    assert metrics.body_bytes > 0


def test_a_batch_that_is_not_compressed_is_decoded_for_its_offsets_may_be_wrong(tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "t", [SegmentBuilder().batch([b"v"] * 3)])
    read = scan(tmp_path)
    _, _, metrics = tables(read.store, read.plan().splits[0])
    assert metrics.body_bytes > 0


def test_rows_before_damage_are_delivered_and_then_it_is_told(tmp_path: Path) -> None:
    segment = SegmentBuilder()
    for _ in range(3):
        segment.batch([b"v"] * 3, codec=Codec.ZSTD)
    directory = write_local_tiered(tmp_path, "t", [segment])
    log = next(directory.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[segment.batch_positions[1] + 70] ^= 1
    log.write_bytes(data)
    read = scan(tmp_path)
    assert read.store is not None
    rows: list[int] = []
    with pytest.raises(CorruptBatchError, match="base offset 3"):
        reader = SplitReader(read.store, ReadOptions(columns=("offset",)), decoder=HeaderDecoder)
        for batch in reader.read(read.plan().splits[0]):
            rows += batch["offset"].to_pylist()
    assert rows == [0, 1, 2]


@pytest.mark.parametrize(
    ("columns", "on_corrupt", "decoder"),
    [
        (("partition", "offset"), Policy.FAIL, HeaderDecoder),
        (("partition", "offset"), Policy.SKIP, None),
        (("offset", "timestamp"), Policy.FAIL, None),
        (("offset", "key"), Policy.FAIL, None),
    ],
)
def test_headers_are_asked_only_for_what_they_tell(
    columns: tuple[str, ...], on_corrupt: Policy, decoder: type | None
) -> None:
    assert decoder_of(ReadOptions(columns=columns, on_corrupt=on_corrupt)) is decoder
