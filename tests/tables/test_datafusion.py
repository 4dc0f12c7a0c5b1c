"""DataFusion reads a registered topic by its fragments, with its filters pushed down."""

from __future__ import annotations

from pathlib import Path

import datafusion
import duckdb
import pyarrow as pa
import pytest
from corpus import CORPUS

from segreader.errors import CorruptBatchError
from segreader.tables.dataset import open_dataset
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

REMOTE = CORPUS / "tv2" / "remote"


@pytest.fixture(scope="module")
def whole() -> pa.Table:
    return open_dataset(REMOTE, split_bytes=4096).to_table()


@pytest.mark.parametrize(
    "where",
    [
        "true",
        "partition = 1",
        'partition <> 1 and "offset" between 5 and 50',
        '"offset" in (3, 7, 9)',
        "topic = 'multi' and \"offset\" > 100",
        "topic like 'txn%' or value is null",
        "timestamp > timestamp '2025-11-27 00:00:00'",
        '"offset" = 999999999',
    ],
)
def test_datafusion_gives_what_duckdb_gives_of_the_whole_table(where: str, whole: pa.Table) -> None:
    query = f'select topic, partition, count(*), count(value), sum("offset") from t where {where} group by 1, 2'
    context = datafusion.SessionContext()
    context.register_dataset("t", open_dataset(REMOTE, split_bytes=4096))
    with duckdb.connect() as connection:
        connection.register("t", whole)
        expected = sorted(connection.sql(query).fetchall())
    assert sorted(zip(*context.sql(query).to_pydict().values(), strict=True)) == expected


def test_an_error_of_a_fragment_ends_the_query_and_is_kept(tmp_path: Path) -> None:
    damaged = bytearray(SegmentBuilder().batch([b"a"]).to_bytes())
    damaged[-2] ^= 1
    write_local_tiered(tmp_path, "t", [SegmentBuilder().raw(bytes(damaged))])
    dataset = open_dataset(tmp_path)
    context = datafusion.SessionContext()
    context.register_dataset("t", dataset)
    with pytest.raises(Exception, match="CRC"):
        context.sql("select * from t").collect()
    assert isinstance(dataset.last_error, CorruptBatchError)
