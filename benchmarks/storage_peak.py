"""Peak memory of reading one large object over HTTP, over what importing costs; run in a process of its own.

``python -m benchmarks.storage_peak ENDPOINT NAME SIZE`` prints, as JSON, the bytes by which the process's peak had
risen after each GiB.
"""

from __future__ import annotations

import json
import sys

import segreader.scans  # noqa: F401 - what a program that reads segments has imported
from benchmarks.peak import peak_bytes
from benchmarks.storage_urls import Urls, open_store
from segreader.ranges import ByteRange

GIB = 1 << 30


def main() -> None:
    endpoint, name, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    before, peaks, done = peak_bytes(), list[int](), 0
    with open_store(Urls(endpoint)) as store:
        for piece in store.read_pieces(name, ByteRange(0, size), expected_size=size):
            done += len(piece)
            if done // GIB > len(peaks):
                peaks.append(peak_bytes() - before)
    if done != size:
        raise ValueError(f"{done} bytes came, not {size}")
    print(json.dumps(peaks))


if __name__ == "__main__":
    main()
