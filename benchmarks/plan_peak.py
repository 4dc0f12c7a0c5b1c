"""Peak memory of planning one topic of a large bucket, over imports and the bucket; run in a process of its own.

``python -m benchmarks.plan_peak FORM OBJECTS TOPIC PARTITIONS`` prints JSON.
"""

from __future__ import annotations

import json
import sys

from benchmarks.peak import peak_bytes
from benchmarks.plan import topics_of
from benchmarks.plan_bucket import Bucket, BucketSource
from benchmarks.plan_forms import SMALL
from segreader.plan.request import Request
from segreader.scans import Scan


def main() -> None:
    form, objects, topic, partitions = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    bucket = Bucket(SMALL[form], topics_of(form, objects))
    before = peak_bytes()
    plan = Scan(BucketSource(bucket), Request(topic=topic, partitions=tuple(range(partitions)))).plan()
    print(json.dumps({"peak": peak_bytes() - before, "splits": len(plan.splits)}))


if __name__ == "__main__":
    main()
