"""Names of files: those of a broker and of ``LocalTieredStorage``, as the corpus has them."""

from __future__ import annotations

import re
from pathlib import Path

from corpus import case

from segreader.testing import SegmentBuilder
from segreader.testing.directory import (
    broker_log_files,
    kafka_uuid,
    local_tiered_files,
    write_broker_log,
    write_local_tiered,
)


def two_segments() -> list[SegmentBuilder]:
    first = SegmentBuilder(index_interval_bytes=1).batch([b"a"], producer_id=1, transactional=True).batch([b"b"])
    return [first, first.roll().marker(1, abort=True).batch([b"c"])]


def shapes(names: list[str]) -> set[str]:
    """Names with their ids and offsets blotted out."""
    return {re.sub(r"-[\w-]{22}(?=[./])", "-<id>", re.sub(r"\d{20}", "<offset>", name)) for name in names}


def test_remote_names_have_the_shape_of_real_ones() -> None:
    real = [f"t-0-{path.parent.name[-22:]}/{path.name}" for path in case("tv2", "txn-span").remote[0].iterdir()]

    assert shapes(list(local_tiered_files("t", two_segments()))) == shapes(real)


def test_broker_names_have_the_shape_of_real_ones() -> None:
    real = [f"t-0/{path.name}" for path in case("tv2", "txn-marker-active").local[0].iterdir()]

    assert shapes(list(broker_log_files("t", two_segments()))) == shapes(real)


def test_a_remote_snapshot_is_the_local_one_of_the_next_segment() -> None:
    remote = local_tiered_files("t", two_segments())
    local = broker_log_files("t", two_segments())
    first = next(data for name, data in remote.items() if "00-" in name and name.endswith(".snapshot"))

    assert first == local["t-0/00000000000000000002.snapshot"]
    assert "t-0/00000000000000000000.snapshot" not in local
    assert "t-0/00000000000000000004.snapshot" in local


def test_only_a_segment_with_an_abort_has_a_transaction_index() -> None:
    names = [name for name in broker_log_files("t", two_segments()) if name.endswith(".txnindex")]

    assert names == ["t-0/00000000000000000002.txnindex"]


def test_ids_are_the_same_every_time_and_differ_between_segments() -> None:
    names = list(local_tiered_files("t", two_segments()))

    assert names == list(local_tiered_files("t", two_segments()))
    assert len({name.partition("/")[2][21:43] for name in names}) == 2
    assert len(kafka_uuid("t")) == 22


def test_a_running_broker_has_preallocated_indexes() -> None:
    local = broker_log_files("t", two_segments(), preallocated=100)
    index, times = (local[f"t-0/00000000000000000002.{suffix}"] for suffix in ("index", "timeindex"))

    assert (len(index), len(times)) == (96, 96)
    assert (index[:8], index[8:]) == (two_segments()[1].index(), bytes(88))
    assert times[-12:] == bytes(12)


def test_what_is_written_is_what_was_named(tmp_path: Path) -> None:
    remote = write_local_tiered(tmp_path / "remote", "t", two_segments(), topic_id="LWgrMmVrT0a__7a4SasuPA")
    local = write_broker_log(tmp_path / "local", "t", two_segments(), partition=3)

    assert remote == tmp_path / "remote" / "t-0-LWgrMmVrT0a__7a4SasuPA"
    assert local == tmp_path / "local" / "t-3"
    for path, data in broker_log_files("t", two_segments(), partition=3).items():
        assert (tmp_path / "local" / path).read_bytes() == data
