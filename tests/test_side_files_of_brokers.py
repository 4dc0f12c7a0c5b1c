"""Index, snapshot and checkpoint files of real brokers, against kafka-dump-log, their log and a replay."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from segreader.format.batch import HEADER_SIZE, RecordBatchHeader, parse_batch_header
from segreader.format.checkpoints import (
    ProducerSnapshotEntry,
    parse_leader_epochs,
    parse_partition_metadata,
    parse_producer_snapshot,
)
from segreader.format.index_files import (
    AbortedTransaction,
    TransactionIndex,
    parse_offset_index,
    parse_time_index,
    parse_transaction_index,
)
from segreader.format.records import parse_control_key
from segreader.isolation import TransactionReplay

CORPUS = Path(__file__).parent.parent / "fixtures" / "corpus"
REMOTE_SETS = ["tv2", "tv1", "k39"]
ENTRY = re.compile(r"(offset|timestamp|version|producerId): ")
# Their logs begin after some records, or were compacted after their indexes were written.
NOT_REPLAYABLE = ("compacted", "delete-records", "retention")


def partitions(set_name: str) -> list[Path]:
    return sorted((CORPUS / set_name / "remote" / "kafka-tiered-storage").iterdir())


def read_batches(log: bytes) -> Iterator[tuple[int, RecordBatchHeader]]:
    position = 0
    while position < len(log):
        header = parse_batch_header(log, position)
        yield position, header
        position += header.size


def control_key(log: bytes, position: int) -> bytes:
    # In a marker, length, attributes, both deltas and the length of the key take one byte each.
    at = position + HEADER_SIZE + 4
    return log[at + 1 : at + 1 + (log[at] >> 1)]


def read_transaction_index(log: Path, base_offset: int) -> TransactionIndex:
    file = log.with_suffix(".txnindex")
    return parse_transaction_index(file.read_bytes(), base_offset) if file.exists() else TransactionIndex()


@pytest.mark.parametrize("set_name", REMOTE_SETS)
def test_indexes_agree_with_the_batches_of_their_log(set_name: str) -> None:
    for log in (path for partition in partitions(set_name) for path in sorted(partition.glob("*.log"))):
        base_offset, data = int(log.name[:20]), log.read_bytes()
        offsets = parse_offset_index(log.with_suffix(".index").read_bytes(), base_offset, log_size=len(data))
        times = parse_time_index(log.with_suffix(".timeindex").read_bytes(), base_offset)
        epochs = parse_leader_epochs(log.with_suffix(".leader_epoch_checkpoint").read_bytes())
        batches = dict(read_batches(data))

        assert (offsets.entry_size, offsets.trailing_bytes, offsets.zero_tail) == (8, 0, 0), log
        assert (times.trailing_bytes, times.zero_tail) == (0, 0), log
        for entry in offsets:
            assert batches[entry.position].last_offset <= entry.offset, log
        for position, header in batches.items():
            assert offsets.lookup(header.base_offset).position <= position, log
            assert epochs.epoch_for(header.base_offset) == header.partition_leader_epoch, log
        newest = max((header.max_timestamp for header in batches.values()), default=-1)
        assert times.max_timestamp_ms == (newest if newest >= 0 else None), log


@pytest.mark.parametrize("set_name", REMOTE_SETS)
def test_a_replay_gives_every_transaction_index_and_open_transaction(
    set_name: str,
) -> None:
    decided = 0
    for partition in partitions(set_name):
        if partition.name.startswith(NOT_REPLAYABLE):
            continue
        replay = TransactionReplay()
        for log in sorted(partition.glob("*.log")):
            data, rows = log.read_bytes(), []
            for position, header in read_batches(data):
                if header.is_control:
                    is_abort = parse_control_key(control_key(data, position)).is_abort
                    row = replay.marker(header.producer_id, header.base_offset, is_abort)
                    rows += [row] if row else []
                elif header.is_transactional:
                    replay.data(header.producer_id, header.base_offset)
            snapshot = parse_producer_snapshot(log.with_suffix(".snapshot").read_bytes())
            assert tuple(rows) == read_transaction_index(log, int(log.name[:20])).entries, log
            assert replay.open_transactions == snapshot.open_transactions(), log
            decided += len(rows)
    assert decided


def dumped(set_name: str) -> Iterator[tuple[Path, list[str]]]:
    """Each remote file that kafka-dump-log listed, and its lines; not those over which it crashed."""
    text = gzip.decompress((CORPUS / set_name / "dump" / "segments.txt.gz").read_bytes()).decode()
    for section in text.split("Dumping ")[1:]:
        name, *lines = section.splitlines()
        topic, segment, plain = name.split("/")
        file = next(iter((CORPUS / set_name / "remote").glob(f"*/{topic}-*/{segment}{Path(plain).suffix}")), None)
        if file and not any(line.startswith("Exception") for line in lines):
            yield file, [line.strip() for line in lines if ENTRY.match(line)]


def as_dumped(file: Path) -> list[str]:
    base_offset, data = int(file.name[:20]), file.read_bytes()
    match file.suffix:
        case ".index":
            return [f"offset: {e.offset} position: {e.position}" for e in parse_offset_index(data, base_offset)]
        case ".timeindex":
            return [f"timestamp: {e.timestamp_ms} offset: {e.offset}" for e in parse_time_index(data, base_offset)]
        case ".txnindex":
            return [dumped_transaction(e) for e in parse_transaction_index(data, base_offset)]
        case _:
            return [dumped_producer(e) for e in parse_producer_snapshot(data)]


def dumped_transaction(entry: AbortedTransaction) -> str:
    return (
        f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
        f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
    )


def dumped_producer(entry: ProducerSnapshotEntry) -> str:
    first = entry.current_txn_first_offset
    text = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {'OptionalLong.empty' if first is None else f'OptionalLong[{first}]'} "
        f"lastTimestamp: {entry.timestamp_ms}"
    )
    if not entry.has_batch:
        return text
    return (
        f"{text} firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp_ms}"
    )


@pytest.mark.parametrize("set_name", REMOTE_SETS)
def test_side_files_say_what_kafka_dump_log_prints(set_name: str) -> None:
    compared = set()
    for file, lines in dumped(set_name):
        if file.suffix != ".log":
            assert as_dumped(file) == lines, file
            compared.add(file.suffix)
    assert compared >= {".index", ".timeindex", ".snapshot"}


@pytest.mark.parametrize("set_name", [*REMOTE_SETS, "legacy"])
def test_the_files_of_a_brokers_directory_are_read_with_their_preallocated_zeros(set_name: str) -> None:
    zeros = 0
    for directory in (path for path in sorted((CORPUS / set_name / "local").iterdir()) if path.is_dir()):
        for file in sorted(directory.iterdir()):
            base_offset = int(file.name[:20]) if file.name[:20].isdigit() else 0
            data = file.read_bytes()
            if file.suffix == ".index":
                log_size = file.with_suffix(".log").stat().st_size
                offsets = parse_offset_index(data, base_offset, log_size=log_size)
                zeros += offsets.zero_tail
                assert offsets.trailing_bytes == 0
            elif file.suffix == ".timeindex":
                assert parse_time_index(data, base_offset).trailing_bytes == 0
            elif file.suffix == ".txnindex":
                assert len(parse_transaction_index(data, base_offset))
            elif file.suffix == ".snapshot":
                assert parse_producer_snapshot(data).trailing_bytes == 0
            elif file.name == "leader-epoch-checkpoint":
                assert set_name == "legacy" or len(parse_leader_epochs(data))
            elif file.name == "partition.metadata":
                assert data.decode().endswith(parse_partition_metadata(data).topic_id)
    assert zeros
