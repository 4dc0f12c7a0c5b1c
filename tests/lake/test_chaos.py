"""Killed backfills into every kind of target, as they begin and as they go on: each record once in the end.

``make chaos`` runs very many, with seeds that nobody chose; ``CHAOS_SEED=N`` runs one again.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import SystemRandom

import pytest
from lake_chaos import LakeChaos, chosen


def seeds() -> list[int]:
    """What is run: each kind of victim with each kind of target as often as the others."""
    if (one := os.environ.get("CHAOS_SEED")) is not None:
        return [int(one)]
    if (many := os.environ.get("CHAOS")) is not None:
        return [9 * SystemRandom().getrandbits(24) + number % 9 for number in range(int(many))]
    return list(range(30))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", seeds())
def test_a_target_whose_runs_are_killed_at_random_has_each_record_once(tmp_path: Path, seed: int) -> None:
    chaos = LakeChaos(chosen(seed), tmp_path)
    chaos.torment()
    print(f"seed {seed}: {chaos.job}, {chaos.killed} killed")

    assert chaos.killed >= 1
