from __future__ import annotations

import gc

import pytest

from segreader.catalog.collector import collector_at_rest


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
