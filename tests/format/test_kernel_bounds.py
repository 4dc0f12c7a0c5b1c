"""Both kernels at the bounds of what a batch's header, a table and a state may say."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from framings import snappy_raw

from segreader.format import native_codecs
from segreader.format.columns import TABLE_WIDTH, ColumnBuffers, Decision, Outcome, State, Table, batch_table
from segreader.format.compression import Codec, Decompressor
from segreader.format.kernel import load_kernel
from segreader.testing.batches import Lies
from segreader.testing.builder import SegmentBuilder

native: Any = pytest.importorskip("segreader.format._kernel")
reference: Any = load_kernel("reference")
KERNELS = [reference, native]
both = pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "native"])


def common(offset: int, size: int, magic: int) -> bytes:
    """The fields that every magic has, and other bytes behind them."""
    return struct.pack(">qiib", offset, size, 0x01020304, magic) + bytes(range(50, 250))


LAST = (1 << 63) - 1 - (1 << 31)
HEADERS = [
    *product((0, 7, -1, LAST, LAST + 1), (100,), (0, 1, 2)),
    *product((7,), (13, 14, 21, 22, 48, 49, 50, -1), (-1, 0, 1, 2, 3)),
]


@pytest.mark.parametrize(("offset", "size", "magic"), HEADERS)
def test_the_same_headers_are_possible(offset: int, size: int, magic: int) -> None:
    data = common(offset, size, magic)
    for cut in (16, 17, 18, size + 11, size + 12, len(data)):
        for max_size in (size + 11, size + 12, 1 << 30):
            seen = []
            for kernel in KERNELS:
                table = array("q", [-7] * TABLE_WIDTH)
                seen.append((kernel.scan_batches(memoryview(data)[: max(cut, 0)], 0, 5, table, max_size), list(table)))
            assert seen[0] == seen[1], (cut, max_size)


def varied() -> SegmentBuilder:
    """Batches of each kind that the position can pass over."""
    built = SegmentBuilder(0).batch([b"a"] * 3).batch([b"b"] * 2, codec=Codec.LZ4)
    built.batch([], base_offset=5, last_offset=6, lies=Lies(body=b"what is not read", record_count=0))
    built.batch([b"c"], base_offset=7, last_offset=9).batch([b"d"] * 3, codec=Codec.SNAPPY).batch([b"e"] * 2)
    return built.batch([], base_offset=15, last_offset=16, lies=Lies(body=b"", record_count=0))


def runs(
    kernel: Any, data: bytes, change: Callable[[Any], None] = lambda _: None, **state: int
) -> Iterator[tuple[int, list[int], bytes]]:
    """What comes of each call until the run is done: outcome, state and values."""
    columns, table, decompressor = (
        ColumnBuffers(frozenset({"value", "offset"}), max_rows=4),
        batch_table(),
        Decompressor(),
    )
    rows, _ = kernel.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    change(table)
    for name, value in state.items():
        columns.state[State[name]] = value
    outcome: int = Outcome.FULL
    while outcome == Outcome.FULL:
        outcome = kernel.decode_batches(columns, memoryview(data), 0, table, rows, True, decompressor)
        values = bytes((columns.buffers[7] or b"")[: columns.state[State.VALUE_BYTES]])
        yield outcome, list(columns.state), values
        columns.reset()


@pytest.mark.parametrize("decision", [None, Decision.SKIP, Decision.DROP])
@pytest.mark.parametrize("row", range(7))
def test_the_position_passes_over_the_same_batches(row: int, decision: Decision | None) -> None:
    data = varied().to_bytes()

    def decide(table: Any) -> None:
        if decision is not None:
            table[row * TABLE_WIDTH + Table.DECISION] = decision

    for position, stop in product(range(18) if decision is None else (0, 4, 8, 12, 16), (row * 2 + 1, 1 << 62)):
        for moves in (0, 1):
            state = {"NEXT_OFFSET": position, "STOP_OFFSET": stop, "CURSOR_MOVES": moves}
            assert [*runs(reference, data, decide, **state)] == [*runs(native, data, decide, **state)], state


@both
def test_the_last_batch_is_looked_into_where_the_position_is_behind_it(kernel: Any) -> None:
    ((outcome, state, _),) = runs(kernel, SegmentBuilder(0).batch([b"a"] * 3).to_bytes(), NEXT_OFFSET=5)
    assert (outcome, state[State.DECODED_BATCHES]) == (Outcome.DONE, 1)


@both
def test_a_batch_that_is_dropped_is_not_looked_at_and_one_that_is_left_out_is_checked(kernel: Any) -> None:
    built = SegmentBuilder(0).batch([b"a"], lies=Lies(crc=7)).batch([b"b"])
    for decision, outcome in ((Decision.DROP, Outcome.DONE), (Decision.SKIP, Outcome.DAMAGED)):

        def decide(table: Any, decision: Decision = decision) -> None:
            table[Table.DECISION] = decision

        assert [found for found, _, _ in runs(kernel, built.to_bytes(), decide)] == [outcome]


@both
def test_a_wrong_checksum_is_damage_where_checksums_are_checked(kernel: Any) -> None:
    data = SegmentBuilder(0).batch([b"a"], lies=Lies(crc=7)).to_bytes()
    for check, outcome in ((True, Outcome.DAMAGED), (False, Outcome.DONE)):
        columns, table = ColumnBuffers(frozenset({"value"})), batch_table()
        kernel.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
        assert kernel.decode_batches(columns, memoryview(data), 0, table, 1, check, Decompressor()) == outcome


@both
@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_of_messages_is_told(kernel: Any, magic: int) -> None:
    assert [outcome for outcome, _, _ in runs(kernel, common(7, 100, magic))] == [Outcome.LEGACY]


@both
def test_a_batch_that_was_begun_is_read_on_whatever_is_decided_then(kernel: Any) -> None:
    data = SegmentBuilder(0).batch([b"a"] * 9).batch([b"b"]).to_bytes()
    columns, table, decompressor = ColumnBuffers(frozenset({"value"}), max_rows=4), batch_table(), Decompressor()
    kernel.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    assert kernel.decode_batches(columns, memoryview(data), 0, table, 2, True, decompressor) == Outcome.FULL
    columns.reset()
    table[Table.DECISION] = Decision.DROP
    assert kernel.decode_batches(columns, memoryview(data), 0, table, 2, True, decompressor) == Outcome.FULL
    assert columns.rows == 4


@pytest.mark.parametrize("left", [-1, 0])
def test_where_nothing_is_left_of_a_body_it_need_not_be_there(left: int) -> None:
    """Another has taken its place; and the next batch is left out, with no body of its own."""
    data = SegmentBuilder(0).batch([b"a"] * 9, codec=Codec.LZ4).batch([b"b"]).batch([b"c"]).to_bytes()
    first, second = (ColumnBuffers(frozenset({"value"}), max_rows=4) for _ in range(2))
    table, decompressor = batch_table(), Decompressor()
    native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    for columns in (first, second):
        assert native.decode_batches(columns, memoryview(data), 0, table, 1, True, decompressor) == Outcome.FULL
    first.reset()
    first.state[State.BATCH_ROW], first.state[State.RECORDS_LEFT] = 1, left
    table[TABLE_WIDTH + Table.DECISION] = Decision.SKIP
    assert native.decode_batches(first, memoryview(data), 0, table, 3, True, decompressor) == Outcome.DONE
    assert bytes((first.buffers[7] or b"")[: first.state[State.VALUE_BYTES]]) == b"c"


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_run_that_is_done_holds_nothing_of_the_segment(codec: Codec) -> None:
    data, table = SegmentBuilder(0).batch([b"a"] * 3, codec=codec).to_bytes(), batch_table(1)
    columns, decompressor = ColumnBuffers(frozenset({"value"})), Decompressor()
    native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    assert native.decode_batches(columns, memoryview(data), 0, table, 0, True, decompressor) == Outcome.DONE
    assert native.decode_batches(columns, memoryview(data), 0, table, 1, True, decompressor) == Outcome.DONE
    assert (columns.rows, columns.body) == (3, b"")


@pytest.mark.parametrize(
    ("counter", "value"),
    [(State.BATCH_ROW, -1), (State.BODY_POSITION, -1), (State.BODY_POSITION, 1 << 40), (State.BODY_POSITION, 40)],
)
def test_a_state_that_does_not_describe_the_bytes_is_refused(counter: State, value: int) -> None:
    data, table = SegmentBuilder(0).batch([b"a"] * 3).to_bytes(), batch_table(3)
    columns, decompressor = ColumnBuffers(frozenset({"value"}), max_rows=2), Decompressor()
    native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    assert native.decode_batches(columns, memoryview(data), 0, table, 1, True, decompressor) == Outcome.FULL
    columns.reset()
    columns.state[counter] = value
    with pytest.raises(ValueError, match="does not describe"):
        native.decode_batches(columns, memoryview(data), 0, table, 1, True, decompressor)


@pytest.mark.parametrize(("states", "times", "buffers"), [(26, 3, 22), (27, 2, 22), (27, 3, 21), (27, 3, 23)])
def test_arrays_that_are_too_small_are_refused(states: int, times: int, buffers: int) -> None:
    columns = ColumnBuffers(frozenset({"value"}))
    lists = (columns.state[:states], columns.spent[:times], [*columns.buffers, None][:buffers])
    small = SimpleNamespace(**dict(zip(("state", "spent", "buffers"), lists, strict=True)), body=b"")
    with pytest.raises(ValueError, match=r"too small|not the buffers"):
        native.decode_batches(small, memoryview(b""), 0, batch_table(1), 0, True, Decompressor())


def test_who_decodes_while_a_body_is_decompressed_gets_codecs_of_its_own() -> None:
    data = SegmentBuilder(0).batch([b"a"] * 3, codec=Codec.GZIP).to_bytes()
    decompressor, table, seen = Decompressor(), batch_table(), list[object]()
    native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    decompressor.codecs = native.Codecs(1 << 20, lambda _: None)
    whole = Decompressor.decompress

    def again(codec: int, body: bytes) -> object:
        if not seen:
            seen.append(decompressor.codecs)
            inner = ColumnBuffers(frozenset({"value"}))
            assert native.decode_batches(inner, memoryview(data), 0, table, 1, True, decompressor) == Outcome.DONE
            seen.append(decompressor.codecs)
        return whole(decompressor, codec, body)

    decompressor.decompress = again  # type: ignore[assignment, method-assign]
    columns = ColumnBuffers(frozenset({"value"}))
    assert native.decode_batches(columns, memoryview(data), 0, table, 1, True, decompressor) == Outcome.DONE
    assert seen[0] is not seen[1]


def test_a_codec_is_looked_up_once_and_an_unknown_one_is_not_used() -> None:
    asked: list[int] = []

    def find(codec: int) -> tuple[int, ...] | None:
        asked.append(codec)
        return native_codecs.find(codec) if codec == Codec.SNAPPY else ()

    codecs = native.Codecs(1 << 20, find)
    assert [codecs.decompress(5, b"x") for _ in range(2)] == [None, None]
    assert (codecs.capacity, asked) == (0, [5])
    assert [codecs.decompress(Codec.SNAPPY, snappy_raw(b"x")) for _ in range(2)] == [b"x", b"x"]
    assert asked == [5, Codec.SNAPPY]
