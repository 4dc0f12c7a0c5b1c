"""A run that its summary calls sound is one in which no look at each batch finds anything."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import cast

from segreader.format.columns import TABLE_WIDTH, Table, batch_table
from segreader.format.kernel import load_kernel
from segreader.format.scanner import BatchRun
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.read.batch_order import (
    Jumps,
    begins_late,
    beside_timed,
    beyond,
    is_sound,
    of_other_epochs,
    out_of_order,
)

REACH = (1 << 31) - 1


def random_split(chance: random.Random) -> Split:
    first = chance.choice((100, 100, 103, 108))
    facts = {
        "positions": ByteRange(chance.choice((0, 50)), 1000),
        "offsets": OffsetRange(first, chance.choice((None, 115, 140))),
        "base_offset": chance.choice((100, 100, 100, 100 - REACH, 110 - REACH)),
        "first_bound": chance.choice((None, None, 100, 101, 105)),
        "offset_index": chance.choice((None, "index")),
        "log": "log",
        "stop_of_part": chance.choice((None, 110, 120, 121, 200)),
        "timed": chance.choice((None, None, 99, 104, 110, 119, 130)),
        "epochs": chance.choice(((), ((7, 0),), ((7, 0),), ((7, 0), (8, 108)), ((6, 0), (7, 95), (8, 119)))),
    }
    return cast(Split, SimpleNamespace(**facts))


def random_run(chance: random.Random) -> BatchRun:
    table, rows, offset = batch_table(8), chance.randrange(1, 7), 99
    for row in range(rows):
        at = row * TABLE_WIDTH
        table[at + Table.POSITION] = 50 * row + chance.choice((0, 50))
        table[at + Table.SIZE] = 50
        offset += chance.choice((1,) * 12 + (3, 0))
        table[at + Table.BASE_OFFSET] = offset
        offset += chance.choice((0, 3, 3, 4, 4, 4))
        table[at + Table.LAST_OFFSET] = offset
        table[at + Table.MAGIC] = chance.choice((2,) * 20 + (1,))
        table[at + Table.LEADER_EPOCH] = chance.choice((7,) * 20 + (8, -1))
        table[at + Table.RECORD_COUNT] = offset - table[at + Table.BASE_OFFSET] + chance.choice((1,) * 12 + (0,))
    return BatchRun(memoryview(bytes(1000)), 0, table, rows)


def test_a_run_that_is_called_sound_is_sound_batch_by_batch() -> None:
    chance, sound, jumps_none = random.Random(17), 0, 0
    for _ in range(20_000):
        split, run = random_split(chance), random_run(chance)
        before, after = chance.choice((99, 99, 99, 98, 100, 104)), chance.choice((None, 120, 130, 200))
        summary = load_kernel().summarise(run.table, run.rows)
        bases = run.table[Table.BASE_OFFSET : run.rows * TABLE_WIDTH : TABLE_WIDTH]
        lasts = run.table[Table.LAST_OFFSET : run.rows * TABLE_WIDTH : TABLE_WIDTH]
        behind = [] if after is None else [after]
        found = [
            begins_late(split, run, lasts, before, str, is_whole=False),
            *out_of_order([*bases, *behind], [*lasts, *behind], before),
            *beyond(split, bases, lasts, before),
            *of_other_epochs(split, run),
            *beside_timed(split, run, lasts, before),
        ]
        if is_sound(split, run, summary, before, after):
            sound += 1
            assert found == [None]
            jumps = Jumps()
            if jumps.follow_sound(split, summary, before):
                jumps_none += 1
                jumps.follow(split, run, bases, lasts, before)
                assert not jumps.is_explained
                assert jumps.note("log") is None
    assert sound > 1000
    assert jumps_none > 200
