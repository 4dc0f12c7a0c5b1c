"""CPU of planning a topic that a listing shows: ``python -m benchmarks.plan_listed PARTITIONS SEGMENTS`` prints JSON.

Names and small objects are made before the clock starts.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.peak import peak_bytes
from benchmarks.plan_bucket import BucketSource, Prepared, Topic
from benchmarks.plan_forms import SMALL
from segreader.plan.request import Request
from segreader.scans import Scan


def main() -> None:
    partitions, segments = map(int, sys.argv[1:])
    bucket = Prepared(SMALL["local-tiered"], [Topic("orders", partitions, segments)])
    before, began = peak_bytes(), time.process_time()
    plan = Scan(BucketSource(bucket), Request(topic="orders")).plan()
    cpu = time.process_time() - began
    print(json.dumps({"cpu": cpu, "peak": peak_bytes() - before, "splits": len(plan.splits), "pages": bucket.pages}))


if __name__ == "__main__":
    main()
