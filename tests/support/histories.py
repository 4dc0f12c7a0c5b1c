"""Random histories of a partition: what may happen to it, as Hypothesis strategies, and how it is played.

``SEGREADER_EXAMPLES=15000`` makes every property that uses ``examples`` run that many, other ones each time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from hypothesis import Phase, settings
from hypothesis import strategies as st
from profiles import tries
from simulator import SimulatedPartition

import segreader
from segreader.format.batch import Record

Event = tuple[str, tuple[int, ...]]
"""A verb of ``SimulatedPartition`` and its arguments."""

PLAIN, IDEMPOTENT, TV1, TV2, WORN_OUT = range(5)
"""The simulated producers; the last one soon has no epoch left."""

KERNELS = ["native", "reference"]
SPLITS = [1, 500, 1 << 30]
WANTED = os.environ.get("SEGREADER_EXAMPLES")


def examples(count: int) -> settings:
    """Few examples, always the same; or many others, made small where they fail, which takes minutes."""
    phases = [Phase.generate, Phase.shrink] if WANTED else [Phase.generate]
    return settings(
        max_examples=int(WANTED or tries(count)),
        derandomize=WANTED is None,
        deadline=None,
        database=None,
        phases=phases,
    )


def event(name: str, *arguments: st.SearchStrategy[int]) -> st.SearchStrategy[Event]:
    return st.tuples(st.just(name), st.tuples(*arguments))


def numbers(first: int, last: int) -> st.SearchStrategy[int]:
    return st.integers(first, last)


ROLL = event("roll")
DATA = event(
    "append", numbers(PLAIN, WORN_OUT), numbers(1, 3), st.sampled_from([0, 0, 1, 3, 4]), st.sampled_from([1, 1, 0])
)
MARKER = event("finish", numbers(TV1, WORN_OUT), numbers(0, 1), st.sampled_from([0, 0, 0, 1]))
UPLOAD = event("upload", numbers(1, 4))
ORDINARY = [ROLL, DATA, DATA, DATA, DATA, MARKER, MARKER, MARKER, ROLL, UPLOAD]

FAILED_UPLOAD = event("fail_upload", numbers(1, 5))
UNTOLD_UPLOAD = event("fail_upload", numbers(6, 6))
RETENTION = event("expire", numbers(1, 3), numbers(0, 5))
DELETE_RECORDS = event("delete_records", numbers(0, 50))
TROUBLE = [UNTOLD_UPLOAD, RETENTION, DELETE_RECORDS]

ELECTION = event("elect", numbers(0, 4), numbers(0, 3))
UNCLEAN_ELECTION = event("elect_unclean", numbers(1, 20), numbers(0, 4), numbers(0, 3))
ELECTIONS = [ELECTION, UNCLEAN_ELECTION, UNCLEAN_ELECTION, ROLL, UPLOAD]


@st.composite
def histories(draw: st.DrawFn, *kinds: st.SearchStrategy[Event]) -> list[Event]:
    """What happens to a partition; in half of them every transaction ends at last, and what can be is uploaded."""
    events = draw(st.lists(st.sampled_from(kinds).flatmap(lambda kind: kind), min_size=25, max_size=90))
    if draw(st.booleans()):
        events += [("finish", (producer, draw(numbers(0, 1)), 0)) for producer in (TV1, TV2, WORN_OUT)]
        events += [("roll", ()), ("upload", (90,))]
    return events


def play(events: Sequence[Event]) -> SimulatedPartition:
    partition = SimulatedPartition()
    for name, arguments in events:
        getattr(partition, name)(*arguments)
    return partition


def seen(records: Sequence[Record] | Sequence[segreader.ConsumerRecord]) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records]
