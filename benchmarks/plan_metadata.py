"""A partition of very many segments that only the metadata topic knows, and what planning it takes.

The place has the raw log of ``__remote_log_metadata`` as brokers write it, one record a batch, and of the remote tier
the files of the newest segment, which a plan reads. ``python -m benchmarks.plan_metadata PLACE ISOLATION`` plans it on
one core and prints JSON: CPU seconds and the peak of the process, of a process of its own.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from pathlib import Path

from benchmarks.peak import peak_bytes
from benchmarks.plan_bucket import Topic
from segreader.catalog.listing import EVERYTHING, Wanted
from segreader.catalog.metadata_log import METADATA_TOPIC, RemoteLogMetadata
from segreader.format.batch import Record, TimestampType
from segreader.isolation import IsolationLevel
from segreader.plan.request import Request
from segreader.scans import Scan
from segreader.stored.source import Catalog, LocationSource
from segreader.testing.batches import encode_batch
from segreader.testing.directory import write_files
from segreader.testing.remote_log_metadata import encode_segment_metadata, encode_segment_update
from segreader.testing.side_files import encode_leader_epochs, encode_producer_snapshot
from segreader.values import collect_seldom

LOG_SIZE = 100_000_000
FIRST_TIME_MS = 1_700_000_000_000
SEGMENTS_OF_A_LEADER = 1000
FINISHED = 1
NO_TRANSACTION_INDEX = {0: b"\1"}


def write_topic(place: Path, segments: int) -> None:
    """``segments`` finished ones, two records each, with a new leader every thousand."""
    topic = Topic("orders", 1, segments)
    log = bytearray()
    for number in range(segments):
        base, time_ms = number * topic.records, FIRST_TIME_MS + number * 60_000
        who = (topic.name, topic.topic_id, 0, topic.segment_id(0, number))
        started = encode_segment_metadata(
            *who,
            start_offset=base,
            end_offset=base + topic.records - 1,
            epochs=[(number // SEGMENTS_OF_A_LEADER, base)],
            max_timestamp_ms=time_ms,
            event_timestamp_ms=time_ms,
            log_size=LOG_SIZE,
            tags=NO_TRANSACTION_INDEX,
        )
        finished = encode_segment_update(*who, FINISHED, event_timestamp_ms=time_ms + 900)
        for at, value in enumerate((started, finished), 2 * number):
            record = Record(0, time_ms, TimestampType.CREATE_TIME, None, value)
            log += struct.pack(">q", at) + encode_batch([record], base_offset=0, last_offset=0)[8:]
    leaders = range(-(-segments // SEGMENTS_OF_A_LEADER))
    stem = f"remote/{topic.name}-0-{topic.topic_id}/{topic.stem(0, segments - 1)}"
    write_files(
        place,
        {
            f"metadata/{METADATA_TOPIC}-0/{0:020d}.log": bytes(log),
            f"{stem}.log": b"",
            f"{stem}.snapshot": encode_producer_snapshot([]),
            f"{stem}.leader_epoch_checkpoint": encode_leader_epochs(
                [(leader, leader * SEGMENTS_OF_A_LEADER * topic.records) for leader in leaders]
            ),
        },
    )


class TimedSource(LocationSource):
    """Notes how much CPU time the metadata topic took."""

    decoding_s = 0.0

    def read_metadata(self, wanted: Wanted = EVERYTHING) -> RemoteLogMetadata | None:
        began = time.process_time()
        metadata = super().read_metadata(wanted)
        self.decoding_s += time.process_time() - began
        return metadata


def main() -> None:
    collect_seldom()  # as the command does
    place, isolation_level = sys.argv[1], sys.argv[2]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    source = TimedSource(f"{place}/remote", catalog=Catalog(metadata=f"{place}/metadata", segments_from="metadata"))
    imports, began = peak_bytes(), time.process_time()
    plan = Scan(source, Request(isolation_level=IsolationLevel(isolation_level))).plan()
    seconds = time.process_time() - began
    facts = {
        "splits": len(plan.splits),
        "seconds": seconds,
        "planning_s": seconds - source.decoding_s,
        "peak": peak_bytes(),
        "imports": imports,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
