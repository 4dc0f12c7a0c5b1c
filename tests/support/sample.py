"""What `make test` runs of a long list of parameters; `make test-rest` runs the others.

The choice is by name, never by chance: a test that `make test` leaves out carries the mark ``exhaustive``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from corpus import Case, cases

T = TypeVar("T")

PRESENT = frozenset({"txn-interleaved", "txn-marker-active", "diverged-txn", "epochs-txn"})
"""Topics whose cases are edges in every set that has them."""
DISTINCT = frozenset(
    {
        "compacted-then-tiered",
        "delete-records",
        "diverged",
        "diverged-hanging",
        "diverged-mid",
        "epochs",
        "large",
        "magic-mixed",
        "magic0",
        "magic1-append",
        "moved",
        "multi",
        "nulls",
        "odd-batches",
        "odd-offsets",
        "recreated",
        "retention",
        "second-key",
        "small-many",
        "ts-append",
        "txn-abort",
        "txn-commit",
        "txn-empty",
        "txn-fenced",
        "txn-open",
        "txn-span",
        "txn-timeout",
    }
)
"""Topics of which the case of one set is an edge: the other sets hold the same records, written by another version."""


def exhaustive(*values: Any) -> Any:
    """One set of parameters that only `make test-rest` runs."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)


def sampled(values: Iterable[T], keep: Callable[[T], bool]) -> list[Any]:
    """All of them, in order; those that ``keep`` is false for are ``exhaustive``."""
    return [value if keep(value) else _marked(value) for value in values]


def every(number: int, values: Iterable[T]) -> list[Any]:
    """All of them, in order; `make test` runs the first and every ``number``-th from there."""
    return [value if not at % number else _marked(value) for at, value in enumerate(values)]


def at_edges(chosen: Iterable[Case]) -> list[Any]:
    """Cases for ``parametrize(…, ids=str)``; `make test` runs those that decide something which others do not."""
    return sampled(chosen, is_edge)


def is_edge(case: Case) -> bool:
    """Whether the case decides something: transactions, histories that part, holes, odd offsets, old formats."""
    return case.topic in PRESENT or (case.topic in DISTINCT and case == _first_of(case.topic))


def at_each_edge_once(chosen: Iterable[Case]) -> list[Any]:
    """As ``at_edges``, for dear tests: `make test` runs those of ``edges_once``."""
    values = list(chosen)
    return sampled(values, edges_once(values).__contains__)


def edges_once(chosen: Iterable[Case]) -> list[Case]:
    """The edges among them without those whose topic and whose set both came before."""
    kept: list[Case] = []
    for case in filter(is_edge, chosen):
        if all(case.topic != one.topic for one in kept) or all(case.set_name != one.set_name for one in kept):
            kept.append(case)
    return kept


def is_first_of_its_topic(case: Case) -> bool:
    """Whether no set before has the topic: one case of each shape."""
    return case == _first_of(case.topic)


def _first_of(topic: str) -> Case:
    return next(case for case in cases() if case.topic == topic)


def _marked(value: Any) -> Any:
    return exhaustive(*value) if isinstance(value, tuple) else exhaustive(value)
