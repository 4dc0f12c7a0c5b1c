from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_programs import AvroParts, JsonParts, Part, damaged
from random_protobuf import ProtobufParts
from twins import NATIVE, assert_twins_agree, rows_of, run_reference

from segreader.typed.ops import Program

pytestmark = pytest.mark.skipif(NATIVE is None, reason="segreader.typed._values is not built")

Draw = Callable[[], bytes]
FIRST_SEED = int(os.environ.get("SEGREADER_TWINS_SEED", "0"))
PROGRAMS = int(os.environ.get("SEGREADER_TWINS_PROGRAMS", "150"))
"""How many random programs each loop tries, and from which seed on: a search at large sets both."""


def avro(random: Random) -> tuple[Program, Draw]:
    return drawn(AvroParts(random).record(random.randrange(2, 5)))


def protobuf(random: Random) -> tuple[Program, Draw]:
    case = ProtobufParts(random, drops=True).case(random.randrange(1, 4))
    return case.program, case.draw


def json(random: Random) -> tuple[Program, Draw]:
    return drawn(JsonParts(random, wrong=0.1).document(random.randrange(1, 5)))


def drawn(part: Part) -> tuple[Program, Draw]:
    return part.program(), lambda: part.draw().data


FORMATS = {"avro": avro, "protobuf": protobuf, "json": json}


def check(format_: str, random: Random, rows: int) -> None:
    """Rows of values as they should be, as they are after a fault, and of any bytes."""
    program, draw = FORMATS[format_](random)
    payloads: list[bytes | None] = []
    for _ in range(rows):
        fate = random.random()
        payload = random.randbytes(random.randrange(12)) if fate < 0.05 else draw()
        payloads.append(None if fate > 0.95 else damaged(random, payload) if fate < 0.6 else payload)
    found = rows_of(payloads, between=random.choice((b"", b"\0", b"\xff\x02\x02\x02")))

    for stop_at_first in (False, True):
        executed = run_reference(program, found, stop_at_first=stop_at_first)
        assert_twins_agree(program, found, executed, stop_at_first=stop_at_first)


@pytest.mark.parametrize("format_", FORMATS)
def test_both_executors_give_the_same_values_and_errors(format_: str) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + PROGRAMS):
        try:
            check(format_, Random(seed), 20)
        except Exception as error:
            error.add_note(f"{format_}, seed {seed}")
            raise


@settings(max_examples=tries(200))
@given(format_=st.sampled_from(sorted(FORMATS)), seed=st.integers(0, 2**64))
def test_both_executors_give_the_same_values_for_other_seeds(format_: str, seed: int) -> None:
    check(format_, Random(seed), 5)


@pytest.mark.parametrize("format_", FORMATS)
def test_both_executors_give_the_same_columns_where_buffers_grow(format_: str) -> None:
    for seed in range(3):
        check(format_, Random(seed), 1500)
