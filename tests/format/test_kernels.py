"""Both kernels, the same tests in the same run: what one decodes, the other decodes to the same bytes."""

from __future__ import annotations

import random
import struct
import sys
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.errors import CorruptBatchError, FormatError, LimitExceededError, TruncatedError
from segreader.format import columns as layout
from segreader.format.batch import HEADER_SIZE, Record, TimestampType, decode_java_utf8
from segreader.format.columns import (
    BUFFERS_OF,
    Buffer,
    BufferPool,
    ColumnBuffers,
    Damage,
    Outcome,
    State,
    Table,
    batch_table,
)
from segreader.format.compression import Codec, Decompressor
from segreader.format.kernel import Kernel, damage_error, load_kernel
from segreader.format.records import iter_records
from segreader.testing.batches import Lies, encode_varint
from segreader.testing.builder import SegmentBuilder
from segreader.testing.records import ProducerRecord
from segreader.testing.strategies import producer_records

KERNELS = ["reference", "native"]
WAYS = [*KERNELS, "native without codecs"]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return load_kernel(request.param)


def without_codecs() -> Decompressor:
    """Makes the native kernel leave every compressed body to ``compression.py``."""
    decompressor = Decompressor()
    native = pytest.importorskip("segreader.format._kernel")
    decompressor.codecs = native.Codecs(decompressor.limit, lambda codec: None)
    return decompressor


def decode(
    kernel: Kernel,
    data: bytes,
    columns: ColumnBuffers,
    *,
    check_crcs: bool = True,
    decompressor: Decompressor | None = None,
) -> tuple[Outcome, ColumnBuffers]:
    """Decode all batches in ``data`` into one set of columns, growing them as needed."""
    table, view = batch_table(), memoryview(data)
    rows, _ = kernel.scan_batches(view, 0, 0, table, 1 << 30)
    decompressor = decompressor or Decompressor()
    while True:
        outcome = Outcome(kernel.decode_batches(columns, view, 0, table, rows, check_crcs, decompressor))
        if outcome is not Outcome.GROW or not columns.make_room():
            return outcome, columns


def unpacked(columns: ColumnBuffers, layout: str, index: Buffer) -> tuple[int, ...]:
    buffer = columns.buffers[index]
    assert buffer is not None
    return struct.unpack_from(layout, buffer)


def image(columns: ColumnBuffers) -> dict[str, Any]:
    """What a reader can see of the buffers: everything below the counters."""
    state, seen = columns.state, dict[str, Any]()
    rows, headers = state[State.ROWS], state[State.HEADERS]
    widths = {Buffer.HEADER_KEY_OFFSETS: 4 * (headers + 1), Buffer.HEADER_VALUE_OFFSETS: 4 * (headers + 1)}
    widths |= dict.fromkeys((Buffer.KEY_OFFSETS, Buffer.VALUE_OFFSETS, Buffer.HEADER_OFFSETS), 4 * (rows + 1))
    widths |= {Buffer.KEY_DATA: state[State.KEY_BYTES], Buffer.VALUE_DATA: state[State.VALUE_BYTES]}
    widths |= {Buffer.HEADER_KEY_DATA: state[State.HEADER_KEY_BYTES]}
    widths |= {Buffer.HEADER_VALUE_DATA: state[State.HEADER_VALUE_BYTES]}
    widths |= {Buffer.ATTRIBUTES: rows}
    bits = {Buffer.KEY_VALIDITY: (State.KEY_NULLS, rows), Buffer.VALUE_VALIDITY: (State.VALUE_NULLS, rows)}
    bits |= {Buffer.HEADER_VALUE_VALIDITY: (State.HEADER_VALUE_NULLS, headers)}
    eight = {Buffer.OFFSET, Buffer.TIMESTAMP, Buffer.PRODUCER_ID, Buffer.BATCH_BASE_OFFSET, Buffer.POSITION}
    for index in Buffer:
        buffer = columns.buffers[index]
        if buffer is None:
            continue
        if index in bits:
            nulls, count = bits[index]
            seen[index.name] = [bool(buffer[i >> 3] & 1 << (i & 7)) for i in range(count)] if state[nulls] else None
        else:
            seen[index.name] = bytes(buffer[: widths.get(index, rows * (8 if index in eight else 4))])
    seen["state"] = list(state[: State.NEED_BUFFER])
    return seen


