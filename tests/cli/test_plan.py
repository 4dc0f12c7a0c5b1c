"""``segreader plan`` says what a read would do and cost, and reads no record for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from canaries import CANARIES, leaks
from corpus import CORPUS, FIXTURES, Case, case, cases

from segreader.cli.main import main
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import local_tiered_files, write_broker_log, write_local_tiered
from segreader.testing.records import FIRST_TIMESTAMP_MS
from segreader.testing.stores import MemoryStore


class Plan:
    """Runs the command in this process."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def __call__(self, *arguments: object, form: str = "json") -> tuple[int, bytes, str]:
        code = main(["plan", *map(str, arguments), "-o", form])
        out, err = self._captured.readouterr()
        return int(code), out, err.decode()

    def one(self, *arguments: object) -> dict[str, Any]:
        """The plan, where all goes well."""
        code, out, err = self(*arguments)
        assert code == 0, err
        (plan,) = json.loads(out)
        assert isinstance(plan, dict)
        return plan

    def table(self, *arguments: object) -> str:
        """What a terminal is shown."""
        code, out, err = self(*arguments, form="table")
        assert code == 0, err
        return out.decode()


@pytest.fixture
def plan(capsysbinary: pytest.CaptureFixture[bytes]) -> Plan:
    return Plan(capsysbinary)


def three_segments(*, batches: int = 3) -> list[SegmentBuilder]:
    """Three segments of some batches of three records, one after another; every batch is in the index."""
    segments = [SegmentBuilder(index_interval_bytes=1)]
    for _ in range(2):
        for _ in range(batches):
            segments[-1].batch([b"one", b"two", b"three"])
        segments.append(segments[-1].roll())
    for _ in range(batches):
        segments[-1].batch([b"one", b"two", b"three"])
    return segments


