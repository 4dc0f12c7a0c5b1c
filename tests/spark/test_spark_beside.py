"""What lies beside the segments, given to every face: the lineage, a broker's log directory, the metadata topic."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import duckdb
import pyarrow as pa
import pytest
from backfill_runs import finish, plan_into, request, table_of
from corpus import CORPUS, Case, case
from loading import read_rest
from spark_rows import read_offsets, read_table

import segreader
from segreader.backfill.job_plan import make_plan
from segreader.backfill.task import Destination, SplitTask
from segreader.cli.main import main
from segreader.duckdb import register
from segreader.errors import AmbiguousTopicError, ObjectNotFoundError, OptionError, SegmentGapError
from segreader.loader import LoadQuery, ResumableReader, SplitEnumerator
from segreader.polars import scan as scan_polars
from segreader.spark.batch import FrameTask, SegmentReader
from segreader.spark.options import parse_options, parse_stream_options
from segreader.spark.rate_limits import ReadAllAvailable
from segreader.spark.stream import SegmentStreamReader
from segreader.storage.target.store import open_target
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered
from segreader.testing.records import FIRST_TIMESTAMP_MS as T0
from segreader.testing.records import ProducerRecord
from spark_jobs import backfill
from spark_jobs.table import records_of

Offsets = list[int]
Given = Mapping[str, Any]

OPTIONS = {
    "leader_epochs": "leaderEpochs",
    "log_directory": "logDirectory",
    "metadata": "metadata",
    "segments_from": "segmentsFrom",
}
"""Names in the library, and in Spark."""

HANGING = case("cluster", "diverged-hanging")
ACTIVE = case("tv2", "txn-marker-active")
RECREATED = case("tv2", "recreated")

SETS: dict[str, tuple[Case, Given]] = {
    "a checkpoint": (HANGING, {"leader_epochs": str(HANGING.local[0] / "leader-epoch-checkpoint")}),
    "checkpoints": (HANGING, {"leader_epochs": str(CORPUS / "cluster" / "local")}),
    "log directory": (ACTIVE, {"log_directory": str(CORPUS / "tv2" / "local")}),
    "its partition": (ACTIVE, {"log_directory": str(ACTIVE.local[0])}),
    "metadata": (RECREATED, {"metadata": str(CORPUS / "tv2" / "metadata")}),
    "metadata alone": (RECREATED, {"metadata": str(CORPUS / "tv2" / "metadata"), "segments_from": "metadata"}),
    "all": (
        HANGING,
        {"metadata": str(CORPUS / "cluster" / "metadata"), "log_directory": str(CORPUS / "cluster" / "local")},
    ),
}


def spark_options(given: Given) -> dict[str, Any]:
    return {OPTIONS[name]: text for name, text in given.items()}


def flags(given: Given) -> list[str]:
    return [part for name, text in given.items() for part in (f"--{name.replace('_', '-')}", text)]


def sorted_offsets(table: pa.Table) -> Offsets:
    found: Any = table["offset"].to_pylist()
    return sorted(found)


def by_scan(location: str, topic: str, given: Given, tmp_path: Path) -> Offsets:
    with segreader.scan(location, topic=topic, **given) as found:
        return sorted_offsets(found.to_arrow())


def printed(arguments: Sequence[str]) -> list[dict[str, Any]]:
    """What a command writes; the error of its scan is raised here again."""
    written = io.TextIOWrapper(io.BytesIO())
    said = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(said):
        code = main(list(arguments))
        written.flush()
    if code == 5:
        raise SegmentGapError(said.getvalue())
    assert code == 0, said.getvalue()
    return [json.loads(line) for line in written.buffer.getvalue().splitlines()]


def by_cat(location: str, topic: str, given: Given, tmp_path: Path) -> Offsets:
    return sorted(row["offset"] for row in printed(["cat", location, topic, "-o", "ndjson", *flags(given)]))


def by_sql(location: str, topic: str, given: Given, tmp_path: Path) -> Offsets:
    named = "".join(f", {name} := '{text}'" for name, text in given.items())
    rows = printed(["sql", f"select \"offset\" from topic('{location}', '{topic}'{named})", "-o", "ndjson"])
    return sorted(row["offset"] for row in rows)


def by_duckdb(location: str, topic: str, given: Given, tmp_path: Path) -> Offsets:
    with duckdb.connect() as connection:
        register(connection, "t", location, topic=topic, **given)
        try:
            return sorted(row[0] for row in connection.execute('select "offset" from t').fetchall())
        except duckdb.InvalidInputException as error:  # it has the error as text
            if "SegmentGapError" in str(error):
                raise SegmentGapError(str(error)) from error
            raise


def by_polars(location: str, topic: str, given: Given, tmp_path: Path) -> Offsets:
    return sorted(scan_polars(location, topic=topic, **given).collect()["offset"].to_list())


def by_loader(location: str, topic: str, given: Given, tmp_path: Path) -> Offsets:
    query = LoadQuery(location=location, topic=topic, **given)
    found: Offsets = []
    with SplitEnumerator(LoadQuery.from_json(query.to_json())) as enumerator:
        for split in enumerator.discover():
            with ResumableReader(split, query) as reader:
                found += read_rest(reader)["offset"].to_pylist()
    return sorted(found)


def by_spark(location: str, topic: str, given: Given, tmp_path: Path) -> Offsets:
    return read_offsets(location, subscribe=topic, **spark_options(given))


def stream_of(location: str, topic: str, given: Given) -> SegmentStreamReader:
    options = {"location": location, "subscribe": topic} | spark_options(given)
    return SegmentStreamReader(parse_stream_options(options), ("partition", "offset"), wait=lambda seconds: None)


def by_stream(location: str, topic: str, given: Given, tmp_path: Path) -> Offsets:
    stream = stream_of(location, topic, given)
    in_task = pickle.loads(pickle.dumps(stream))
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    planned = pickle.loads(pickle.dumps(stream.partitions(start, end)))
    stream.stop()
    return sorted(offset for one in planned for batch in in_task.read(one) for offset in batch["offset"].to_pylist())


def by_backfill(location: str, topic: str, given: Given, tmp_path: Path) -> Offsets:
    target = open_target(tmp_path / "out")
    plan = plan_into(target, request(location, subscribe=topic, **spark_options(given)))
    task = pickle.loads(
        pickle.dumps(SplitTask(plan.options, plan.output, Destination(str(tmp_path / "out")), plan.splits, plan.name))
    )
    assert len(list(task(range(len(plan.splits))))) == len(plan.splits)
    assert finish(plan, target).is_complete
    return sorted_offsets(table_of(tmp_path / "out"))


Face = Callable[[str, str, Given, Path], Offsets]

FACES: tuple[Face, ...] = (
    by_scan,
    by_cat,
    by_sql,
    by_duckdb,
    by_polars,
    by_loader,
    by_spark,
    by_stream,
    by_backfill,
)

every_face = pytest.mark.parametrize("face", FACES, ids=[face.__name__ for face in FACES])


@every_face
@pytest.mark.parametrize("name", SETS)
def test_what_lies_beside_the_segments_counts_in_every_face(name: str, face: Face, tmp_path: Path) -> None:
    one, given = SETS[name]
    wanted = [record.offset for record in one.truth("committed")]
    stop = one.remote_stop(0)
    if "log_directory" not in given:
        stop = min(stop, one.offline_lso(0))
    wanted = [offset for offset in wanted if "log_directory" in given or offset < stop]

    assert face(str(one.remote_root), one.topic, given, tmp_path) == wanted


def test_without_the_lineage_the_lost_branch_would_be_read() -> None:
    assert len(read_offsets(HANGING.remote_root, subscribe=HANGING.topic)) > len(HANGING.truth("committed"))


@pytest.fixture
def without_the_first(tmp_path: Path) -> str:
    """A tier whose first segment is gone, though the metadata topic calls it finished."""
    root = tmp_path / "tier"
    topic = ACTIVE.remote[0]
    shutil.copytree(topic, root / topic.name)
    first = min((root / topic.name).glob("*.log")).name.removesuffix(".log")
    for file in (root / topic.name).glob(f"{first}.*"):
        file.unlink()
    return str(root)


@every_face
def test_a_finished_segment_that_is_gone_is_a_gap_in_every_face(
    without_the_first: str, face: Face, tmp_path: Path
) -> None:
    given = {"metadata": str(CORPUS / "tv2" / "metadata")}
    with pytest.raises(SegmentGapError):
        face(without_the_first, ACTIVE.topic, given, tmp_path)


@pytest.mark.parametrize("face", [by_scan, by_loader, by_spark], ids=["scan", "loader", "spark"])
def test_a_finished_topic_that_is_gone_altogether_is_a_gap(face: Face, tmp_path: Path) -> None:
    write_local_tiered(tmp_path / "tier", "other", [SegmentBuilder().batch([b"v"])])
    with pytest.raises(SegmentGapError):
        face(str(tmp_path / "tier"), ACTIVE.topic, {"metadata": str(CORPUS / "tv2" / "metadata")}, tmp_path)


def test_what_spark_may_lose_is_counted_from_the_segment_that_is_gone(
    without_the_first: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        "metadata": str(CORPUS / "tv2" / "metadata"),
        "failOnDataLoss": "false",
        "isolationLevel": "read_uncommitted",
    }
    assert read_offsets(without_the_first, subscribe=ACTIVE.topic, **given)
    assert "is finished by the metadata topic, and its log is not there" in caplog.text
    assert "10 offsets are in no segment" in caplog.text


def test_a_log_directory_as_a_second_location_is_told_to_be_one() -> None:
    both = json.dumps([str(ACTIVE.remote_root), str(CORPUS / "tv2" / "local")])
    with pytest.raises(OptionError, match=r"txn-marker-active-0 is of a broker's log directory.*as logDirectory"):
        read_offsets(both, subscribe=ACTIVE.topic)


def test_a_location_that_holds_both_is_told_how_to_name_them(tmp_path: Path) -> None:
    write_local_tiered(tmp_path / "remote", "t", [SegmentBuilder().batch([b"v"])])
    write_broker_log(tmp_path / "local", "t", [SegmentBuilder().batch([b"v"])])
    with pytest.raises(AmbiguousTopicError, match=r"two layouts.* give the broker's log directory with logDirectory"):
        read_offsets(tmp_path, subscribe="t")
    assert read_offsets(tmp_path / "remote", subscribe="t", logDirectory=str(tmp_path / "local")) == [0]


def test_a_backfill_takes_what_lies_beside_the_segments_by_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--topic", HANGING.topic, "--target", str(tmp_path / "out"), "--dry-run"]
    location = ["--location", str(HANGING.remote_root)]
    plans = []
    for more in ([], ["--leader-epochs", str(CORPUS / "cluster" / "local")]):
        assert backfill.main([*location, *asked, *more]) == 0
        plans.append(capsys.readouterr().out)
    assert "0 - 68 " in plans[0]
    assert "0 - 26 " in plans[1]
    assert backfill.main([*location, "--location", str(CORPUS / "cluster" / "local"), *asked]) == 2
    assert "as --log-directory" in capsys.readouterr().err


def test_two_lineages_are_two_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--location", str(HANGING.remote_root), "--topic", HANGING.topic, "--target", str(tmp_path / "out")]
    nothing = ["--offsets", '{"diverged-hanging":{"0":"3:3"}}']
    assert backfill.main([*asked, *nothing]) == 0
    assert backfill.main([*asked, *nothing, "--leader-epochs", str(CORPUS / "cluster" / "local")]) == 2
    assert "--leader-epochs (not given) there" in capsys.readouterr().err


def test_a_task_that_lacks_the_log_directory_says_that_executors_read_it(tmp_path: Path) -> None:
    local = tmp_path / "local"
    shutil.copytree(CORPUS / "tv2" / "local" / "txn-marker-active-0", local / "txn-marker-active-0")
    options = {"location": str(ACTIVE.remote_root), "subscribe": ACTIVE.topic, "logDirectory": str(local)}
    reader = SegmentReader(parse_options(options), ("offset",))
    planned = reader.partitions()
    shutil.rmtree(local)
    with pytest.raises(ObjectNotFoundError, match="on every executor"):
        [batch for one in planned for batch in reader.read(one)]


def test_tasks_need_neither_lineage_nor_metadata(tmp_path: Path) -> None:
    beside = {"leaderEpochs": tmp_path / "epochs", "metadata": tmp_path / "metadata"}
    shutil.copytree(CORPUS / "cluster" / "local", beside["leaderEpochs"])
    shutil.copytree(CORPUS / "cluster" / "metadata", beside["metadata"])
    options = {"location": str(HANGING.remote_root), "subscribe": HANGING.topic}
    reader = SegmentReader(parse_options(options | {name: str(path) for name, path in beside.items()}), ("offset",))
    planned = reader.partitions()
    for path in beside.values():
        shutil.rmtree(path)
    assert sum(len(batch) for one in planned for batch in reader.read(one)) == len(HANGING.truth("committed"))


def test_a_log_directory_without_the_partitions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other-0").mkdir()
    for face in (by_spark, by_stream):
        with pytest.raises(ObjectNotFoundError, match="the log directory has none of these partitions"):
            face(str(ACTIVE.remote_root), ACTIVE.topic, {"log_directory": str(tmp_path)}, tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"segmentsFrom": "both"}, "segmentsFrom=both needs the metadata topic"),
        ({"location": '["/a","/b"]', "metadata": "/m", "segmentsFrom": "metadata"}, "needs one location"),
        ({"kafka.bootstrap.servers": "h:1", "leaderEpochs": "/e"}, "leaderEpochs cannot be used with brokers"),
        ({"kafka.bootstrap.servers": "h:1", "logDirectory": "/l"}, "logDirectory cannot be used with brokers"),
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options({"location": "/a", "subscribe": "t"} | given)


def ids_of(topic: str) -> list[str]:
    """The ids of a topic of the corpus, the newest last: by the order of their truths."""
    root = RECREATED.remote_root
    ids = {path.name.removeprefix(f"{topic}-0-") for path in root.glob(f"{topic}-0-*")}
    return [*sorted(ids - {RECREATED.topic_id}), RECREATED.topic_id]


def offsets_by_id(topic_id: str) -> Offsets:
    with segreader.scan(str(RECREATED.remote_root), topic=RECREATED.topic, topic_id=topic_id) as found:
        return sorted_offsets(found.to_arrow())


def test_a_topic_that_was_created_again_is_read_by_its_id() -> None:
    old, new = ids_of(RECREATED.topic)
    assert offsets_by_id(old) != offsets_by_id(new)
    for given in ({"subscribe": "recreated"}, {"assign": '{"recreated":[0]}'}, {"subscribePattern": "recreated"}):
        for topic_id in (old, new):
            assert read_offsets(RECREATED.remote_root, topicId=topic_id, **given) == offsets_by_id(topic_id)
    metadata = str(CORPUS / "tv2" / "metadata")
    newest = read_offsets(RECREATED.remote_root, subscribe="recreated", topicId="newest", metadata=metadata)
    assert newest == offsets_by_id(new)


def test_a_named_topic_that_was_created_again_needs_its_id() -> None:
    with pytest.raises(AmbiguousTopicError, match="Choose one with topicId"):
        read_offsets(RECREATED.remote_root, subscribe="recreated")
    both = ",".join(ids_of(RECREATED.topic))
    with pytest.raises(AmbiguousTopicError):
        read_offsets(RECREATED.remote_root, subscribe="recreated", topicId=both)
    with pytest.raises(ObjectNotFoundError, match="topic id nope is not here"):
        read_offsets(RECREATED.remote_root, subscribe="recreated", topicId="nope")
    with pytest.raises(OptionError, match="topicId cannot be used with brokers"):
        parse_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "topicId": "newest"})


@pytest.fixture
def created_again(tmp_path: Path) -> Path:
    """Topic ``orders``, whose second id has later records and objects, and topic ``other``."""
    root = tmp_path / "tier"
    for at, (topic_id, records) in enumerate((("A" * 22, 5), ("B" * 22, 3))):
        built = SegmentBuilder().batch([ProducerRecord(b"v", timestamp_ms=T0 + at * 10_000_000)] * records)
        for file in write_local_tiered(root, "orders", [built], topic_id=topic_id).iterdir():
            os.utime(file, (1_700_000_000 + at * 10_000,) * 2)
    write_local_tiered(root, "other", [SegmentBuilder().batch([b"v"] * 2)])
    return root


def test_a_pattern_reads_the_newest_id_and_says_so(created_again: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = read_table(created_again, ("topic", "offset"), subscribePattern=".*")
    rows = sorted((row["topic"], row["offset"]) for row in table.to_pylist())
    assert rows == [("orders", 0), ("orders", 1), ("orders", 2), ("other", 0), ("other", 1)]
    assert f"{'B' * 22} is its newest id by" in caplog.text
    assert f"not read: {'A' * 22}" in caplog.text
    old = read_table(created_again, ("topic", "offset"), subscribePattern=".*", topicId="A" * 22)
    assert old.num_rows == 7


def test_a_stream_ends_where_its_topic_is_created_again(created_again: Path) -> None:
    options = {"location": str(created_again), "subscribe": "orders", "topicId": "newest"}
    stream = SegmentStreamReader(parse_stream_options(options), ("offset",), wait=lambda seconds: None)
    assert stream.latestOffset({"orders": {"0": 0}}, ReadAllAvailable()) == {"orders": {"0": 3}}


def test_a_backfill_of_everything_takes_the_newest_ids(
    created_again: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--location", str(created_again), "--target", str(tmp_path / "out"), "--dry-run"]
    assert backfill.main([*asked, "--pattern", ".*"]) == 0
    shown = capsys.readouterr()
    assert f"{'B' * 22} is its newest id by" in shown.out + shown.err
    assert backfill.main([*asked, "--topic", "orders"]) != 0
    assert "--topic-id" in capsys.readouterr().err
    for topic_id, stop in (("A" * 22, "0 - 4"), ("newest", "0 - 2")):
        assert backfill.main([*asked, "--topic", "orders", "--topic-id", topic_id]) == 0
        assert stop in capsys.readouterr().out


def test_a_table_is_filled_from_the_ids_that_were_planned(created_again: Path) -> None:
    plan = make_plan(request(created_again, subscribePattern=".*"))
    spark = MagicMock(_sc=None)
    spark.sparkContext.defaultParallelism = 2
    records_of(spark, plan, plan.options)
    task = spark.range.return_value.mapInArrow.call_args_list[0].args[0].__self__
    assert isinstance(task, FrameTask)
    assert "B" * 22 in task._reader.options.topic_ids
    assert "A" * 22 not in task._reader.options.topic_ids
    numbers = pa.record_batch({"id": list(range(len(task)))})
    assert sum(batch.num_rows for batch in task.records(iter([numbers]))) == 5


def test_metadata_without_a_location_means_nothing() -> None:
    with pytest.raises(OptionError, match="metadata has no effect without a location"):
        parse_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "metadata": "/m"})
