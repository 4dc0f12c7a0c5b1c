"""Backfills on a real cluster into every kind of target, some of whose processes are killed at a step.

A seed chooses the job, who is killed (the driver, an executor or a Python worker) and in which round: the first, or one
that goes on. What holds of the target is what ``lake_chaos`` wants of it.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from random import Random

from lake_chaos import DIVIDED, KINDS, TOPICS, LakeChaos, LakeJob, Victim
from spark_chaos import FAILED, SparkChaos
from spark_chaos_plan import Victim as Struck

_VICTIMS = (Victim.DRIVER_AT_STEP, Victim.EXECUTOR, Victim.WORKER)
_ROLES = dict(zip(_VICTIMS, ("driver", "executor", "worker"), strict=True))
_OF_A_FILE, _OF_A_SPLIT, _WORKERS = 3, 2, 2
"""Steps of a worker for each file and each split, and how many workers there are."""


def chosen_on_cluster(seed: int) -> LakeJob:
    """The job of a seed; nine seeds in a row have each kind of target with each kind of victim, in either round, and
    eighteen in both.
    """
    random = Random(seed)
    kind = KINDS[seed % 3]
    table = () if kind == "parquet" else (*random.choice(DIVIDED), "--commit-bytes", random.choice(("1", "8k", "1g")))
    settings = (
        *("--engine", "spark", "--split-bytes", random.choice(("4k", "9k"))),
        *("--file-bytes", random.choice(("2k", "1m")), *table),
    )
    first = random.choice([topic for topic in TOPICS if not topic.startswith("txn")])  # has something in each round
    others = random.sample([topic for topic in TOPICS if topic != first], random.randint(1, 2))
    return LakeJob(seed, kind, _VICTIMS[seed // 3 % 3], (first, *others), settings)


class SparkLakeChaos(LakeChaos):
    """One job on a cluster, beside its twin that nobody disturbs.

    Args:
        place: an empty directory for the bucket and both targets.
    """

    def __init__(self, job: LakeJob, place: Path, cluster: SparkChaos) -> None:
        super().__init__(job, place)
        self._cluster = cluster
        self._worker_steps = 0
        self._is_verified_by_spark = self._random.random() < 0.5

    @property
    def told(self) -> str:
        """The last that drivers have printed."""
        return self._cluster.told

    def _deaths(self, phase: int) -> list[float]:
        return super()._deaths(phase) if phase == self.job.seed % 2 else []

    def _undisturbed(self) -> tuple[int, float]:
        before = set(self.twin.files.glob("_job/done/*.json"))
        began = time.monotonic()
        driver = self._cluster.driver(has_speculation=False)
        arguments = [*self.job.arguments(self.bucket.root, self.twin), "--continue"]
        told = driver.answer(driver.ask(program="backfill", arguments=arguments))
        assert told is not None and told["code"] == 0, f"{self.job}: {self.told}"  # noqa: PT018
        done = set(self.twin.files.glob("_job/done/*.json")) - before
        files = sum(path.read_text().count(".parquet") for path in done)
        self._worker_steps = _OF_A_FILE * files + _OF_A_SPLIT * len(done)
        return int(told["steps"]), time.monotonic() - began

    def _run(self, goes_on: bool, share: float | None, steps: int, seconds: float) -> int | None:
        self._runs += 1
        self._cluster.tally.runs += 1
        role = _ROLES[self.job.victim]
        most = steps if role == "driver" else self._worker_steps / _WORKERS
        way = self._random.choice(("one", "all", "jvm")) if role == "driver" else "one"
        death = self._cluster.deaths / f"{role}-{int((share or 0) * most)}-{way}{self._runs}"
        if share is not None:
            death.touch()
        driver = self._cluster.driver(has_speculation=False)
        arguments = [*self.job.arguments(self.bucket.root, self.target), *(["--continue"] if goes_on else [])]
        told = driver.answer(driver.ask(program="backfill", arguments=arguments))
        is_hit = share is not None and not death.exists()
        death.unlink(missing_ok=True)
        if is_hit:
            self._cluster.tally.hits[Struck(role)] += 1
        elif share is not None:
            self._cluster.tally.missed += 1
        code = None if told is None else int(told["code"])
        if is_hit and role == "driver":
            self._cluster.close()  # its JVM, or all of it, is gone
            if code in (None, FAILED):
                return -signal.SIGKILL
        self.killed += is_hit
        return code

    def _settle(self) -> None:
        self._cluster.settle()
        driver = self._cluster.driver(has_speculation=False)
        arguments = self.job.arguments(self.bucket.root, self.target)
        told = driver.answer(driver.ask(program="backfill", arguments=arguments))
        assert told is not None and told["code"] == 0, f"{self.job}, once more: {self.told}"  # noqa: PT018
        if self._is_verified_by_spark:
            asked = driver.ask(program="verify", arguments=[*self.target.flags, "--source", "--engine", "spark"])
            told = driver.answer(asked)
            assert told is not None and told["code"] == 0, f"{self.job}, verified by Spark: {self.told}"  # noqa: PT018
