"""Killed backfills. ``make chaos`` runs very many, with seeds that nobody chose; ``CHAOS_SEED=N`` runs one again.

On a cluster a driver, an executor, a Python worker or a task is the victim; without Spark a driver dies at any of its
calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from chaos import DONE, Backfill, chosen, prove, torment
from sample import every
from spark_chaos import SparkChaos, leftovers, spark_chaos
from spark_chaos_lake import SparkLakeChaos, chosen_on_cluster
from spark_chaos_plan import VICTIMS, SparkBackfill, chosen_for_spark

from segreader.backfill.output import OutputOptions

TOPICS = ("multi", "txn-interleaved")


def seeds(kinds: int = 8, few: int = 16) -> list[int]:
    """What is run: each kind of victim as often as the others, with speculation on in every second four.

    Args:
        kinds: how many seeds in a row have each of what there is.
        few: how many are run where nobody asks for many.
    """
    if (one := os.environ.get("CHAOS_SEED")) is not None:
        return [int(one)]
    if (many := os.environ.get("CHAOS")) is not None:
        return [kinds * SystemRandom().getrandbits(29) + number % kinds for number in range(int(many))]
    return list(range(few))


def by_speculation(seed: int) -> bool:
    """An order in which a driver with other settings is started once."""
    return chosen_for_spark(seed).has_speculation


SEEDS = sorted(seeds(), key=by_speculation)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkChaos]:
    """Two workers, and a driver that lives until it is killed; what was killed is told in the end."""
    with spark_chaos(tmp_path_factory.mktemp("chaos") / "cluster") as chaos:
        yield chaos
    capture: Any = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{chaos.tally}")


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.xdist_group("spark-chaos")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_backfill_on_a_cluster_that_is_struck_at_random_ends_exact(
    tmp_path: Path, cluster: SparkChaos, seed: int
) -> None:
    job = chosen_for_spark(seed)
    out, tally = cluster.torment(job, tmp_path)
    print(f"seed {seed}: {tally}")

    assert tally.hits[VICTIMS[seed % len(VICTIMS)]] >= 1
    require_exact(cluster, out, job)


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.xdist_group("spark-chaos")
@pytest.mark.parametrize("seed", seeds(kinds=18, few=9))
def test_a_target_whose_rounds_on_a_cluster_are_struck_at_random_has_each_record_once(
    tmp_path: Path, cluster: SparkChaos, seed: int
) -> None:
    chaos = SparkLakeChaos(chosen_on_cluster(seed), tmp_path, cluster)
    chaos.torment(phases=2)
    print(f"seed {seed}: {chaos.job}, {chaos.killed} killed")

    assert chaos.killed >= 1


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.xdist_group("spark-chaos")
def test_a_split_that_speculation_does_twice_is_there_once(tmp_path: Path, cluster: SparkChaos) -> None:
    job = SparkBackfill(0, TOPICS, "committed", ("--split-bytes", "20000"), True, True)
    driver = cluster.driver(has_speculation=True)
    for out in outputs(tmp_path):
        told = driver.answer(driver.ask(program="backfill", arguments=job.arguments(out)))
        assert told is not None
        assert told["code"] == 0, cluster.told
        if (copies := told["copies"]) >= 1:
            break

    assert copies >= 1
    require_exact(cluster, out, job)


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.xdist_group("spark-chaos")
def test_two_drivers_at_once_on_a_cluster_end_in_one_output(tmp_path: Path, cluster: SparkChaos) -> None:
    job = SparkBackfill(0, TOPICS, "committed", ("--split-bytes", "20000"), False, True)
    with cluster.another_driver() as other:
        drivers = cluster.driver(has_speculation=False), other
        for out in outputs(tmp_path):
            runs = [driver.ask(program="backfill", arguments=job.arguments(out)) for driver in drivers]
            told = [driver.answer(run) for driver, run in zip(drivers, runs, strict=True)]
            assert [one and one["code"] for one in told] == [0, 0], cluster.told
            if all(one["ended"].get("SUCCESS") for one in told if one):
                break

    assert all(one["ended"].get("SUCCESS") for one in told if one), "one of them had nothing to do"
    require_exact(cluster, out, job)


def outputs(directory: Path) -> list[Path]:
    """Places for three attempts: where a machine is busy, what is to come in time may come too late now and then."""
    return [directory / f"out-{number}" for number in range(3)]


def require_exact(cluster: SparkChaos, out: Path, job: SparkBackfill) -> None:
    """The job's own check and that of the tests find an output exact; another run leaves nothing else there."""
    found = cluster.verify(out, with_spark=job.is_verified_by_spark)
    assert found["is_exact"], found["findings"]
    prove(out, job.topics, job.isolation, is_quiet=False)

    cluster.run_again(job, out)
    assert leftovers(out) == []
    prove(out, job.topics, job.isolation)


@pytest.mark.parametrize("seed", every(10, seeds()))
def test_a_backfill_whose_drivers_die_at_random_calls_ends_exact(tmp_path: Path, seed: int) -> None:
    job = chosen(seed, tmp_path / "out")
    assert torment(job) >= 1
    prove(job.out, job.topics, job.isolation)


@pytest.mark.parametrize("has_moves", [True, False])
def test_two_drivers_at_once_end_in_one_output(tmp_path: Path, has_moves: bool) -> None:
    out = tmp_path / "out"
    job = Backfill(0, out, TOPICS, 8_000, OutputOptions(), has_moves, "committed")
    drivers = [job.start(order) for order in range(2)]
    for driver in drivers:
        driver.join(60)

    assert [driver.exitcode for driver in drivers] == [DONE, DONE]
    prove(out, TOPICS, "committed")