def both(data: bytes, **kwargs: bool) -> tuple[Outcome, dict[str, Any]]:
    """Decode with both kernels, the native one also without its codecs, hold that they agree, and give the answer."""
    answers = []
    for name in WAYS:
        columns = ColumnBuffers(frozenset(BUFFERS_OF) - {"timestamp"}, max_rows=500)
        try:
            decompressor = Decompressor() if name in KERNELS else without_codecs()
            outcome, _ = decode(load_kernel(name.split()[0]), data, columns, decompressor=decompressor, **kwargs)
            damage: list[object] = (
                list(columns.state[State.DAMAGE : State.DECODED_BATCHES]) if outcome is Outcome.DAMAGED else []
            )
        except FormatError as error:
            outcome, damage = Outcome.DAMAGED, [type(error)]
        answers.append((outcome, damage, image(columns)))
    assert answers[0] == answers[1] == answers[2]
    return answers[0][0], answers[0][2]


def sample(codec: int = Codec.NONE) -> SegmentBuilder:
    """A little of everything that one batch can hold."""
    return SegmentBuilder(100).batch(
        [
            Record(100, 1_700_000_000_000, TimestampType.CREATE_TIME, b"k1", b"hello", (("h", b"v"), ("n", None))),
            Record(101, 1_700_000_000_007, TimestampType.CREATE_TIME, None, b"", ()),
            Record(105, 1_699_999_999_000, TimestampType.CREATE_TIME, b"", None, (("ключ", b""),)),
        ],
        codec=codec,
        producer_id=4000,
    )


def test_the_numbers_of_both_kernels_agree() -> None:
    native = pytest.importorskip("segreader.format._kernel")
    assert {
        "Buffer": len(Buffer),
        "State": len(State),
        "Table": len(Table),
        "Damage": max(Damage),
        "Spent": len(layout.Spent),
        "TABLE_WIDTH": layout.TABLE_WIDTH,
    } == native.LAYOUT
    assert [load_kernel(name).NAME for name in KERNELS] == KERNELS


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_gives_the_records_that_were_written(name: str, codec: Codec) -> None:
    built = sample(codec)
    assert list(iter_records(built.to_bytes(), Decompressor(), kernel=load_kernel(name))) == built.records


def one_of(magic: int, *values: bytes) -> bytes:
    """A batch of these values; before magic 2, a message of the first."""
    builder = SegmentBuilder()
    if magic < 2:
        return builder.message_set([ProducerRecord(values[0])], magic=magic).to_bytes()
    return builder.batch([ProducerRecord(value) for value in values]).to_bytes()


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_that_ends_early_is_told_wherever_it_ends(kernel: Kernel, magic: int) -> None:
    data = one_of(magic, b"a" * 50, b"b")
    for end in range(len(data)):
        with pytest.raises(TruncatedError, match=f"found {end} bytes"):
            list(iter_records(data[:end], Decompressor(), kernel=kernel))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_follows_a_batch_is_no_part_of_it(kernel: Kernel, magic: int) -> None:
    with pytest.raises(CorruptBatchError, match="not as long as its size says"):
        list(iter_records(one_of(magic, b"a") * 2, Decompressor(), kernel=kernel))


def test_the_buffers_of_both_kernels_are_equal_byte_for_byte() -> None:
    data = sample().batch([b"x"] * 20, codec=Codec.LZ4).marker(7).to_bytes()
    outcome, seen = both(data)
    assert outcome is Outcome.DONE
    assert seen["OFFSET"] == struct.pack("=24q", 100, 101, 105, *range(106, 127))
    assert seen["KEY_VALIDITY"][:3] == [True, False, True]


@settings(max_examples=tries(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batches=st.lists(
        st.tuples(st.lists(producer_records(), min_size=1, max_size=8), st.sampled_from(list(Codec))),
        max_size=4,
    )
)
def test_any_records_come_back_from_both_kernels(batches: list[tuple[list[ProducerRecord], Codec]]) -> None:
    built = SegmentBuilder(7)
    for records, codec in batches:
        built.batch(records, codec=codec)
    outcome, seen = both(built.to_bytes())
    assert outcome is Outcome.DONE
    assert seen["state"][State.ROWS] == len(built.records)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY, Codec.ZSTD])
