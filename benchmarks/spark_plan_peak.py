"""One plan of a Spark driver; run in a process of its own.

``python -m benchmarks.spark_plan_peak source|job PARTITIONS SEGMENTS small|large`` prints JSON. ``source`` is all that
Spark asks for: ``partitions()`` and the pickles that it sends. ``job`` is the backfill's plan and its JSON. What a
bucket would have at hand, names and small objects, is made before the clock starts, and its memory is not counted.
"""

from __future__ import annotations

import json
import pickle
import sys
import time

from benchmarks.peak import peak_bytes
from benchmarks.plan import GIB_OF_BATCHES
from benchmarks.plan_bucket import Prepared, Topic
from benchmarks.plan_forms import BATCH_RECORDS, SMALL, WHOLE, batches_of, offset_index
from benchmarks.spark_bucket import OPTIONS, read_from
from segreader.backfill.job_plan import JobRequest, make_plan
from segreader.backfill.output import OutputOptions
from segreader.spark.batch import SegmentReader
from segreader.spark.options import parse_options
from segreader.values import collect_seldom


def main() -> None:
    collect_seldom()  # as the job does, and the source in a process of Spark's
    side, partitions, segments, is_large = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "large"
    records = GIB_OF_BATCHES * BATCH_RECORDS if is_large else 1000
    form = (WHOLE if is_large else SMALL)["local-tiered"]
    imports = peak_bytes()
    topic = Topic("orders", partitions, segments, records)
    bucket = Prepared(form, [topic])
    offset_index(batches_of(topic))  # the one that all segments share
    held = peak_bytes() - imports
    read_from(lambda: bucket)
    began, began_cpu = time.perf_counter(), time.process_time()
    if side == "source":
        planned = SegmentReader(parse_options(OPTIONS), ("offset",)).partitions()
        pickles = [pickle.dumps(one) for one in planned]
        splits, sent, largest = len(planned), sum(map(len, pickles)), max(map(len, pickles))
    else:
        plan = make_plan(JobRequest(wanted=OPTIONS, options=OPTIONS, output=OutputOptions()))
        splits, sent, largest = len(plan.splits), len(plan.data), 0
    facts = {"cpu": time.process_time() - began_cpu, "wall": time.perf_counter() - began, "splits": splits}
    facts |= {"peak": peak_bytes() - held, "imports": imports, "segments": partitions * segments}
    print(json.dumps(facts | {"pickled": sent, "largest": largest}))


if __name__ == "__main__":
    main()
