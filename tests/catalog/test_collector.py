from __future__ import annotations

import gc
import weakref
from contextlib import ExitStack

import pytest

from segreader.catalog.collector import collector_at_rest, only_young_collected


def test_the_collector_rests_inside_and_runs_afterwards_even_after_an_error() -> None:
    with pytest.raises(ValueError, match="x"), collector_at_rest():
        assert not gc.isenabled()
        with collector_at_rest():
            pass
        assert not gc.isenabled()
        raise ValueError("x")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_at_rest():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


class _Cycle:
    """Something that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


def test_inside_a_plan_only_what_is_young_is_collected_and_afterwards_all_is() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="x"), only_young_collected():
        full, dead = gc.get_stats()[2]["collections"], weakref.ref(_Cycle())
        lasting = [[one] for one in range(100_000)]
        assert dead() is None
        assert gc.get_stats()[2]["collections"] == full
        raise ValueError("x")
    assert len(lasting) == 100_000
    assert gc.get_threshold() == before


def test_of_two_plans_at_once_the_collector_runs_as_before_when_both_are_made() -> None:
    before = gc.get_threshold()
    with only_young_collected(), ExitStack() as second:
        second.enter_context(only_young_collected())
        both = second.pop_all()
    both.close()
    assert gc.get_threshold() == before