def test_a_batch_cut_at_any_byte_is_never_scanned_as_whole(kernel: Kernel, codec: Codec) -> None:
    data = sample(codec).to_bytes()
    for size in range(len(data)):
        assert kernel.scan_batches(memoryview(data)[:size], 0, 0, batch_table(), 1 << 30) == (0, 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_every_flipped_bit_under_the_crc_is_refused_and_the_rest_agrees(codec: Codec) -> None:
    data = bytearray(sample(codec).to_bytes())
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        outcome, _ = both(bytes(data))
        if bit // 8 >= 17:
            assert outcome is Outcome.DAMAGED, f"bit {bit} was not noticed"
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_flipped_bits_without_a_crc_give_the_same_answer_from_both(codec: Codec) -> None:
    data = bytearray(sample(codec).to_bytes())
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        both(bytes(data), check_crcs=False)
        data[bit // 8] ^= 1 << bit % 8


def test_bodies_of_random_bytes_give_the_same_answer_from_both() -> None:
    chance = random.Random(11)
    for _ in range(3000):
        body = bytes(
            chance.choice([0, 1, 2, 4, 6, 8, 0x10, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            for _ in range(chance.randrange(40))
        )
        both(
            SegmentBuilder(9)
            .batch([], lies=Lies(body=body, record_count=chance.choice([-1, 1, 2, 2**31 - 1])))
            .to_bytes()
        )


RECORD = bytes.fromhex("00 00 00 02 6b 02 76 00")  # attributes, deltas, key, value, no headers


@pytest.mark.parametrize(
    ("body", "count", "damage"),
    [
        (b"\x10" + RECORD, 2, Damage.BODY_ENDS),
        (b"\x10" + RECORD, -1, Damage.RECORD_COUNT),
        (b"\x10" + RECORD + b"\0", 1, Damage.RECORDS_REMAIN),
        (b"\x12" + RECORD, 1, Damage.RECORD_LENGTH),
        (b"\x0f" + RECORD, 1, Damage.RECORD_LENGTH),
        (b"\x12" + RECORD + b"\0", 1, Damage.RECORD_UNDERRUN),
        (b"\x0e" + RECORD[:-1], 1, Damage.RECORD_OVERRUN),
        (b"\x80\x80\x80\x80\x80\x00", 1, Damage.VARINT),
        (b"\x10" + RECORD[:-1] + b"\x01", 1, Damage.HEADER_COUNT),
        (b"\x10" + RECORD[:-1] + b"\x7e", 1, Damage.HEADER_COUNT),
        (b"\x14" + RECORD[:-1] + b"\x02\x01\x00", 1, Damage.HEADER_KEY_LENGTH),
        (b"\x12" + RECORD[:-1] + b"\x02\x01", 1, Damage.HEADER_KEY_LENGTH),
        (b"\x16" + RECORD[:-1] + b"\x02\x02\x68\x80", 1, Damage.RECORD_OVERRUN),
        (b"\x22" + RECORD[:-1] + b"\x04\x02h\x02x\x80\x80\x80\x80\x00", 1, Damage.RECORD_OVERRUN),
    ],
)
def test_what_java_refuses_in_a_record_is_refused_with_its_name(body: bytes, count: int, damage: Damage) -> None:
    data = SegmentBuilder(5).batch([], lies=Lies(body=body, record_count=count)).to_bytes()
    both(data)
    for name in KERNELS:
        columns = ColumnBuffers(frozenset({"offset", "key"}))
        outcome, _ = decode(load_kernel(name), data, columns)
        assert outcome is Outcome.DAMAGED
        assert columns.state[State.DAMAGE] == damage
        table = batch_table()
        load_kernel(name).scan_batches(memoryview(data), 0, 0, table, 1 << 30)
        error = damage_error(columns.state, table)
        assert error.base_offset == 5
        assert error.found
        assert error.expected is not None
        assert str(error.position) in str(error)


def test_records_before_a_damaged_one_in_the_same_batch_are_kept(kernel: Kernel) -> None:
    body = b"\x10" + RECORD + b"\x10" + RECORD + b"\x12" + RECORD
    data = SegmentBuilder(5).batch([], lies=Lies(body=body, record_count=3, last_offset_delta=2)).to_bytes()
    columns = ColumnBuffers(frozenset({"offset"}))
    columns.state[State.CURSOR_MOVES] = 0
    assert decode(kernel, data, columns)[0] is Outcome.DAMAGED
    assert columns.rows == 2


def test_numbers_that_are_longer_than_needed_are_read(kernel: Kernel) -> None:
    body = bytes.fromhex("00 8000 8080808000 8200 6b 828000 76 8000")
    body = encode_varint(len(body)) + body
    data = SegmentBuilder(5).batch([], lies=Lies(body=body, record_count=1)).to_bytes()
    assert [(r.key, r.value) for r in iter_records(data, Decompressor(), kernel=kernel)] == [(b"k", b"v")]


def test_an_empty_batch_is_not_looked_into(kernel: Kernel) -> None:
    data = SegmentBuilder(5).batch([], lies=Lies(body=b"\xff\xff\xff", record_count=0)).to_bytes()
    outcome, columns = decode(kernel, data, ColumnBuffers(frozenset({"offset"})))
    assert (outcome, columns.rows) == (Outcome.DONE, 0)


def test_a_consumer_never_goes_back_within_a_segment(kernel: Kernel) -> None:
    """Corpus topic odd-offsets: the position moves past each delivered record, also over batch bounds."""
    built = SegmentBuilder(3)
    for deltas, last in (((0, 2), 1), ((0, 1), 1), ((1, 0), 1)):
        base = built.next_offset
        body = b"".join(
            encode_varint(7) + b"\0\0" + encode_varint(delta) + b"\x01\x02" + b"%d" % delta + b"\0" for delta in deltas
        )
        built.batch([], base_offset=base, last_offset=base + last, lies=Lies(body=body, record_count=2))
    outcome, columns = decode(kernel, built.to_bytes(), ColumnBuffers(frozenset({"offset"})))
    assert outcome is Outcome.DONE
    assert unpacked(columns, f"={columns.rows}q", Buffer.OFFSET) == (3, 5, 6, 8)


def test_the_last_batch_below_the_position_is_looked_into(kernel: Kernel) -> None:
    """Its producer gave a record the offset of the batch behind: a consumer gets that one, and drops the other."""
    built = SegmentBuilder(0)
    for base, delta, value in ((0, 3, b"a"), (3, 0, b"b"), (4, 0, b"c")):
        body = framed(b"\0\0" + encode_varint(delta) + b"\x01\x02" + value + b"\0")
        lies = Lies(body=body, record_count=1)
        built.batch([], base_offset=base, last_offset=base or 2, lies=lies)
    columns = ColumnBuffers(frozenset({"offset", "value"}))
    columns.state[State.NEXT_OFFSET] = 3
    assert decode(kernel, built.to_bytes(), columns)[0] is Outcome.DONE
    assert unpacked(columns, "=2q", Buffer.OFFSET) == (3, 4)
    assert bytes(columns.buffers[Buffer.VALUE_DATA] or b"")[:2] == b"ac"


def framed(record: bytes) -> bytes:
    return encode_varint(len(record)) + record


def test_offsets_outside_the_wanted_range_are_dropped_and_the_end_is_told(kernel: Kernel) -> None:
    built = SegmentBuilder(0)
    for _ in range(4):
        built.batch([b"a", b"b", b"c"])
    columns = ColumnBuffers(frozenset({"offset"}))
    columns.state[State.NEXT_OFFSET], columns.state[State.STOP_OFFSET] = 4, 8
    outcome, _ = decode(kernel, built.to_bytes(), columns)
    assert outcome is Outcome.STOPPED
    assert unpacked(columns, "=4q", Buffer.OFFSET) == (4, 5, 6, 7)
    assert columns.state[State.DROPPED_RECORDS] == 2


def test_a_full_batch_goes_on_where_it_stopped(kernel: Kernel) -> None:
    data = SegmentBuilder(0).batch([b"%d" % i for i in range(25)], codec=Codec.ZSTD).to_bytes()
    columns = ColumnBuffers(frozenset({"offset"}), max_rows=10)
    table = batch_table()
    rows, _ = kernel.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    seen, decompressor = [], Decompressor()
    while True:
        outcome = kernel.decode_batches(columns, memoryview(data), 0, table, rows, False, decompressor)
        seen.append((outcome, columns.rows))
        columns.reset()
        if outcome == Outcome.DONE:
            break
    assert seen == [(Outcome.FULL, 10), (Outcome.FULL, 10), (Outcome.DONE, 5)]


def test_a_million_headers_take_memory_for_themselves_only(kernel: Kernel) -> None:
    count = 20_000
    headers = encode_varint(count) + b"\x02h\x01" * count
    body = b"\0\0\0\x01\x01" + headers
    body = encode_varint(len(body)) + body
    data = SegmentBuilder(0).batch([], lies=Lies(body=body, record_count=1)).to_bytes()
    outcome, columns = decode(kernel, data, ColumnBuffers(frozenset({"headers"})))
    assert outcome is Outcome.DONE
    assert columns.state[State.HEADERS] == columns.state[State.HEADER_VALUE_NULLS] == count
    assert len(columns.buffers[Buffer.HEADER_KEY_OFFSETS] or b"") < 16 * count


def header_keys(name: str, keys: list[bytes]) -> list[str]:
    """What a kernel makes of these header keys of one record."""
    headers = tuple((key.decode("utf-8", "surrogateescape"), None) for key in keys)
    data = SegmentBuilder(0).batch([ProducerRecord(b"v", headers=headers)]).to_bytes()
    (record,) = iter_records(data, Decompressor(), kernel=load_kernel(name))
    return [key for key, _ in record.headers]


@pytest.mark.parametrize("name", KERNELS)
def test_header_keys_of_any_bytes_are_read_as_java_reads_them(name: str) -> None:
    edges = bytes.fromhex("00417f808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5ff")
    short = [bytes(key) for size in (1, 2, 3) for key in product(edges, repeat=size)]
    long = [bytes(key) for key in product(b"\xe0\xed\xf0\xf1\xf4", *[b"\x41\x80\x8f\x90\x9f\xa0\xbf\xc0"] * 3)]
    assert header_keys(name, short + long) == [decode_java_utf8(key) for key in short + long]


def test_nothing_of_python_runs_while_native_code_writes_a_record() -> None:
    """What a signal handler raised there was lost, and a header key with it."""
    columns, called = ColumnBuffers(frozenset({"headers"})), list[str]()
    data = SegmentBuilder(0).batch([ProducerRecord(b"v", headers=(("ключ", b"x"), ("\udcff", b"y")))] * 3).to_bytes()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        outcome, _ = decode(load_kernel("native"), data, columns)
    finally:
        sys.setprofile(None)
    assert outcome is Outcome.DONE
    assert called
    assert "decode_java_utf8" not in called


def test_a_record_count_of_two_billion_allocates_nothing(kernel: Kernel) -> None:
    data = SegmentBuilder(0).batch([b"one"], lies=Lies(record_count=2**31 - 1)).to_bytes()
    outcome, columns = decode(kernel, data, ColumnBuffers(frozenset({"value"})))
    assert (outcome, columns.rows) == (Outcome.DAMAGED, 1)


@pytest.mark.parametrize("name", KERNELS)
def test_a_time_in_nanoseconds_is_refused_as_timestamp_and_kept_as_milliseconds(name: str) -> None:
    record = Record(0, 1_700_000_000_000_000_000, TimestampType.CREATE_TIME, None, b"v")
    data = SegmentBuilder(0).batch([record]).to_bytes()
    kernel = load_kernel(name)
    columns = ColumnBuffers(frozenset({"timestamp"}))
    table = batch_table()
    assert decode(kernel, data, columns)[0] is Outcome.DAMAGED
    kernel.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    assert isinstance(damage_error(columns.state, table), LimitExceededError)
    outcome, columns = decode(kernel, data, ColumnBuffers(frozenset({"timestamp_ms"})))
    assert outcome is Outcome.DONE
    assert unpacked(columns, "=q", Buffer.TIMESTAMP)[0] == record.timestamp_ms


@pytest.mark.parametrize("sign", [1, -1])
def test_the_first_and_the_last_time_of_a_timestamp_are_read_and_none_beyond(kernel: Kernel, sign: int) -> None:
    last = (2**63 - 1) // 1000
    for time, is_read in ((last, True), (last + 1, False), (2**60, False)):
        data = SegmentBuilder(0).batch([b"v"], lies=Lies(base_timestamp=sign * time)).to_bytes()
        outcome, columns = decode(kernel, data, ColumnBuffers(frozenset({"timestamp"})))
        assert outcome is (Outcome.DONE if is_read else Outcome.DAMAGED)
        assert columns.state[State.DAMAGE] == (0 if is_read else Damage.TIMESTAMP)
        assert not is_read or unpacked(columns, "=q", Buffer.TIMESTAMP) == (1000 * sign * time,)


def test_a_time_beyond_timestamps_of_a_record_that_is_not_wanted_is_no_damage(kernel: Kernel) -> None:
    records = [ProducerRecord(b"a", timestamp_ms=2**60), ProducerRecord(b"b", timestamp_ms=5)]
    columns = ColumnBuffers(frozenset({"timestamp"}))
    columns.state[State.NEXT_OFFSET] = 1
    assert decode(kernel, SegmentBuilder(0).batch(records).to_bytes(), columns)[0] is Outcome.DONE
    assert unpacked(columns, "=q", Buffer.TIMESTAMP) == (5000,)


@pytest.mark.parametrize("name", KERNELS)
def test_log_append_time_overrides_the_stored_deltas(name: str) -> None:
    data = SegmentBuilder(0).batch([b"a", b"b"], log_append_time_ms=1_700_000_005_000).to_bytes()
    records = list(iter_records(data, Decompressor(), kernel=load_kernel(name)))
    assert {(r.timestamp_ms, r.timestamp_type) for r in records} == {(1_700_000_005_000, TimestampType.LOG_APPEND_TIME)}


def test_sequences_wrap_as_in_java(kernel: Kernel) -> None:
    data = SegmentBuilder(0).batch([b"a", b"b", b"c"], producer_id=1, base_sequence=2**31 - 2).to_bytes()
    _, columns = decode(kernel, data, ColumnBuffers(frozenset({"sequence"})))
    assert unpacked(columns, "=3i", Buffer.SEQUENCE) == (2**31 - 2, 2**31 - 1, 0)


def test_columns_that_are_not_asked_for_have_no_buffers(kernel: Kernel) -> None:
    outcome, columns = decode(kernel, sample().to_bytes(), ColumnBuffers(frozenset({"offset"})))
    assert outcome is Outcome.DONE
    assert [Buffer(i) for i, buffer in enumerate(columns.buffers) if buffer is not None] == [Buffer.OFFSET]


def test_a_record_batch_is_closed_at_the_same_record_by_both() -> None:
    headers = (("name", b"datum" * 5),)
    records = [Record(one, 0, TimestampType.CREATE_TIME, b"key", bytes(one), headers) for one in range(60)]
    data, closed = SegmentBuilder(0).batch(records).to_bytes(), set()
    for names in ({"key"}, {"value"}, {"headers"}, {"key", "value", "headers"}):
        rows = set()
        for name in KERNELS:
            columns = ColumnBuffers(frozenset(names), max_bytes=150)
            assert decode(load_kernel(name), data, columns)[0] is Outcome.FULL
            rows.add(columns.rows)
        assert len(rows) == 1
        closed |= rows
    assert len(closed) == 4


def test_a_null_of_a_damaged_record_is_not_the_next_ones() -> None:
    def record(headers: str) -> bytes:
        body = bytes.fromhex("00 00 00 01 01" + headers)
        return encode_varint(len(body)) + body

    null, datum, cut = "02 02 68 01", "02 02 68 02 76", "04 02 68 01 02 68 7e"
    built = SegmentBuilder(0)
    for bodies in ((record(null), record(cut)), (record(datum), record(datum))):
        built.batch([], lies=Lies(body=b"".join(bodies), record_count=2, last_offset_delta=1))
    seen = []
    for name in KERNELS:
        kernel, table, view = load_kernel(name), batch_table(), memoryview(built.to_bytes())
        rows, _ = kernel.scan_batches(view, 0, 0, table, 1 << 30)
        columns = ColumnBuffers(frozenset({"headers"}))
        columns.state[State.CURSOR_MOVES] = 0
        assert kernel.decode_batches(columns, view, 0, table, rows, False, Decompressor()) == Outcome.DAMAGED
        columns.state[State.BATCH_ROW] += 1
        columns.state[State.RECORDS_LEFT] = -1
        assert kernel.decode_batches(columns, view, 0, table, rows, False, Decompressor()) == Outcome.DONE
        seen.append(image(columns)["HEADER_VALUE_VALIDITY"])
    assert seen[0] == seen[1] == [False, True, True]


def test_both_kernels_say_the_same_of_a_run() -> None:
    chance = random.Random(5)
    seen = set()
    for _ in range(2000):
        table, rows, offset = batch_table(8), chance.randrange(1, 9), chance.choice((0, 1 << 62))
        for row in range(rows):
            at = row * layout.TABLE_WIDTH
            offset += chance.choice((1, 1, 1, 1, 1, 1, 5, 0, -1))
            table[at + Table.BASE_OFFSET] = offset
            offset += chance.choice((0, 0, 3, 3, 3, 3, 3, -1))
            table[at + Table.LAST_OFFSET] = offset
            table[at + Table.MAGIC] = chance.choice((2, 2, 2, 2, 1))
            table[at + Table.ATTRIBUTES] = chance.choice((0, 0, 4, 8, 0x10, 0x30, -1))
            table[at + Table.LEADER_EPOCH] = chance.choice((7, 7, 7, 7, 8))
            table[at + Table.RECORD_COUNT] = chance.choice((1, 4, -1))
        reference, native = (load_kernel(name).summarise(table, rows) for name in KERNELS)
        assert reference == native
        seen.add((native.rises, native.leader_epoch == layout.MANY_EPOCHS))
    assert len(seen) == 4


@pytest.mark.parametrize("rows", [0, -1, 3])
def test_no_more_rows_are_summarised_than_a_table_has(rows: int) -> None:
    with pytest.raises(ValueError, match="too small"):
        load_kernel("native").summarise(batch_table(2), rows)


def test_a_table_that_does_not_describe_the_bytes_is_a_programming_error() -> None:
    native = load_kernel("native")
    data, table = sample().to_bytes(), batch_table()
    native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    columns = ColumnBuffers(frozenset({"offset"}))
    with pytest.raises(ValueError, match="does not describe"):
        native.decode_batches(columns, memoryview(data[:70]), 0, table, 1, False, Decompressor())
    assert len(data) > HEADER_SIZE


def test_a_buffer_comes_back_only_when_nobody_looks_at_it() -> None:
    pool = BufferPool()
    first = pool.lease(1000)
    assert pool.lease(1000) is not first
    view = memoryview(first)[:10]
    where = id(first)
    del first
    assert id(pool.lease(1000)) != where
    del view
    assert where in {id(pool.lease(1000)) for _ in range(1)} | {id(b) for b in [pool.lease(1000)]}


def test_a_lease_looks_at_few_of_the_buffers_that_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = BufferPool()
    held = [pool.lease(100 + 8 * (number % 2)) for number in range(1000)]
    looks: list[int] = []

    def look(buffer: object) -> int:
        looks.append(id(buffer))
        return 1000

    with monkeypatch.context() as counted:
        counted.setattr(layout, "getrefcount", look)
        held.append(pool.lease(100))
    assert 0 < len(looks) <= 32
    given_back = id(held.pop(0))
    held += [pool.lease(100) for _ in range(500)]
    assert given_back in map(id, held)


def test_of_large_buffers_an_idle_one_is_found_among_those_in_use() -> None:
    pool = BufferPool(max_bytes=64 << 20)
    held = [pool.lease(1 << 20) for _ in range(24)]
    given_back = id(held.pop(20))
    assert id(pool.lease(1 << 20)) == given_back


def test_a_pool_keeps_no_more_than_its_limit() -> None:
    pool = BufferPool(max_bytes=10_000)
    held = [pool.lease(4000) for _ in range(5)]
    assert 0 < pool.held_bytes <= 10_000
    assert len(held) == 5
