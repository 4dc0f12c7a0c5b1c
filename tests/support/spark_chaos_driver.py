"""A driver that runs one backfill after another in one Spark session, as it is told, until it is killed.

``python spark_chaos_driver.py MASTER ASK ANSWER``: requests are lines of JSON read from the file descriptor
``ASK``, answers are lines written to ``ANSWER``. Jobs are done in turn; a request to kill a task is answered meanwhile.
"""

from __future__ import annotations

import io
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any, TextIO

import lake_chaos_hook
from pyspark.sql import SparkSession

from segreader.backfill import task
from spark_jobs import backfill, verify
from spark_jobs.session import job_session

REASON = "killed by chaos"
_PROGRAMS: dict[str, Callable[[list[str]], int]] = {"backfill": backfill.main, "verify": verify.main}
_ENDS_IN = 10.0

vars(task)["_LEAST_TASK_BYTES"] = 1 << 11  # so little data would be the work of one task


def main(master: str, ask: TextIO, answer: TextIO) -> None:
    lock = threading.Lock()

    def tell(document: dict[str, Any]) -> None:
        with lock:
            answer.write(json.dumps(document) + "\n")
            answer.flush()

    with job_session("chaos", master=master) as session:
        spark = session.spark
        jobs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(spark, ask, jobs, tell), daemon=True).start()
        tell({"id": 0, "app": spark.sparkContext.applicationId})
        while (job := jobs.get()) is not None:
            tell({"id": job["id"], **_run(spark, job)})


def _listen(spark: SparkSession, ask: TextIO, jobs: queue.SimpleQueue[Any], tell: Callable[[Any], None]) -> None:
    for line in ask:
        request = json.loads(line)
        if "program" in request:
            jobs.put(request)
        else:
            killed = _kill_task(spark, request["of"], request["aim"], request["interrupts"])
            tell({"id": request["id"], "killed": killed})
    jobs.put(None)


def _run(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    group = str(job["id"])
    spark.sparkContext.setJobGroup(group, group)
    printed, steps = io.StringIO(), lake_chaos_hook.steps_so_far()
    with redirect_stdout(printed):
        code = _PROGRAMS[job["program"]](job["arguments"])
    sys.stderr.write(printed.getvalue())
    attempts = list(_attempts(spark, group))
    return {
        "code": code,
        "printed": printed.getvalue(),
        "steps": lake_chaos_hook.steps_so_far() - steps,
        "ended": Counter(str(one.status()) for one in attempts),
        "copies": sum(bool(one.speculative()) for one in attempts),
    }


def _attempts(spark: SparkSession, group: str) -> Iterator[Any]:
    """What Spark knows of each attempt at a task of these jobs, as its own UI shows it."""
    context: Any = spark.sparkContext
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    for job in tracker.getJobIdsForGroup(group):
        for stage in info.stageIds if (info := tracker.getJobInfo(job)) else ():
            tasks = store.taskList(stage, 0, 1 << 20)
            yield from (tasks.apply(at) for at in range(tasks.size()))


def _kill_task(spark: SparkSession, group: str, aim: float, interrupts: bool) -> bool:
    """Kill one of the tasks that run; whether that ended it, and not its work that was done.

    Args:
        aim: which of them, from 0 to 1.
    """
    running = sorted(one.taskId() for one in _attempts(spark, group) if str(one.status()) == "RUNNING")
    if not running:
        return False
    task = running[int(aim * len(running))]
    context: Any = spark.sparkContext
    if not context._jsc.sc().killTaskAttempt(task, interrupts, REASON):
        return False
    until = time.monotonic() + _ENDS_IN
    while time.monotonic() < until:
        (one,) = (one for one in _attempts(spark, group) if one.taskId() == task)
        if str(one.status()) != "RUNNING":
            return str(one.status()) == "KILLED" and REASON in one.errorMessage().toString()
        time.sleep(0.02)
    return False


if __name__ == "__main__":
    asked = open(int(sys.argv[2]), encoding="utf-8")  # noqa: SIM115
    answers = open(int(sys.argv[3]), "w", encoding="utf-8")  # noqa: SIM115
    try:
        main(sys.argv[1], asked, answers)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)  # without closing what the other thread reads, which would wait for it
