"""A table in pieces: each split is a fragment that is read by itself, with exact filters."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from corpus import CORPUS
from sample import every

from segreader.errors import CorruptBatchError, OptionError
from segreader.loader import LoadQuery, ResumableReader, SplitEnumerator
from segreader.read.arrow import schema
from segreader.tables.dataset import TopicDataset, open_dataset
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

REMOTE = CORPUS / "tv2" / "remote"


def joined(dataset: TopicDataset, filter: pc.Expression | None = None) -> pa.Table:
    tables = [fragment.to_table(filter=filter) for fragment in dataset.get_fragments(filter)]
    return pa.concat_tables(tables) if tables else dataset.schema.empty_table()


def test_fragments_are_the_splits_and_together_all_rows_in_order() -> None:
    with_fragments, whole = (open_dataset(REMOTE, split_bytes=4096) for _ in range(2))
    fragments = list(with_fragments.get_fragments())
    assert with_fragments.last_plan is not None
    assert len(fragments) == len(with_fragments.last_plan.splits) > len(with_fragments.last_plan.ends)
    assert joined(with_fragments).equals(whole.to_table())
    assert sum(fragment.count_rows() for fragment in fragments) == whole.count_rows()


@pytest.mark.parametrize("seed", every(3, range(6)))
def test_a_filter_of_a_fragment_is_exact(seed: int) -> None:
    dice = random.Random(seed)
    first = dice.randrange(3000)
    filters = [
        pc.field("partition") == dice.randrange(5),
        (pc.field("offset") >= first) & (pc.field("offset") < first + dice.randrange(1, 40)),
        pc.field("offset").isin([first, first + 7, 5]),
        pc.field("value").is_null() | (pc.field("offset") == first),
        ~(pc.field("partition") == dice.randrange(5)),
    ]
    dataset = open_dataset(REMOTE, topic="multi", split_bytes=dice.choice([1024, 4096, 1 << 20]))
    everything = dataset.to_table()
    for filter in filters:
        expected = everything.filter(filter)
        assert joined(dataset, filter).equals(expected)
        unplanned = [fragment.to_table(columns=["offset"], filter=filter) for fragment in dataset.get_fragments()]
        assert pa.concat_tables(unplanned).equals(expected.select(["offset"]))
    assert [fragment.physical_schema for fragment in dataset.get_fragments(pc.field("offset") < 0)] == []


def test_fragments_are_read_by_many_threads_at_once() -> None:
    dataset = open_dataset(REMOTE, topic="multi", split_bytes=2048)
    fragments = list(dataset.get_fragments())
    with ThreadPoolExecutor(8) as threads:
        tables = list(threads.map(lambda one: one.to_table(), fragments))
    assert pa.concat_tables(tables).equals(dataset.to_table())


def damaged(root: Path) -> Path:
    """Partition 0 is sound; of partition 1 the last batch of the first of two segments is damaged."""
    write_local_tiered(root, "t", [SegmentBuilder().batch([b"sound"])])
    first = SegmentBuilder(index_interval_bytes=1).batch([b"a"]).batch([b"b"])
    place = write_local_tiered(root, "t", [first, first.roll().batch([b"c"])], partition=1)
    (log,) = place.glob("0*00-*.log")
    data = bytearray(log.read_bytes())
    data[-2] ^= 1
    log.write_bytes(data)
    return root


def test_damage_is_the_error_of_its_own_fragment(tmp_path: Path) -> None:
    dataset = open_dataset(damaged(tmp_path), columns=["offset"])
    sound, broken, last = dataset.get_fragments()
    assert (sound.count_rows(), last.count_rows()) == (1, 1)
    with pytest.raises(CorruptBatchError):
        broken.to_table()
    assert isinstance(dataset.last_error, CorruptBatchError)
    skipping = open_dataset(tmp_path, on_corrupt="skip", columns=["offset"])
    assert joined(skipping)["offset"].to_pylist() == [0, 0, 2]
    skipping.keeps_reads = True
    joined(skipping)
    ((plan, metrics),) = skipping.reads
    assert len(plan.splits) == 3
    assert (len(metrics.holes), metrics.records) == (1, 3)


def test_a_fragment_takes_only_the_columns_of_its_topic() -> None:
    fragment = next(open_dataset(REMOTE, topic="multi").get_fragments())
    assert fragment.head(2, columns=["offset"])["offset"].to_pylist() == [0, 1]
    assert fragment.scanner(fragment.physical_schema, ["value"]).projected_schema.names == ["value"]
    with pytest.raises(OptionError, match="the columns of its topic"):
        fragment.scanner(pa.schema([("other", pa.int64())]))


@pytest.mark.parametrize("columns", [("offset", "value"), ("topic", "headers", "leader_epoch", "timestamp")])
def test_the_schema_of_a_query_is_that_of_what_it_loads(columns: tuple[str, ...]) -> None:
    query = LoadQuery(location=str(REMOTE), topic="multi", columns=columns)
    assert query.schema.equals(schema(columns))
    with SplitEnumerator(query) as enumerator, ResumableReader(enumerator.discover()[0], query) as reader:
        batch = reader.read()
    assert batch is not None
    assert batch.schema.equals(query.schema)


def test_a_table_of_nothing_new_has_a_note_of_the_newest_time() -> None:
    dataset = open_dataset(REMOTE, topic="multi", since="-1h")
    for filter in (None, pc.field("partition") == 1):
        assert dataset.to_table(filter=filter).num_rows == 0
        (note,) = dataset.metrics.notes
        assert "the newest time there is 2025-11-27T01:38:13.25" in note
    assert open_dataset(REMOTE, topic="multi", since=0).to_table(filter=pc.field("offset") < 0).num_rows == 0
