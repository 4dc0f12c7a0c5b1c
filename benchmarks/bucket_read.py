"""One read of a simulated bucket, in a process of its own: ``python -m benchmarks.bucket_read JSON`` prints JSON.

The argument names the endpoint, the bucket, what ``scan`` is asked for (``request``) and how (``how``: what this
``scan`` does not know is left out, and named in the answer), and ``what``: ``plan``, or else all records are read.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from typing import Any

import segreader
from benchmarks.native import demand_native
from benchmarks.peak import peak_bytes
from segreader.errors import OptionError


def open_scan(endpoint: str, bucket: str, request: dict[str, Any], how: dict[str, Any]) -> tuple[Any, list[str]]:
    """A scan of a public bucket, and the settings that it does not know."""
    options: dict[str, object] = {"endpoint_url": endpoint, "anon": "true", "allow_http": "true", "region": "none"}
    known = inspect.signature(segreader.scan).parameters
    arguments = request | {name: value for name, value in how.items() if name in known}
    unknown = [name for name in how if name not in known and name != "in_flight"]
    if "in_flight" in how:
        try:
            store = options | {"in_flight": str(how["in_flight"])}
            return segreader.scan(f"s3://{bucket}", storage_options=store, **arguments), unknown
        except OptionError:
            unknown.append("in_flight")
    return segreader.scan(f"s3://{bucket}", storage_options=options, **arguments), unknown


def main() -> None:
    demand_native()
    asked = json.loads(sys.argv[1])
    warm_up, _ = open_scan(asked["endpoint"], "warm", {}, asked["how"])
    for _ in warm_up.to_batches():  # imports all that a read needs
        pass
    imports, cpu, began = peak_bytes(), time.process_time(), time.perf_counter()
    scan, unknown = open_scan(asked["endpoint"], asked["bucket"], asked["request"], asked["how"])
    rows, first_s = 0, None
    if asked["what"] == "plan":
        rows = len(scan.plan().splits)
    else:
        for batch in scan.to_batches():
            if first_s is None and batch.num_rows:
                first_s = time.perf_counter() - began
            rows += batch.num_rows
    facts = {
        "rows": rows,
        "first_s": first_s,
        "wall_s": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
        "peak": peak_bytes() - imports,
        "unknown": unknown,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