def splits(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [split for partition in plan["partitions"] for split in partition["splits"]]


def test_a_plan_has_every_split_and_where_each_partition_ends(tmp_path: Path, plan: Plan) -> None:
    segments = three_segments()
    directory = write_local_tiered(tmp_path, "t", segments)

    found = plan.one(tmp_path)

    (partition,) = found["partitions"]
    assert (found["location"], found["isolation_level"], found["notes"]) == (str(tmp_path), "read_committed", [])
    assert (partition["topic"], partition["partition"], partition["start_offset"]) == ("t", 0, 0)
    assert (partition["end_reason"], partition["gaps"], partition["dropped"]) == ("end-of-data", [], [])
    sizes = [len(segment.to_bytes()) for segment in segments]
    assert [(one["start_position"], one["stop_position"], one["log_size"]) for one in splits(found)] == [
        (0, size, size) for size in sizes
    ]
    logs = [one["log"].rpartition("/")[2] for one in splits(found)]
    assert logs == sorted(path.name for path in directory.glob("*.log"))
    assert partition["size"] == found["cost"]["size"] == sum(sizes)


@pytest.mark.parametrize("case", cases("cluster", "tv2", remote=True), ids=str)
def test_what_is_planned_is_what_is_read(case: Case, plan: Plan, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    chosen = ["--topic", case.topic, "--topic-id", case.topic_id]
    found = plan.one(case.remote_root, *chosen)
    main(["cat", str(case.remote_root), *chosen, "-o", "ndjson"])
    rows = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]

    for partition in found["partitions"]:
        offsets = [row["offset"] for row in rows if row["partition"] == partition["partition"]]
        stop = partition["stop_offset"]
        assert all(partition["start_offset"] <= offset and (stop is None or offset < stop) for offset in offsets)
        for split in partition["splits"]:
            assert 0 <= split["start_position"] < split["stop_position"] <= split["log_size"]


def test_what_other_histories_wrote_is_left_out_with_the_reason(plan: Plan) -> None:
    diverged = case("cluster", "diverged")
    (partition,) = plan.one(diverged.remote_root, "diverged/0")["partitions"]

    assert [(one["start_offset"], one["stop_offset"], one["reason"]) for one in partition["dropped"]] == [
        (30, 60, "diverged"),
        (90, 114, "duplicate"),
        (114, 120, "diverged"),
        (120, 150, "diverged"),
    ]
    assert all(one["log"] not in {split["log"] for split in partition["splits"]} for one in partition["dropped"])
    table = plan.table(diverged.remote_root, "diverged/0")
    assert table.count("left out: diverged-0: ") == 4


def test_an_open_transaction_ends_a_partition_early(tmp_path: Path, plan: Plan) -> None:
    built = SegmentBuilder().batch([b"decided"]).batch([b"open"], producer_id=7, transactional=True)
    write_local_tiered(tmp_path, "t", [built])

    (committed,) = plan.one(tmp_path)["partitions"]
    (uncommitted,) = plan.one(tmp_path, "--isolation", "read_uncommitted")["partitions"]

    assert (committed["stop_offset"], committed["end_reason"], committed["open_producer_id"]) == (
        1,
        "open-transaction",
        7,
    )
    assert (uncommitted["end_reason"], uncommitted["open_producer_id"]) == ("end-of-data", None)
    assert "before a transaction of producer 7 that is still open" in plan.table(tmp_path)


def test_aborted_transactions_are_with_the_splits_that_they_reach_into(tmp_path: Path, plan: Plan) -> None:
    built = SegmentBuilder().batch([b"gone"], producer_id=7, transactional=True).marker(7, abort=True).batch([b"kept"])
    write_local_tiered(tmp_path, "t", [built])

    (split,) = splits(plan.one(tmp_path))

    assert split["aborted"] == [{"producer_id": 7, "first_offset": 0, "last_offset": 1}]


def test_offsets_and_times_narrow_what_is_read(tmp_path: Path, plan: Plan) -> None:
    write_local_tiered(tmp_path, "t", three_segments())
    since = str(FIRST_TIMESTAMP_MS + 10)

    by_offset, by_time = plan.one(tmp_path, "--offsets", "10:14"), plan.one(tmp_path, "t/0", "--since", since)

    assert [(one["start_offset"], one["stop_offset"]) for one in splits(by_offset)] == [(10, 14)]
    assert by_offset["partitions"][0]["end_reason"] == "requested"
    assert by_time["partitions"][0]["start_offset"] == 10
    assert [one["base_offset"] for one in splits(by_time)] == [9, 18]


def test_a_split_names_the_logs_behind_it(plan: Plan) -> None:
    diverged = case("cluster", "diverged-hanging")
    code, out, _ = plan(diverged.remote_root, "diverged-hanging")
    (decided,) = json.loads(out)

    following = [one for split in splits(decided) for one in split["following"]]
    assert code in (0, 1)
    assert following
    assert all(len(one) == 3 for one in following)


@pytest.mark.parametrize("on_gap", ["fail", "skip"])
def test_a_gap_is_a_row_beside_those_of_other_partitions(tmp_path: Path, plan: Plan, on_gap: str) -> None:
    for partition in range(3):
        directory = write_local_tiered(tmp_path, "t", three_segments(), partition=partition)
        if partition == 1:
            next(directory.glob("*9-*.log")).unlink()

    code, out, err = plan(tmp_path, "--on-gap", on_gap)
    (decided,) = json.loads(out)
    table_code, table, _ = plan(tmp_path, "--on-gap", on_gap, form="table")

    assert (code, table_code) == (1, 1)
    assert [(one["partition"], one["gaps"]) for one in decided["partitions"]] == [
        (0, []),
        (1, [{"start_offset": 9, "stop_offset": 18, "held_back": None}]),
        (2, []),
    ]
    assert "missing: t-1: no segment has offsets 9 to 17" in err
    assert ("--on-gap skip" in err) == (on_gap == "fail")
    rows = [line.split() for line in table.decode().splitlines() if line.startswith("t-")]
    assert [row[0] for row in rows] == ["t-0", "t-1", "t-1", "t-2"]
    assert rows[2][1:] == ["9", "18", "missing:", "in", "no", "segment"]


def test_a_partition_that_cannot_be_planned_leaves_the_others_their_rows(tmp_path: Path, plan: Plan) -> None:
    write_local_tiered(tmp_path, "t", three_segments())
    aborted = SegmentBuilder().batch([b"a"], producer_id=7, transactional=True).marker(7, abort=True)
    directory = write_local_tiered(tmp_path, "t", [aborted, aborted.roll().batch([b"b"])], partition=1)
    (index,) = directory.glob("0*00-*.txnindex")
    index.write_bytes(index.read_bytes()[:-1])

    code, out, err = plan(tmp_path)
    (decided,) = json.loads(out)
    sound, broken = decided["partitions"]
    _, table, _ = plan(tmp_path, form="table")

    assert code == 1
    assert (sound["error"], sound["stop_offset"]) == (None, 27)
    assert ".txnindex" in broken["error"]
    assert f"error: {broken['error']}" in err
    assert "cannot be planned" in table.decode()
    assert plan(tmp_path, "t/1")[:2] == (5, b"")


def test_small_splits_begin_at_batches(tmp_path: Path, plan: Plan) -> None:
    segments = three_segments()
    write_local_tiered(tmp_path, "t", segments)

    found = splits(plan.one(tmp_path, "--split-bytes", "1"))

    starts = {position for segment in segments for position in segment.batch_positions}
    assert len(found) > len(segments)
    assert {one["start_position"] for one in found} <= starts


def test_of_logs_only_the_last_batches_are_read_to_plan_whole_segments(
    plan: Plan, bucket: Callable[..., MemoryStore]
) -> None:
    segments = three_segments(batches=40)
    store = bucket(local_tiered_files("t", segments))

    plan.one("s3://bucket", "t")

    lasts = {segment.batch_positions[-1] for segment in segments}
    assert store.requests
    assert all(start in lasts for _, start in logs_read(store))


def test_no_log_is_read_where_the_catalogue_tells_all(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = CORPUS / "aiven-zstd" / "remote"
    store = MemoryStore({str(path.relative_to(remote)): path.read_bytes() for path in remote.rglob("*.*")})
    monkeypatch.setattr("segreader.stored.source.open_store", lambda location, **_: (store, ""))

    plan.one("s3://bucket", "txn-interleaved")

    assert store.requests
    assert logs_read(store) == []


def test_near_a_time_only_some_batches_of_one_segment_are_read(plan: Plan, bucket: Callable[..., MemoryStore]) -> None:
    segments = three_segments(batches=400)
    store = bucket(local_tiered_files("t", segments))

    plan.one("s3://bucket", "t", "--since", FIRST_TIMESTAMP_MS + 1300)

    lasts = {segment.batch_positions[-1] for segment in segments}
    (read,) = [name for name, start in logs_read(store) if start not in lasts]
    assert "00000000000000001200-" in read


def logs_read(store: MemoryStore) -> list[tuple[str, int]]:
    """The logs that were read from, and from which byte on."""
    asked = [request.split() for request in store.requests if request.startswith("GET ")]
    return [(name, int(span[len("bytes=") :].split("-")[0])) for _, name, span in asked if name.endswith(".log")]


def test_the_cost_is_told_in_money_by_the_prices_given(tmp_path: Path, plan: Plan) -> None:
    write_local_tiered(tmp_path / "tiered", "t", three_segments())
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    (tmp_path / "prices.toml").write_text('get_per_1000 = 0.4\ngib_out = 1073741824\ncurrency = "EUR"\n')
    (tmp_path / "prices.json").write_text('{"get_per_1000": 0.4, "gib_out": 1073741824, "currency": "EUR"}')

    costs = [
        plan.one(tmp_path / "tiered", "--prices", tmp_path / f"prices.{kind}")["cost"] for kind in ("toml", "json")
    ]
    texts = ["get_per_1000=0.4", "gib_out=1073741824", "currency=EUR"]
    costs.append(plan.one(tmp_path / "tiered", *(f"--price={text}" for text in texts))["cost"])

    expected: dict[str, object] = {
        "objects": 3,
        "requests": 3,
        "planning_requests": None,
        "size": size,
        "currency": "EUR",
    }
    expected |= {"money_for_requests": 0.0012, "money_for_bytes": float(size), "money": size + 0.0012}
    assert costs == [expected] * 3
    overridden = plan.one(tmp_path / "tiered", "--prices", tmp_path / "prices.toml", "--price", "get_per_1000=0")
    assert overridden["cost"]["money_for_requests"] == 0
    assert f"{size + 0.0012} EUR" in plan.table(tmp_path / "tiered", "--prices", tmp_path / "prices.toml")


def test_without_prices_there_is_no_money(tmp_path: Path, plan: Plan) -> None:
    write_local_tiered(tmp_path, "t", three_segments())

    cost = plan.one(tmp_path)["cost"]

    assert (cost["requests"], cost["currency"], cost["money"]) == (3, None, None)
    assert "--prices" in plan.table(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prices.json", "get_per_1000 = 1"),
        ("prices.json", "[1]"),
        ("prices.json", "[" * 60_000),
        ("prices.json", " " * 70_000),
        ("prices.json", '{"gib_out": 1e999999999}'),
        ("prices.toml", "a" * 100),
        ("prices.toml", "gib_out = inf"),
        ("prices.toml", "a." * 30_000),
        ("prices.toml", "gib_out = 1\ngib_out = 2"),
    ],
)
def test_a_price_table_that_is_none_is_refused(name: str, text: str, tmp_path: Path, plan: Plan) -> None:
    write_local_tiered(tmp_path / "tiered", "t", three_segments())
    (tmp_path / name).write_text(text)

    code, out, err = plan(tmp_path / "tiered", "--prices", tmp_path / name)

    assert (code, out) == (2, b"")
    assert "price" in err
    assert "internal" not in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--prices", "/nowhere/prices"], 3, "/nowhere/prices"),
        (["--price", "4"], 2, "NAME=VALUE"),
        (["--price", "gib_ot=4"], 2, "Did you mean 'gib_out'"),
        (["--price", "currency=USD"], 2, "without a price"),
        (["--split-bytes", "0"], 2, "--split-bytes"),
        (["other"], 3, "topic 'other' is not here"),
        (["--since", "tomorrow"], 2, "not a time"),
        (["--offsets", "4"], 2, "A:B"),
    ],
)
def test_a_request_that_cannot_be_met_says_why(
    arguments: list[str], code: int, said: str, tmp_path: Path, plan: Plan
) -> None:
    write_local_tiered(tmp_path, "t", three_segments())

    seen, out, err = plan(tmp_path, *arguments)

    assert (seen, out) == (code, b"")
    assert said in err


