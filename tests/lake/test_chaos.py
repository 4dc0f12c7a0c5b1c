"""Killed backfills into every kind of target, as they begin and as they go on: each record once in the end.

``make chaos`` runs very many, with seeds that nobody chose; ``CHAOS_SEED=N`` runs one again.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import SystemRandom
from typing import NoReturn

import pytest
from growing_bucket import GrowingBucket
from lake_chaos import LakeChaos, chosen, require_clean, require_exact
from lake_targets import Target

from segreader.storage.target.names import unfinished_name
from spark_jobs.backfill import main


def seeds() -> list[int]:
    """What is run: each kind of victim with each kind of target as often as the others."""
    if (one := os.environ.get("CHAOS_SEED")) is not None:
        return [int(one)]
    if (many := os.environ.get("CHAOS")) is not None:
        return [9 * SystemRandom().getrandbits(24) + number % 9 for number in range(int(many))]
    return list(range(18))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", seeds())
def test_a_target_whose_runs_are_killed_at_random_has_each_record_once(tmp_path: Path, seed: int) -> None:
    chaos = LakeChaos(chosen(seed), tmp_path)
    chaos.torment()
    print(f"seed {seed}: {chaos.job}, {chaos.killed} killed")

    assert chaos.killed >= 1


STEPS = [
    *((kind, f"job.{step}") for kind in ("delta", "iceberg") for step in ("complete", "put_manifest")),
    *((kind, f"job.{step}") for kind in ("delta", "iceberg") for step in ("_remove_orphans", "forget_unfinished")),
    *(("parquet", f"commit.{step}") for step in ("complete", "put_manifest", "orphans", "forget_unfinished")),
]


@pytest.mark.parametrize(("kind", "dies_in"), STEPS)
def test_a_driver_that_dies_behind_its_last_split_leaves_nothing_that_the_next_one_does_not_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, dies_in: str
) -> None:
    bucket, target = GrowingBucket(tmp_path / "bucket", "codec-zstd"), Target(kind, tmp_path / "target")
    flags = ["--location", str(bucket.root), "--topic", "codec-zstd", *target.flags, "--engine", "local"]
    for segments in (1, 9):  # it is the first round, then one that goes on
        bucket.upload(segments)
        with monkeypatch.context() as patch:
            patch.setattr(f"segreader.backfill.{dies_in}", killed)
            assert main([*flags, "--continue"]) == 130
        written = sorted(target.files.rglob("part-*.parquet"), key=lambda path: path.name)[-1]
        token = written.name.split("-")[4]
        orphan = written.with_name(written.name.replace(token, "0" * 12))  # as of an attempt that was killed
        for name in (orphan.name, unfinished_name(orphan.name)):
            written.with_name(name).write_bytes(b"PAR1")

        assert main([*flags, "--continue"]) == 0
        require_clean(target)
        require_exact(target, bucket, ["codec-zstd"])


def killed(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt
