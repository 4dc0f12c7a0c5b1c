"""What `make test` leaves out of the corpus: never a shape of log, never most of what decides transactions."""

from __future__ import annotations

import pytest
from corpus import cases
from sample import DISTINCT, PRESENT, at_edges, every, is_edge, is_first_of_its_topic, sampled

EDGES = [case for case in cases() if is_edge(case)]


def test_edges_are_named_after_topics_of_the_corpus() -> None:
    assert {case.topic for case in cases()} >= PRESENT | DISTINCT
    assert {case.topic for case in EDGES} == PRESENT | DISTINCT


def test_edges_have_every_set_and_most_of_what_decides_transactions() -> None:
    assert {case.set_name for case in EDGES} == {case.set_name for case in cases()}
    decide = [case for case in EDGES if any(word in case.topic for word in ("txn", "epochs", "diverged"))]
    assert len(decide) >= 25
    first = [case for case in cases() if is_first_of_its_topic(case)]
    assert {case.topic for case in first if case.topic.startswith(("txn", "diverged", "magic", "odd"))} <= {
        case.topic for case in EDGES
    } | {"magic1"}


def test_nothing_is_dropped_and_the_rest_is_marked() -> None:
    for some in (at_edges(cases()), every(3, cases()), sampled(cases(), lambda _: False)):
        values = [one.values[0] if isinstance(one, type(pytest.param())) else one for one in some]
        assert values == cases()
    marked = [one for one in at_edges(cases()) if isinstance(one, type(pytest.param()))]
    assert {mark.name for one in marked for mark in one.marks} == {"exhaustive"}
    assert len(marked) == len(cases()) - len(EDGES)