def test_the_table_has_each_split_if_that_is_wanted(tmp_path: Path, plan: Plan) -> None:
    directory = write_local_tiered(tmp_path, "t", three_segments())
    names = [path.name for path in directory.glob("*.log")]

    short, long = plan.table(tmp_path), plan.table(tmp_path, "--splits")

    assert "t-0" in short
    assert not any(name in short for name in names)
    assert all(name in long for name in names)


def test_a_topic_without_records_has_an_empty_plan(tmp_path: Path, plan: Plan) -> None:
    write_broker_log(tmp_path, "t", [SegmentBuilder()])

    found = plan.one(tmp_path)

    assert (splits(found), found["cost"]["requests"], len(found["partitions"])) == ([], 0, 1)
    assert "nothing to read" in plan.table(tmp_path)


def test_a_plan_of_what_is_beyond_the_end_says_where_the_log_ends(tmp_path: Path, plan: Plan) -> None:
    write_local_tiered(tmp_path, "t", three_segments())

    for option, note in (("--since", "is as new as"), ("--offsets", "has offset 99999 or a later one")):
        code, out, err = plan(tmp_path, option, "99999:" if option == "--offsets" else "-1h", form="table")
        assert code == 0
        assert out.decode().splitlines()[:2] == [
            "partition  splits  size (B)  stop  ends",
            "t-0             0         0    27  with the last segment; nothing to read",
        ]
        assert err.startswith(f"note: no record that can be read {note}")


def test_keys_and_credentials_are_in_no_plan(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("key", "secret", "token"):
        monkeypatch.setenv(f"SEGREADER_STORAGE_{name}", CANARIES[name])
    config = FIXTURES / "aiven-encrypted.properties"
    remote = CORPUS / "aiven-encrypted" / "remote"

    code, out, err = plan(remote, "bigger", "--rsm-config", config, "--price=gib_out=1")
    table = plan.table(remote, "bigger", "--rsm-config", config, "--splits")

    assert code == 0, err
    assert leaks(out.decode() + err + table) == []
    said = out.decode() + err + table
    assert not any(secret in said for secret in secrets_of(remote))


def secrets_of(remote: Path) -> Iterator[str]:
    """The wrapped keys of the segments, and the lines of the key files."""
    for name in remote.rglob("*.rsm-manifest"):
        yield json.loads(name.read_text())["encryption"]["dataKey"].partition(":")[2][:40]
    for name in (remote.parent / "keys").iterdir():
        yield from (line for line in name.read_text().splitlines() if not line.startswith("-----"))
