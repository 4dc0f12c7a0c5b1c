"""Random questions to a topic: DuckDB, Polars and pyarrow give just what the same filter leaves of everything."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from corpus import Case, case, cases
from sample import at_edges, every, exhaustive

import segreader
from segreader.polars import lazy_frame
from segreader.tables.dataset import open_dataset
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import ProducerRecord

TOPICS = (
    "multi",
    "nulls",
    "ts-unordered",
    "ts-append",
    "compacted-then-tiered",
    "txn-interleaved",
    "txn-open",
    "txn-span",
    "epochs",
    "epochs-txn",
    "small-many",
    "odd-offsets",
)
LEVELS = ("read_committed", "read_uncommitted")
ORDER = ["topic", "partition", "offset"]
MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Question:
    """One condition as DuckDB, Polars and pyarrow say it."""

    def __init__(self, sql: str, polars: pl.Expr, arrow: pc.Expression) -> None:
        self.sql, self.polars, self.arrow = sql, polars, arrow


def compare(name: str, sign: str, value: Any, kind: pa.DataType) -> Question:
    """A comparison of a column with a value of its type."""
    signs = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
    method = signs[sign]
    return Question(
        f'"{name}" {sign} {literal(value)}',
        getattr(pl.col(name), method)(pl.lit(value, dtype=pl.Datetime("us", "UTC")) if is_time(value) else value),
        getattr(pc.field(name), method)(pa.scalar(value, kind)),
    )


def is_time(value: object) -> bool:
    return isinstance(value, datetime)


def literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if isinstance(value, datetime):
        return f"make_timestamptz({(value - EPOCH) // MICROSECOND})"
    return f"'{value}'" if isinstance(value, str) else str(value)


def leaf(chance: random.Random, table: pa.Table) -> Question:
    """A condition on one column, with values that are in the table, or near."""
    name = chance.choice(["topic", "partition", "offset", "offset", "timestamp", "timestamp", "value", "key"])
    kind, values = table.schema.field(name).type, table.column(name)
    if (name in ("value", "key") and chance.random() < 0.5) or not len(values):
        return Question(f'"{name}" is null', pl.col(name).is_null(), pc.field(name).is_null())

    def value() -> Any:
        found = values[chance.randrange(len(values))].as_py()
        if name == "offset":
            return max(0, found + chance.choice([-1, 0, 0, 1, 100000]))
        if name == "timestamp":
            return found + chance.choice([-1, 0, 0, 1]) * MICROSECOND
        return b"" if found is None else found

    how = chance.random()
    if name != "timestamp" and how < 0.2:
        some = [value() for _ in range(chance.randint(1, 4))]
        return Question(
            f'"{name}" in ({", ".join(map(literal, some))})',
            pl.col(name).is_in(some),
            # as in SQL: whether a null is in a list is not known, and neither is the contrary
            pc.if_else(
                pc.field(name).is_valid(), pc.field(name).isin(pa.array(some, kind)), pa.scalar(None, pa.bool_())
            ),
        )
    if name in ("offset", "timestamp") and how < 0.4:
        low, high = sorted((value(), value()))
        one, two = compare(name, ">=", low, kind), compare(name, "<=", high, kind)
        between = pl.col(name).is_between(low, high)
        return Question(f"({one.sql} and {two.sql})", between, one.arrow & two.arrow)
    return compare(name, chance.choice(["=", "!=", "<", "<=", ">", ">="]), value(), kind)


def question(chance: random.Random, table: pa.Table, depth: int = 2) -> Question:
    if depth == 0 or chance.random() < 0.3:
        return leaf(chance, table)
    one, two = question(chance, table, depth - 1), question(chance, table, depth - 1)
    if chance.random() < 0.15:
        return Question(f"(not {one.sql})", ~one.polars, ~one.arrow)
    if chance.random() < 0.6:
        return Question(f"({one.sql} and {two.sql})", one.polars & two.polars, one.arrow & two.arrow)
    return Question(f"({one.sql} or {two.sql})", one.polars | two.polars, one.arrow | two.arrow)


def hold_to_everything(chance: random.Random, rounds: int, location: Path, **arguments: Any) -> None:
    """Ask for random columns of random rows, of one dataset, three ways."""
    whole = segreader.scan(location, **arguments).to_arrow()
    dataset = open_dataset(location, split_bytes=chance.choice([1, 2000, 1 << 20]), threads=2, **arguments)
    frame = lazy_frame(dataset)
    connection = duckdb.connect(config={"threads": 2})
    connection.execute("set TimeZone = 'UTC'")
    connection.register("t", dataset)
    for _ in range(rounds):
        asked = question(chance, whole)
        names = chance.sample(whole.schema.names, chance.randint(1, 4))
        expected = whole.filter(asked.arrow).select(names)
        quoted = ", ".join(f'"{name}"' for name in names)
        order = ", ".join(f'"{name}"' for name in ORDER)
        assert dataset.to_table(columns=names, filter=asked.arrow).equals(expected), asked.sql
        assert dataset.count_rows(asked.arrow) == expected.num_rows, asked.sql
        found = connection.sql(f"select {quoted} from t where {asked.sql} order by {order}").to_arrow_table()
        assert found.cast(expected.schema).equals(expected), asked.sql
        [[count]] = connection.sql(f"select count(*) from t where {asked.sql}").fetchall()
        assert count == expected.num_rows, asked.sql
        rows = frame.filter(asked.polars).select(names).collect()
        assert rows.equals(pl.DataFrame(expected)), asked.sql
    connection.close()


@pytest.mark.parametrize("rounds", [3, exhaustive(12)])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("topic", TOPICS)
def test_a_random_filter_gives_what_it_leaves_of_everything(topic: str, level: str, rounds: int) -> None:
    one = case("tv2", topic)
    chance = random.Random(f"{topic} {level}")
    hold_to_everything(chance, rounds, one.root / "remote", topic=topic, isolation_level=level)


REMOTE_CASES = [one for one in cases(remote=True) if one.set_name != "aiven-encrypted" and one.topic != "recreated"]


@pytest.mark.parametrize("one", at_edges(REMOTE_CASES), ids=str)
def test_a_count_is_the_number_of_records_that_a_consumer_gets(one: Case) -> None:
    for level in LEVELS:
        arguments: dict[str, Any] = {"topic": one.topic, "isolation_level": level}
        records = segreader.scan(one.root / "remote", **arguments).to_arrow().num_rows
        assert open_dataset(one.root / "remote", **arguments).count_rows() == records


def test_a_filter_on_an_offset_gives_the_record_that_a_consumer_gets_there() -> None:
    """Two records of ``odd-offsets`` have offset 5, and two step back."""
    location = case("tv2", "odd-offsets").root / "remote"
    whole = segreader.scan(location, topic="odd-offsets").to_arrow()
    dataset = open_dataset(location, topic="odd-offsets")
    with duckdb.connect() as connection:
        connection.register("t", dataset)
        for offset in range(14):
            expected = whole.filter(offset == OFFSET).select(["value"])
            assert dataset.to_table(columns=["value"], filter=offset == OFFSET).equals(expected)
            found = connection.sql(f'select value from t where "offset" = {offset}').to_arrow_table()
            assert found.cast(expected.schema).equals(expected)
            rows = lazy_frame(dataset).filter(pl.col("offset") == offset).select("value").collect()
            assert rows.equals(pl.DataFrame(expected))


@pytest.mark.parametrize("topic", ["txn-open", "txn-interleaved", "epochs-txn", "compacted-then-tiered"])
def test_some_offsets_of_a_log_with_transactions_are_given_without_what_lies_between(topic: str) -> None:
    """A marker between two ranges is read with the batches of one, and passed over: nothing contradicts it."""
    location, chance = case("tv2", topic).root / "remote", random.Random(topic)
    whole = segreader.scan(location, topic=topic).to_arrow()
    offsets = whole.column("offset").to_pylist()
    listed = [[4, 28], [77, 92], [83, 118, 128, 129]] + [chance.sample(offsets, 2) for _ in range(60)]
    for some in listed:
        wanted = pc.field("offset").isin(pa.array(some, pa.int64()))
        dataset = open_dataset(location, topic=topic, split_bytes=chance.choice([4096, 1 << 28]))
        assert dataset.to_table(filter=wanted).equals(whole.filter(wanted)), some


OFFSET = pc.field("offset")


@pytest.mark.parametrize(
    "predicate",
    [
        OFFSET > 10.5,
        float("nan") > OFFSET,
        OFFSET.cast(pa.int32()) > 10,
        OFFSET.isin(pa.array([5.0, 7.5])),
        OFFSET * 3 > 100,
        pc.subtract_checked(pc.scalar(1 << 62), OFFSET * 4) > 0,
        pc.divide_checked(pc.scalar(100), OFFSET - (1 << 61)) == 0,
        (pc.field("partition") == 1) & (OFFSET * 3 > 100),
    ],
    ids=str,
)
def test_a_filter_that_reckons_with_offsets_has_to_suit_only_those_that_are_there(predicate: pc.Expression) -> None:
    location = case("tv2", "multi").root / "remote"
    expected = segreader.scan(location, topic="multi").to_arrow().filter(predicate)
    assert open_dataset(location, topic="multi").to_table(filter=predicate).equals(expected)


def odd_times(chance: random.Random, segments: int) -> list[SegmentBuilder]:
    """Segments whose times jump back and forth, some below 1970 and some without any record."""
    segment = SegmentBuilder(index_interval_bytes=200)
    built = []
    for _ in range(segments):
        center = chance.choice([-5_000_000, 0, 1_000, 1_700_000_000_000, 1_700_000_000_500])
        for _ in range(chance.randint(1, 6)):
            records = [
                ProducerRecord(
                    chance.choice([None, b"", b"x" * 40, b"y"]),
                    chance.choice([None, b"k"]),
                    timestamp_ms=center + chance.randint(-300, 300),
                )
                for _ in range(chance.randint(1, 9))
            ]
            segment.batch(records)
        built.append(segment)
        segment = segment.roll()
    return built


@pytest.mark.parametrize("seed", every(6, range(6)))
def test_times_that_jump_and_times_before_1970_cost_no_record(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for partition in range(3):
        write_local_tiered(tmp_path, "t", odd_times(chance, chance.randint(1, 6)), partition=partition)
    hold_to_everything(chance, 15, tmp_path, topic="t")


def test_an_empty_topic_is_an_empty_table(tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "t", [SegmentBuilder().empty_batch()])
    dataset = open_dataset(tmp_path)
    assert dataset.to_table().num_rows == dataset.count_rows() == 0
    assert lazy_frame(dataset).filter(pl.col("offset") > 3).collect().height == 0


def test_computed_columns_are_those_that_pyarrow_computes() -> None:
    one = case("tv2", "multi")
    columns = {"next": pc.add(pc.field("offset"), 1), "of": pc.field("partition")}
    dataset = open_dataset(one.root / "remote", topic="multi")
    table = dataset.to_table(columns=columns, filter=pc.field("offset") < 7)
    expected = segreader.scan(one.root / "remote", topic="multi", offsets="0:7").to_arrow()
    assert table["next"].to_pylist() == [offset + 1 for offset in expected["offset"].to_pylist()]
    assert table["of"].to_pylist() == expected["partition"].to_pylist()
