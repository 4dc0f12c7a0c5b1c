"""Peak memory of one Python worker that reads one large partition; run in a process of its own.

``python -m benchmarks.spark_worker_peak read|sink none|lz4 BYTES [ENDPOINT]`` prints JSON. ``read`` gives record
batches as Spark takes them, ``sink`` writes Parquet that is thrown away. All splits are read one after another, as by
one slot. With an endpoint of ``benchmarks.spark_endpoint`` bytes come over HTTP, as those of a bucket do.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import boto3
import pyspark.worker  # noqa: F401 - what a worker has imported before any code of ours
import s3fs  # noqa: F401 - what lists a bucket

from benchmarks.native import demand_native
from benchmarks.peak import peak_bytes
from benchmarks.plan_bucket import Bucket
from benchmarks.spark_bucket import OPTIONS, read_from
from benchmarks.spark_segments import bucket_of
from benchmarks.storage_urls import Urls
from segreader.backfill.job_plan import JobRequest, make_plan
from segreader.backfill.output import OutputOptions
from segreader.backfill.task import do_split
from segreader.spark.batch import SegmentReader
from segreader.spark.locations import Locations
from segreader.spark.options import parse_options
from segreader.spark.worker import IN_FLIGHT
from segreader.storage.base import ObjectInfo
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.target.local import LocalTarget


class _Listed(Urls):
    """URLs of the objects of a made bucket."""

    def __init__(self, endpoint: str, bucket: Bucket) -> None:
        super().__init__(endpoint)
        self._bucket = bucket

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._bucket.list(prefix)


class _Nowhere(LocalTarget):
    """A target that keeps entries and forgets files."""

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        with open("/dev/null", "wb", buffering=0) as file:
            yield io.BufferedWriter(_Counted(file), 256 << 10)

    def move(self, source: str, target: str) -> None:
        """Nothing is there to be moved."""


class _Counted(io.RawIOBase):
    """A file that knows where it is; ``/dev/null`` does not."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._at = file, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: object) -> int:
        size = memoryview(data).nbytes  # type: ignore[arg-type]
        self._at += size
        return size


def main() -> None:
    side, codec, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    bucket = bucket_of(codec, size)
    if len(sys.argv) > 4:
        client = boto3.client("s3", region_name="us-east-1")  # as a worker has that signs
        urls = _Listed(sys.argv[4], bucket)
        read_from(lambda: HttpStore(urls, settings=HttpSettings(allow_http=True, in_flight=IN_FLIGHT)))
    else:
        client = None
        read_from(lambda: bucket)
    demand_native()
    imports, records = peak_bytes(), 0
    if side == "read":
        columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
        reader = SegmentReader(parse_options(OPTIONS), columns)
        for partition in reader.partitions():
            records += sum(batch.num_rows for batch in reader.read(partition))
    else:
        plan = make_plan(JobRequest(wanted=OPTIONS, options=OPTIONS, output=OutputOptions()))
        options = parse_options(OPTIONS)
        store = Locations(options).store
        with tempfile.TemporaryDirectory() as place:
            for split in plan.splits:
                records += do_split(split, store, _Nowhere(place), plan.output, options=options.read_options)[0].records
    del client
    print(json.dumps({"peak": peak_bytes(), "imports": imports, "records": records}))


if __name__ == "__main__":
    main()
