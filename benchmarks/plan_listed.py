"""CPU of planning a topic that a listing shows.

``python -m benchmarks.plan_listed PARTITIONS SEGMENTS [seldom]`` prints JSON.
Names and small objects are made before the clock starts. ``seldom``: the collector is set as the command sets it.
"""

from __future__ import annotations

import gc
import json
import sys
import time

from benchmarks.peak import peak_bytes
from benchmarks.plan_bucket import BucketSource, Prepared, Topic
from benchmarks.plan_forms import SMALL
from segreader.plan.request import Request
from segreader.scans import Scan
from segreader.values import collect_seldom


def main() -> None:
    partitions, segments = map(int, sys.argv[1:3])
    collects_seldom = "seldom" in sys.argv[3:]
    bucket = Prepared(SMALL["local-tiered"], [Topic("orders", partitions, segments)])
    if collects_seldom:
        collect_seldom()  # as the command does
    else:
        gc.freeze()  # the bucket is not what is measured
    before, began = peak_bytes(), time.process_time()
    plan = Scan(BucketSource(bucket), Request(topic="orders")).plan()
    cpu = time.process_time() - began
    print(json.dumps({"cpu": cpu, "peak": peak_bytes() - before, "splits": len(plan.splits), "pages": bucket.pages}))


if __name__ == "__main__":
    main()
