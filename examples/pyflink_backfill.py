"""The history of a Kafka topic, from tiered storage into files with Flink, each record exactly once.

    python examples/pyflink_backfill.py --location /mnt/tiered --topic orders --output /data/orders --work /data/work

Give the same line again, whatever happened: a load that was killed goes on at its last checkpoint, and one that had
ended loads what was uploaded since. ``--work`` keeps what that takes. It, the output and the location must be in reach
of every task manager; the credentials of a bucket are no arguments: each worker has them in its environment.

PyFlink has no source interface of Python's own, so the parts of one are ordinary ones here. The splits are enumerated
before the job starts. Each is cut into *slices*, elements which say "read on to this offset"; keyed by split they are
spread over the slots. Between two of them Flink takes its checkpoints, with the position of each reader as keyed
state. A slice that ends below that position does nothing, so it does no harm if slices come again.

When all is loaded this prints the offsets at which the live topic goes on, with no gap and no record twice. In a job:

    offsets = {KafkaTopicPartition(*place): offset for place, offset in starting.to_flink().items()}
    KafkaSource.builder().set_starting_offsets(KafkaOffsetsInitializer.offsets(offsets)) …  # isolation.level as here
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pyflink.common import Configuration, Encoder, Row, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig, RollingPolicy
from pyflink.datastream.state import ValueStateDescriptor

from segreader.loader import LoaderSplit, LoadQuery, Position, ReaderPool, SplitEnumerator, StartingOffsets

COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "timestamp_type", "leader_epoch", "key", "value", "headers")
SLICE = Types.ROW_NAMED(["split_id", "stop", "split"], [Types.STRING(), Types.LONG(), Types.STRING()])


class ReadSlices(KeyedProcessFunction):
    """Reads splits a slice at a time. A position is saved with the records before it, or neither is."""

    def __init__(self, query: LoadQuery) -> None:
        self._query = query

    def open(self, runtime_context: RuntimeContext) -> None:
        self._split = runtime_context.get_state(ValueStateDescriptor("split", Types.STRING()))
        self._position = runtime_context.get_state(ValueStateDescriptor("position", Types.STRING()))
        self._pool = ReaderPool(self._query)
        self._readers = {}

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        saved = self._position.value()
        position = None if saved is None else Position.from_json(saved)
        if position is not None and position.next_offset >= value.stop:
            return
        if value.split is not None:  # the first slice of a split, and only that: it may be long
            self._split.update(value.split)
        reader = self._readers.get(value.split_id)
        if reader is None:  # a new split, or a new process: then it goes on where the checkpoint was taken
            split = LoaderSplit.from_json(self._split.value())
            reader = self._readers[value.split_id] = self._pool.open(split, position)
        while (left := value.stop - reader.position.next_offset) > 0:
            batch = reader.read(max_rows=left)
            if batch is None:
                break
            for record in batch.to_pylist():
                yield json.dumps(record, default=lambda data: base64.b64encode(data).decode())
        self._position.update(reader.position.to_json())
        if reader.position.next_offset >= reader.split.stop:
            self._readers.pop(value.split_id).close()
            self._split.clear()

    def close(self) -> None:
        self._pool.close()


@dataclass(frozen=True)
class Round:
    """What is kept beside Flink's checkpoints: the splits that one job reads, and where those of the next one begin.

    It is written before the job starts, so that they are the same however often it is killed, and when it has ended.
    """

    number: int = 0
    splits: tuple[str, ...] = ()
    state: str | None = None

    @classmethod
    def read(cls, work: Path) -> Round:
        file = work / "round.json"
        return cls(**json.loads(file.read_text())) if file.exists() else cls()

    def write(self, work: Path) -> Round:
        work.mkdir(parents=True, exist_ok=True)
        (work / "round.json.new").write_text(json.dumps(asdict(self)))
        (work / "round.json.new").replace(work / "round.json")
        return self


def slices(splits: Iterable[str], rows: int) -> list[Row]:
    """The splits as elements that are read in one go each: no checkpoint is taken inside of one."""
    cut = []
    for text in splits:
        split = LoaderSplit.from_json(text)
        stops = [*range(split.start + rows, split.stop, rows), split.stop]
        cut += [Row(split.id, stop, None if at else text) for at, stop in enumerate(stops)]
    return cut


def newest_checkpoint(checkpoints: Path, files: Iterable[Path]) -> Path | None:
    """The last checkpoint that is complete; ``None`` before the first one."""
    complete = sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns)
    if not complete and any(files):
        sys.exit(f"There are files of this round, and no checkpoint in {checkpoints}: it is not known what they hold.")
    return complete[-1].parent if complete else None


def run(query: LoadQuery, this: Round, args: argparse.Namespace) -> None:
    """One job over the splits of a round; it returns when all their records are in files that are committed."""
    checkpoints = args.work.resolve() / "checkpoints" / str(this.number)
    prefix = f"round-{this.number}"
    settings = {
        "python.executable": sys.executable,
        "parallelism.default": str(args.parallelism),
        # A bundle of elements is read in one go, too: one slice a bundle, so that checkpoints need not wait for many.
        "python.fn-execution.bundle.size": "1",
        "execution.checkpointing.interval": f"{args.checkpoint_ms} ms",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        # Slices wait in Flink's buffers; aligned checkpoints would wait until all of these are read.
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.dir": checkpoints.as_uri(),
        # After a kill the checkpoints are still there: see newest_checkpoint.
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.state-recovery.claim-mode": "CLAIM",
        # The files of the end are committed by a checkpoint after it. (Flink's default; nothing is right without it.)
        "execution.checkpointing.checkpoints-after-tasks-finish": "true",
        # What fails, for damaged data or a missing credential, fails again: the job ends, and its checkpoints stay.
        "restart-strategy.type": "disable",
    }
    if checkpoint := newest_checkpoint(checkpoints, args.output.glob(f"{prefix}-*")):
        settings["execution.state-recovery.path"] = checkpoint.as_uri()
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    sink = (
        FileSink.for_row_format(args.output.resolve().as_uri(), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .with_output_file_config(OutputFileConfig(prefix, ".ndjson"))
        .build()
    )
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    found = environment.from_collection(slices(this.splits, args.rows), SLICE).uid("slices")
    records = found.key_by(lambda one: one.split_id, Types.STRING()).process(ReadSlices(query), Types.STRING())
    records.uid("read").sink_to(sink).uid("files")
    environment.execute(f"{query.topic}: {prefix}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--location", required=True, help="where the segments are: a directory, s3://…, abfss://…, gs://…"
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", required=True, type=Path, help="directory of the files")
    parser.add_argument("--work", required=True, type=Path, help="directory of the checkpoints, and of what is loaded")
    parser.add_argument("--parallelism", type=int, default=2, help="task slots (%(default)s)")
    parser.add_argument("--rows", type=int, default=10_000, help="offsets of a slice (%(default)s)")
    parser.add_argument("--checkpoint-ms", type=int, default=10_000, help="between two checkpoints (%(default)s)")
    args = parser.parse_args()
    query = LoadQuery(location=args.location, topic=args.topic, columns=COLUMNS)
    this = Round.read(args.work)
    with SplitEnumerator(query, state=this.state) as enumerator:
        while this.splits or (found := enumerator.discover()):
            if not this.splits:
                splits = tuple(split.to_json() for split in found)
                this = Round(this.number + 1, splits, enumerator.state()).write(args.work)
            run(query, this, args)
            this = replace(this, splits=()).write(args.work)
            # Flink removes them in the background, and the process may end before that.
            shutil.rmtree(args.work / "checkpoints" / str(this.number), ignore_errors=True)
        print(StartingOffsets.of(enumerator.end_positions()).to_flink_json())


if __name__ == "__main__":
    main()
