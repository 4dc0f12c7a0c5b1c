"""The library's front door on directories that the tests build."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import segreader
from segreader.errors import (
    AmbiguousTopicError,
    CorruptBatchError,
    FormatError,
    ObjectNotFoundError,
    OptionError,
    PlanError,
    SegreaderError,
    TruncatedError,
    UnknownLayoutError,
)
from segreader.format.batch import Record, TimestampType
from segreader.format.compression import Codec
from segreader.plan.request import ALL_COLUMNS
from segreader.plan.split import EndReason
from segreader.scans import Scan
from segreader.stored.source import open_source
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered


def values(scan: segreader.Scan | segreader.LiveScan) -> list[bytes | None]:
    return [record.value for record in scan.records()]


def log_file(root: Path, base: int = 0) -> Path:
    return next(root.rglob(f"{base:020d}*.log"))


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    """Three segments; an aborted transaction has data in the first and its marker in the second."""
    first = SegmentBuilder(0).batch([b"a", b"b"], codec=Codec.LZ4).batch([b"gone"], producer_id=9, transactional=True)
    second = first.roll().batch([b"c"]).marker(9, abort=True)
    third = second.roll().batch([b"d", b"e"])
    write_local_tiered(tmp_path, "orders", [first, second, third])
    return tmp_path


def test_an_aborted_transaction_whose_marker_is_in_the_next_segment_is_left_out(tiered: Path) -> None:
    assert values(segreader.scan(tiered)) == [b"a", b"b", b"c", b"d", b"e"]
    everything = segreader.scan(tiered, isolation_level="read_uncommitted")
    assert values(everything) == [b"a", b"b", b"gone", b"c", b"d", b"e"]


def test_a_finished_abort_does_not_hide_what_its_producer_commits_later(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"no"], producer_id=9, transactional=True).marker(9, abort=True)
    second = first.roll().batch([b"yes"], producer_id=9, transactional=True).marker(9)
    write_local_tiered(tmp_path, "orders", [first, second])
    assert values(segreader.scan(tmp_path)) == [b"yes"]
    assert values(segreader.scan(tmp_path, offsets="2:")) == [b"yes"]


def test_what_is_not_decided_is_not_guessed(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"a"]).batch([b"open"], producer_id=9, transactional=True).batch([b"b"])
    write_local_tiered(tmp_path, "orders", [first])
    scan = segreader.scan(tmp_path)
    assert values(scan) == [b"a"]
    (end,) = scan.plan().ends
    assert (end.offset, end.reason, end.producer_id) == (1, EndReason.OPEN_TRANSACTION, 9)
    assert "producer 9" in end.text
    bounded = segreader.scan(tmp_path, offsets=":1")
    assert values(bounded) == [b"a"]
    assert bounded.plan().ends[0].reason is EndReason.REQUESTED


def test_without_snapshots_the_open_transactions_are_replayed(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"a"], producer_id=9, transactional=True).batch([b"b"])
    second = first.roll().marker(9, abort=True).batch([b"open"], producer_id=5, transactional=True)
    write_local_tiered(tmp_path, "orders", [first, second])
    for file in tmp_path.rglob("*.snapshot"):
        file.write_bytes(b"damaged")
    for file in tmp_path.rglob("*.txnindex"):
        file.unlink()
    scan = segreader.scan(tmp_path)
    assert values(scan) == [b"b"]
    assert (scan.plan().ends[0].offset, scan.plan().ends[0].producer_id) == (3, 5)


def test_one_partitions_directory_is_a_location_too(tiered: Path) -> None:
    assert values(segreader.scan(log_file(tiered).parent)) == values(segreader.scan(tiered))


def test_a_brokers_directory_reads_like_the_remote_tier(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"a"]).batch([b"gone"], producer_id=9, transactional=True)
    second = first.roll().marker(9, abort=True).batch([b"b"])
    write_broker_log(tmp_path, "orders", [first, second], partition=3)
    records = list(segreader.scan(tmp_path, topic="orders", partitions=3).records())
    assert [(r.topic, r.partition, r.offset, r.value) for r in records] == [
        ("orders", 3, 0, b"a"),
        ("orders", 3, 3, b"b"),
    ]


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\0\0\0\0\0\0\0\x07\0\0\1\0\0\0\0\0\2cut"])
def test_the_tail_of_an_active_segment_is_noted_and_that_of_a_finished_one_refused(tmp_path: Path, tail: bytes) -> None:
    built = SegmentBuilder(0).batch([b"a"]).raw(tail)
    write_broker_log(tmp_path / "live", "orders", [built])
    scan = segreader.scan(tmp_path / "live")
    assert values(scan) == [b"a"]
    assert len(scan.metrics.notes) == 1
    assert f"{len(tail):,} bytes" in scan.metrics.notes[0]
    write_local_tiered(tmp_path / "tier", "orders", [built])
    seen = []
    with pytest.raises(TruncatedError, match="fetch the segment again") as caught:
        for record in segreader.scan(tmp_path / "tier").records():
            seen.append(record.value)
    assert seen == [b"a"]
    assert str(log_file(tmp_path / "tier")) == caught.value.source


def damaged(tiered: Path, base: int, byte: int) -> Path:
    file = log_file(tiered, base)
    data = bytearray(file.read_bytes())
    data[byte] ^= 1
    file.write_bytes(data)
    return file


def test_a_batch_that_fails_its_crc_comes_after_the_records_before_it(tiered: Path) -> None:
    file = damaged(tiered, 5, -3)
    seen = []
    with pytest.raises(CorruptBatchError) as caught:
        for record in segreader.scan(tiered).records():
            seen.append(record.value)
    assert seen == [b"a", b"b", b"c"]
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.source, error.position, error.base_offset) == (str(file), 0, 5)
    assert str(error) == str(caught.value)


def test_skip_leaves_the_damaged_batch_out_and_reports_it(tiered: Path) -> None:
    file = damaged(tiered, 0, 75)
    scan = segreader.scan(tiered, on_corrupt="skip")
    assert values(scan) == [b"c", b"d", b"e"]
    (hole,) = scan.metrics.holes
    assert (hole.source, hole.start) == (str(file), 0)
    assert "CRC" in hole.error


def test_skip_finds_a_batch_again_through_the_index(tmp_path: Path) -> None:
    built = SegmentBuilder(0, index_interval_bytes=100)
    for index in range(10):
        built.batch([b"%d" % index * 40])
    write_local_tiered(tmp_path, "orders", [built])
    file = log_file(tmp_path)
    data = bytearray(file.read_bytes())
    at = built.batch_positions[4]
    data[at + 8 : at + 12] = b"\0\0\0\1"
    file.write_bytes(data)
    scan = segreader.scan(tmp_path, on_corrupt="skip")
    offsets = [record.offset for record in scan.records()]
    assert offsets[:4] == [0, 1, 2, 3]
    assert offsets[-1] == 9
    (hole,) = scan.metrics.holes
    assert hole.start == at
    assert hole.stop in built.batch_positions


def test_the_check_can_be_switched_off(tiered: Path) -> None:
    file = log_file(tiered, 5)
    data = bytearray(file.read_bytes())
    data[17] ^= 1
    file.write_bytes(data)
    assert values(segreader.scan(tiered, check_crcs=False))[-2:] == [b"d", b"e"]


def test_a_range_inside_one_segment_reads_only_its_part(tmp_path: Path) -> None:
    built = SegmentBuilder(0)
    for index in range(3000):
        built.batch([b"%04d" % index * 250])
    write_local_tiered(tmp_path, "orders", [built])
    scan = segreader.scan(tmp_path, offsets="1500:1510")
    assert [record.offset for record in scan.records()] == list(range(1500, 1510))
    assert scan.metrics.bytes_read < 40_000
    assert scan.metrics.requests == 1


def test_a_segment_is_read_a_mebibyte_at_a_time(tmp_path: Path) -> None:
    built = SegmentBuilder(0)
    for index in range(3000):
        built.batch([b"%04d" % index * 250])
    write_local_tiered(tmp_path, "orders", [built])
    scan = segreader.scan(tmp_path, batch_rows=100)
    assert sum(batch.num_rows for batch in scan.to_batches()) == 3000
    size = len(built.to_bytes())
    assert (scan.metrics.bytes_read, scan.metrics.requests) == (size, -(-size // (1 << 20)))


def test_each_offset_of_overlapping_segments_comes_once(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"a"]).batch([b"b", b"c"])
    second = SegmentBuilder(2).batch([b"c"]).batch([b"d"])
    second.leader_epochs = list(first.leader_epochs)
    write_local_tiered(tmp_path, "orders", [first, second])
    assert [(r.offset, r.value) for r in segreader.scan(tmp_path).records()] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
        (3, b"d"),
    ]


def test_an_empty_segment_and_a_damaged_index_cost_nothing_but_a_note(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"a"], last_offset=1)
    empty = first.roll().skip(10)
    third = empty.roll().batch([b"b"])
    write_local_tiered(tmp_path, "orders", [first, empty, third])
    next(tmp_path.rglob(f"{12:020d}*.index")).write_bytes(b"\xff" * 13)
    scan = segreader.scan(tmp_path, offsets="1:")
    assert values(scan) == [b"b"]
    scan = segreader.scan(tmp_path, split_bytes=1)
    assert values(scan) == [b"a", b"b"]
    assert "an offset index ends inside an entry" in scan.metrics.notes[0]
    assert "reads without it" in scan.metrics.notes[0]


def test_batches_are_closed_by_rows_and_by_bytes(tmp_path: Path) -> None:
    built = SegmentBuilder(0)
    for _ in range(30):
        built.batch([b"v" * 1000] * 10)
    write_local_tiered(tmp_path, "orders", [built])
    by_rows = [b.num_rows for b in segreader.scan(tmp_path, batch_rows=64).to_batches()]
    assert (set(by_rows[:-1]), sum(by_rows)) == ({64}, 300)
    by_bytes = [b.num_rows for b in segreader.scan(tmp_path, batch_bytes=50_000).to_batches()]
    assert (set(by_bytes), sum(by_bytes)) == ({50}, 300)


def test_a_batch_in_hand_is_not_changed_by_the_ones_after_it(tmp_path: Path) -> None:
    built = SegmentBuilder(0)
    for index in range(200):
        built.batch([b"%d" % index], codec=Codec.ZSTD)
    write_local_tiered(tmp_path, "orders", [built])
    held = list(segreader.scan(tmp_path, batch_rows=7).to_batches())
    assert [v for batch in held for v in batch.column("value").to_pylist()] == [b"%d" % i for i in range(200)]


def test_a_large_record_passes_the_usual_batch_size(tmp_path: Path) -> None:
    built = SegmentBuilder(0).batch([b"s"]).batch([b"L" * 9_000_000], codec=Codec.ZSTD).batch([b"t"])
    write_local_tiered(tmp_path, "orders", [built])
    assert [len(v or b"") for v in values(segreader.scan(tmp_path))] == [1, 9_000_000, 1]


def test_the_default_columns_and_their_types_are_these(tiered: Path) -> None:
    assert segreader.scan(tiered).to_arrow().schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestamp_type", pa.int32()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )


def test_every_column_on_request_says_what_the_batch_says(tmp_path: Path) -> None:
    built = SegmentBuilder(10, leader_epoch=4)
    built.batch([b"p"])
    built.batch([b"t", b"u"], producer_id=7, producer_epoch=3, base_sequence=5, transactional=True, codec=Codec.GZIP)
    built.marker(7)
    write_local_tiered(tmp_path, "orders", [built])
    facts = "timestamp_ms leader_epoch producer_id producer_epoch sequence is_transactional compression"
    names = [*facts.split(), "batch_base_offset", "position"]
    rows = segreader.scan(tmp_path, columns=names).to_arrow().drop_columns("timestamp_ms").to_pylist()
    assert list(rows[0].values()) == [4, None, None, None, False, "none", 10, 0]
    assert list(rows[2].values()) == [4, 7, 3, 6, True, "gzip", 11, built.batch_positions[1]]


def test_the_column_that_was_always_false_is_so_for_one_more_release(tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"p"] * 9).batch([b"t"], producer_id=7, producer_epoch=3, transactional=True)
    write_local_tiered(tmp_path, "orders", [built.marker(7)])
    with pytest.warns(DeprecationWarning, match="the column is_control is deprecated") as warned:
        scan = segreader.scan(tmp_path, columns=["is_control", "offset"], isolation_level="read_uncommitted")
    assert [one.filename for one in warned] == [__file__]
    rows = scan.to_arrow()
    assert rows.schema == pa.schema([("is_control", pa.bool_()), ("offset", pa.int64())])
    assert rows["is_control"].to_pylist() == [False] * 10
    assert "is_control" not in ALL_COLUMNS


def test_milliseconds_are_kept_exactly(tmp_path: Path) -> None:
    times = [-1, 0, 1, -5, 1_700_000_000_123, 9_223_372_036_854_775]
    records = [Record(i, time, TimestampType.CREATE_TIME, None, b"") for i, time in enumerate(times)]
    write_local_tiered(tmp_path, "orders", [SegmentBuilder(0).batch(records)])
    column = segreader.scan(tmp_path).to_arrow().column("timestamp")
    assert column.cast(pa.int64()).to_pylist() == [time * 1000 for time in times]


def test_a_null_bitmap_is_there_only_with_a_null(tiered: Path) -> None:
    batch = next(segreader.scan(tiered, columns=["key", "value"]).to_batches())
    assert batch.column("value").buffers()[0] is None
    assert batch.column("key").null_count == batch.num_rows
    batch.validate(full=True)


@pytest.mark.parametrize("engine", ["pyarrow", "polars", "duckdb", "pandas"])
def test_engines_take_a_scan_as_it_is(tiered: Path, engine: str) -> None:
    scan = segreader.scan(tiered, columns=["offset", "value"])
    if engine == "pyarrow":
        offsets = pa.table(scan).column("offset").to_pylist()
    elif engine == "polars":
        import polars

        offsets = polars.DataFrame(scan)["offset"].to_list()
    elif engine == "duckdb":
        import duckdb

        relation = duckdb.sql("select * from scan")
        assert relation is not None
        offsets = [row[0] for row in relation.fetchall()]
    else:
        offsets = pa.table(scan).to_pandas()["offset"].tolist()
    assert offsets == [0, 1, 3, 5, 6]


def test_a_scan_can_be_read_twice(tiered: Path) -> None:
    scan = segreader.scan(tiered)
    assert values(scan) == values(scan)
    assert scan.to_arrow().equals(scan.to_arrow())


def test_a_scan_is_a_context_that_gives_its_store_back(tiered: Path) -> None:
    with segreader.scan(tiered) as scan:
        assert len(values(scan)) == 5


def test_a_plan_is_a_small_value_without_a_client(tiered: Path) -> None:
    plan = segreader.scan(tiered).plan()
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert max(len(pickle.dumps(split)) for split in plan.splits) < 2048
    assert plan.size == sum(file.stat().st_size for file in tiered.rglob("*.log"))
    assert [str(partition) for partition in plan.partitions] == ["orders-0"]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"topic": "order"}, ObjectNotFoundError, "found orders"),
        ({"topic": "orders", "partitions": [0, 4]}, ObjectNotFoundError, "partition 4"),
        ({"topic_id": "no"}, ObjectNotFoundError, "topic id no"),
        ({"partitions": []}, PlanError, "empty set"),
        ({"partitions": ["0"]}, OptionError, "partitions are numbers; found '0'"),
        ({"partitions": [True]}, OptionError, "partitions are numbers; found True"),
        ({"partitions": True}, OptionError, "partitions are numbers; found True"),
        ({"partitions": 1.5}, OptionError, "partitions are numbers; found 1.5"),
        ({"topic": ["orders"]}, OptionError, "topic must be text; found list"),
        ({"topic_id": 5}, OptionError, "topic_id must be text; found int"),
        ({"last": "2"}, OptionError, "last is a number; found '2'"),
        ({"last": True}, OptionError, "last is a number; found True"),
        ({"threads": True}, OptionError, "threads is a number; found True"),
        ({"since": True}, OptionError, "not a time; found True"),
        ({"offsets": "5"}, OptionError, "A:B"),
        ({"offsets": "9:5"}, OptionError, "A:B"),
        ({"offsets": (1, 2, 3)}, OptionError, r"found \(1, 2, 3\), expected A:B"),
        ({"offsets": range(3)}, OptionError, r"found range\(0, 3\), expected A:B"),
        ({"offsets": range(3, 5)}, OptionError, r"found range\(3, 5\), expected A:B"),
        ({"offsets": (True, 5)}, OptionError, r"found \(True, 5\), expected A:B"),
        ({"offsets": (0.0, 5)}, OptionError, r"found \(0.0, 5\), expected A:B"),
        ({"with_key": "\ud800"}, OptionError, r"with_key \(--key\) is not UTF-8; found '\\ud800'"),
        ({"grep": "0x\ud800"}, OptionError, r"grep \(--grep\) is not UTF-8"),
        ({"isolation_level": "committed"}, OptionError, "read_committed or read_uncommitted"),
        ({"columns": ["vlaue"]}, OptionError, "Did you mean 'value'"),
        ({"columns": ["key", "key"]}, OptionError, "named twice"),
        ({"columns": "value"}, OptionError, r"columns are a list of names; found 'value'. Write \['value'\]"),
        ({"columns": None}, OptionError, "columns are a list of names; found None"),
        ({"columns": [None]}, OptionError, "columns are a list of names; found None"),
        ({"columns": [["key"]]}, OptionError, r"columns are a list of names; found \['key'\]"),
        ({"columns": [b"offset"]}, OptionError, "columns are a list of names; found b'offset'"),
        ({"columns": []}, OptionError, "no column is named"),
        ({"columns": ["timestamp", "timestamp_ms"]}, OptionError, "one of them"),
        ({"on_corrupt": "ignore"}, OptionError, "fail or skip"),
        ({"batch_rows": 0}, OptionError, "positive"),
        ({"split_bytes": 0}, OptionError, "positive"),
        ({"kernel": "fast"}, OptionError, "auto, native or reference"),
        ({"check_crcs": "no"}, OptionError, "check_crcs is True or False; found 'no'"),
        ({"layout": 5}, OptionError, "layout must be text; found int"),
        ({"rsm_config": 5}, OptionError, "rsm_config must be a path or a URL; found int"),
        ({"metadata": b"x"}, OptionError, "metadata must be a path or a URL; found bytes"),
        ({"log_directory": ["x"]}, OptionError, "log_directory must be a path or a URL; found list"),
        ({"leader_epochs": ""}, OptionError, "leader_epochs must be a path or a URL; found an empty text"),
        ({"storage_options": "x"}, OptionError, "storage options must be a mapping; found str"),
        ({"storage_options": {5: 1}}, OptionError, "names of storage options must be text; found int"),
        ({"value": 5}, OptionError, "value is not a source of schemas; found int"),
        ({"key": b"x"}, OptionError, "key is not a source of schemas; found bytes"),
        ({"renew": 5}, OptionError, "renew must be a function; found int"),
        ({"renew": str}, OptionError, "renew needs signed URLs"),
    ],
)
def test_a_wrong_request_says_what_is_wrong_with_it(
    tiered: Path, arguments: dict[str, object], error: type[SegreaderError], says: str
) -> None:
    with pytest.raises(error, match=says):
        segreader.scan(tiered, **arguments).to_arrow()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"partitions": np.int64(0)},
        {"partitions": np.array([0])},
        {"offsets": (np.int64(0), np.int64(9))},
        {"since": np.int64(0), "until": np.int64(1 << 50)},
        {"last": np.int64(9)},
        {"threads": np.int64(1), "read_ahead_bytes": np.int64(1 << 20)},
        {"batch_rows": np.int32(2), "split_bytes": np.int64(1)},
    ],
)
def test_numbers_of_numpy_ask_for_the_same_as_ints(tiered: Path, given: dict[str, Any]) -> None:
    assert values(segreader.scan(tiered, **given)) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_function_that_renews_urls_is_checked_when_a_scan_of_urls_is_made() -> None:
    with pytest.raises(OptionError, match="renew must be a function; found int"):
        segreader.scan(urls=["https://host/path/00000000000000000000.log"], renew=5)  # type: ignore[arg-type]


def test_a_wrong_place_says_what_was_seen(tmp_path: Path, tiered: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="no such directory"):
        segreader.scan(tmp_path / "nowhere")
    with pytest.raises(PlanError, match="segreader dump"):
        segreader.scan(log_file(tiered))
    with pytest.raises(OptionError, match="not known") as caught:
        segreader.scan("gopher://host/prefix?signature=canary")
    assert "canary" not in str(caught.value)
    with pytest.raises(OptionError, match="a location, or urls"):
        segreader.scan()
    with pytest.raises(OptionError, match="urls are a list; found a text"):
        segreader.scan(urls="https://host/path/00000000000000000000.log?signature=canary")
    with pytest.raises(OptionError, match=r"found ''. Write \. for this directory"):
        segreader.scan("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "readme.txt").write_text("hello")
    with pytest.raises(UnknownLayoutError, match=r"1 file in 1 directory: other/readme\.txt"):
        segreader.scan(tmp_path / "other").plan()


def test_two_layouts_in_one_place_are_refused(tiered: Path) -> None:
    write_broker_log(tiered / "local", "orders", [SegmentBuilder(0).batch([b"x"])])
    with pytest.raises(AmbiguousTopicError, match=r"two layouts.* give the broker's log directory with log_directory"):
        segreader.scan(tiered).plan()


def test_every_bit_of_a_log_gives_records_or_a_typed_error_that_says_where(tmp_path: Path) -> None:
    built = SegmentBuilder(0).batch([b"a", b"b"]).batch([b"t"], producer_id=9, transactional=True).marker(9, abort=True)
    write_local_tiered(tmp_path, "orders", [built])
    file, data = log_file(tmp_path), bytearray(built.to_bytes())
    for bit in range(0, 8 * len(data), 3):
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        try:
            segreader.scan(tmp_path).to_arrow().validate(full=True)
        except FormatError as error:
            assert error.source
        data[bit // 8] ^= 1 << bit % 8


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, segreader; "
        "print(sorted({'pyarrow', 'numpy', 'fsspec', 'rich', 'pyspark', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("program", ["library", "cat"])
def test_a_first_local_record_loads_only_what_it_needs(program: str, tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch([b"value"])])
    unwanted = {
        "argparse", "asyncio", "crc32c", "email", "fsspec", "hashlib", "http.client", "importlib.metadata", "msgspec",
        "pandas", "pyarrow.compute", "pyspark", "rich", "ssl", "tomllib", "urllib.request", "urllib3",
    }  # fmt: skip
    read = {
        "library": f"import segreader; next(segreader.scan({str(tmp_path)!r}).to_batches())",
        "cat": f"from segreader.cli.main import main; main(['cat', {str(tmp_path)!r}, '-o', 'ndjson', '--limit', '1'])",
    }[program]
    # pyarrow imports numpy where it is installed; nothing here may need it
    code = f"import sys; sys.modules['numpy'] = None; {read}; print(sorted({unwanted} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_the_public_names_are_frozen() -> None:
    names = """
        AbortedTransactions BatchReady Decompressor Done NeedData Record Tail iter_records parse_offset_index
        parse_transaction_index ClosedError PositionError PositionFormatError PositionVersionError ForeignPositionError
        RecreatedTopicError DeletedPositionError DivergedPositionError
        AmbiguousTopicError BrokerError ByteRange CatalogError ConsumerRecord CorruptBatchError CorruptIndexError
        CorruptRecordError DecryptionError EndReason FormatError IsolationLevel LimitExceededError LivePart LivePlan
        LiveScan ManifestError ObjectNotFoundError OffsetOutOfRangeError OffsetRange OptionError PlanError
        ReadEnd ReadPlan Scan ScanMetrics SchemaAccessError SchemaNotFoundError SchemaRegistryError SegmentGapError
        SegmentScanner SegreaderError Split StorageError TimestampType TopicIdPartition TruncatedError TruncatedLogError
        UndecodableValueError UnknownLayoutError __version__ scan
    """
    assert sorted(segreader.__all__) == sorted(names.split())
    for name in segreader.__all__:
        assert getattr(segreader, name) is not None


def test_a_scan_takes_the_settings_of_the_version_before_with_a_warning(tmp_path: Path) -> None:
    builder = SegmentBuilder(0)
    for _ in range(20):
        builder.batch([b"x" * 40])
    write_local_tiered(tmp_path, "t", [builder])
    source = open_source(tmp_path)
    with pytest.warns(DeprecationWarning, match="segreader.scan makes them"):
        earlier = Scan(source, topic="t", isolation_level="read_uncommitted", offsets="2:9", split_bytes=64)
    now = segreader.scan(tmp_path, topic="t", isolation_level="read_uncommitted", offsets="2:9", split_bytes=64)
    assert isinstance(now, Scan)
    assert earlier.plan() == now.plan()
    with pytest.raises(TypeError, match="tpoic"):
        Scan(source, tpoic="t")


def test_a_scans_repr_is_one_line_that_says_what_is_read(tiered: Path) -> None:
    assert repr(segreader.scan(tiered)) == (
        f"<Scan location {tiered}, topic all, partitions all, isolation read_committed>"
    )
    asked = segreader.scan(
        tiered, topic="orders", partitions=[0, 2], offsets="3:9", since=0, with_key="<k>", grep="x" * 100
    )
    assert repr(asked) == (
        f"<Scan location {tiered}, topic orders, partitions 0, 2, offsets 3:9, since 1970-01-01T00:00:00.000Z, "
        f"key b'<k>', contains b'{'x' * 60}...', isolation read_committed>"
    )
    live = segreader.scan("kafka://b1:9092,b2:9092", topic="or\nders", offsets=":latest-stable", group="billing")
    assert repr(live) == (
        "<LiveScan location kafka://b1:9092,b2:9092, topic 'or\\nders', partitions all, offsets :latest-stable, "
        "group billing, isolation read_committed>"
    )


def test_a_scans_html_is_escaped_and_reads_nothing(tiered: Path) -> None:
    shown = segreader.scan(tiered, topic="a&<script>", with_key=b"<script>")._repr_html_()
    assert "<script>" not in shown
    assert "a&amp;&lt;script&gt;" in shown
    assert shown.startswith("<table>")


def test_neither_form_of_a_scan_shows_a_secret() -> None:
    url = "https://logs.s3.amazonaws.com/o/00000000000000000000.log?X-Amz-Signature=hush"
    options = {"key": "AKIA", "secret": "hush"}
    scans = [
        segreader.scan(url),
        segreader.scan(urls=[url]),
        segreader.scan("s3://logs/tiered", storage_options=options, topic="orders"),
        segreader.scan("abfss://logs@account.dfs.core.windows.net/tiered?sig=hush"),
        segreader.scan("kafka://b:9092", topic="o", broker_options={"sasl.password": "hush"}),
        segreader.scan(
            "s3://logs/tiered", storage_options=options, topic="o", bootstrap_servers="b:9092", prefer="store"
        ),
    ]
    for scan in scans:
        with scan:
            assert "hush" not in repr(scan) + str(scan) + scan._repr_html_()
    assert repr(scans[2]).startswith("<Scan location s3://logs/tiered/, topic orders")
    assert repr(scans[-1]).startswith("<LiveScan location s3://logs/tiered/ and kafka://b:9092, topic o")


def test_a_scan_does_not_pickle_and_says_what_does(tiered: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot travel to another process.*LoadQuery"):
        pickle.dumps(segreader.scan(tiered))


def test_frames_of_other_libraries_hold_what_the_arrow_table_does(tiered: Path) -> None:
    scan = segreader.scan(tiered, columns=("offset", "value", "timestamp"))
    table = scan.to_arrow()
    assert scan.to_pandas().equals(table.to_pandas())
    assert scan.to_polars().to_arrow().cast(table.schema) == table
    assert scan.to_duckdb().order("1").to_arrow_table().column("value").to_pylist() == table.column("value").to_pylist()


def test_a_duckdb_table_gets_the_name_and_connection_that_are_given(tiered: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    scan = segreader.scan(tiered)
    with duckdb.connect() as connection:
        scan.to_duckdb(connection, name='my "orders".1')
        assert connection.execute('select count(*) from "my ""orders"".1"').fetchall() == [(5,)]
        with pytest.raises(OptionError, match="already exists") as refused:
            scan.to_duckdb(connection, 'my "orders".1')
        assert "another name" in str(refused.value)
    with pytest.raises(OptionError, match=r"not a DuckDB connection.*name='multi'"):
        scan.to_duckdb("multi")  # type: ignore[arg-type]


def test_what_ends_a_read_ends_to_duckdb_as_it_is_and_leaves_no_table(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    write_local_tiered(tmp_path, "orders", [SegmentBuilder(0).batch([b"a"]).batch([b"b"])])
    log = log_file(tmp_path)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with duckdb.connect() as connection:
        with pytest.raises(CorruptBatchError):
            segreader.scan(tmp_path).to_duckdb(connection)
        assert connection.execute("show tables").fetchall() == []


@pytest.mark.parametrize(
    ("library", "method"), [("pandas", "to_pandas"), ("polars", "to_polars"), ("duckdb", "to_duckdb")]
)
def test_a_library_that_is_not_there_is_named_with_its_install(
    tiered: Path, monkeypatch: pytest.MonkeyPatch, library: str, method: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(OptionError, match=f"{method} needs .*not installed") as refused:
        getattr(segreader.scan(tiered), method)()
    assert f"pip install {library}" in str(refused.value).replace("'", "")


@pytest.mark.parametrize("location", [b"/tmp", ["/tmp"], 5])
def test_a_location_that_is_no_path_is_told_by_its_type(location: Any) -> None:
    with pytest.raises(OptionError, match=f"location must be a path or a URL; found {type(location).__name__}"):
        segreader.scan(location, topic="orders")
