"""What a read has cost: how long it took, and in which station the CPU time was spent."""

from __future__ import annotations

from array import array
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import segreader
from segreader.format.compression import Codec
from segreader.read.metrics import COST, ScanMetrics, StationClock
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

STATIONS = ("cpu_read_s", "cpu_crc_s", "cpu_decompress_s", "cpu_records_s", "cpu_arrow_s")


def log(root: Path, codec: Codec, batches: int = 400) -> Path:
    segments = []
    for number in range(3):
        segments.append(SegmentBuilder(number * batches * 50))
        for _ in range(batches):
            segments[-1].batch([b"value " * 40] * 50, codec=codec)
    write_local_tiered(root, "orders", segments)
    return root


def cost(place: Path, **options: Any) -> ScanMetrics:
    with segreader.scan(place, **options) as scan:
        assert sum(batch.num_rows for batch in scan.to_batches()) == scan.metrics.records
        return scan.metrics


def stations(metrics: ScanMetrics) -> float:
    return float(sum(getattr(metrics, name) for name in STATIONS))


@pytest.mark.parametrize("kernel", ["native", "reference"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_stations_take_most_of_the_cpu_of_a_read_and_no_more(tmp_path: Path, threads: int, kernel: str) -> None:
    place = log(tmp_path, Codec.LZ4, 400 if kernel == "native" else 40)
    cost(place)  # imports

    def attempt() -> bool:
        found = cost(place, threads=threads, batch_rows=500, kernel=kernel)
        assert all(getattr(found, name) > 0 for name in STATIONS)
        return 0.25 * found.cpu_seconds < stations(found) < 1.5 * found.cpu_seconds

    assert any(attempt() for _ in range(3))  # only some stretches are measured: a disturbed one counts for many


@pytest.mark.parametrize("kernel", ["native", "reference"])
def test_nothing_is_spent_on_decompression_where_nothing_is_compressed(tmp_path: Path, kernel: str) -> None:
    place = log(tmp_path, Codec.NONE, 20)
    found = cost(place, kernel=kernel)
    assert found.cpu_decompress_s == 0
    assert found.cpu_crc_s > 0
    assert cost(place, kernel=kernel, check_crcs=False).cpu_crc_s < found.cpu_records_s


def test_no_station_takes_less_than_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for lap in range(1, 500):  # seconds of which some cannot be divided without a remainder
        monkeypatch.setattr(StationClock, "_lap", lambda clock, lap=lap: lap / 1e6)
        clock = StationClock(metrics := ScanMetrics(), array("q", [13, 70_001, 0]))
        clock.end_decode()
        clock.leave()
        assert f"{metrics.cpu_records_s:.4f}" == "0.0000"


def test_counts_are_those_of_one_thread_and_costs_do_not_count(tmp_path: Path) -> None:
    place = log(tmp_path, Codec.LZ4, 30)
    alone = cost(place, threads=1)
    for threads in (2, 8):
        found = cost(place, threads=threads)
        assert found == alone
        assert stations(found) > 0


def test_the_clocks_of_a_read_include_its_plan(tmp_path: Path) -> None:
    place = log(tmp_path, Codec.NONE, 10)
    with segreader.scan(place) as scan:
        scan.plan()
        with closing(scan.to_batches()) as batches:  # type: ignore[type-var]
            next(batches)
            first = scan.metrics.first_record_s
            assert first is not None
            assert 0 < first <= scan.metrics.seconds
            assert scan.metrics.cpu_seconds > 0
        assert scan.metrics.first_record_s == first
        assert scan.metrics.seconds > first
        assert scan.metrics.mb_per_s == pytest.approx(scan.metrics.bytes_read / scan.metrics.seconds / 1e6)


def test_costs_add_up() -> None:
    one, other = ScanMetrics(seconds=1, cpu_read_s=0.5), ScanMetrics(seconds=2, cpu_read_s=0.25, first_record_s=0.5)
    one.bodies_in_flight_most, other.bodies_in_flight_most = 3, 2
    one.add(other)
    assert (one.seconds, one.cpu_read_s, one.first_record_s, one.bodies_in_flight_most) == (3, 0.75, 0.5, 3)


def test_the_cost_shows_every_field_that_does_not_count_for_equality() -> None:
    shown = ScanMetrics().cost()
    assert set(COST) < set(shown)
    assert shown["native_codecs"] == (",".join(ScanMetrics().native_codecs) or "none")
    assert ScanMetrics(kernel="reference").native_codecs == ()
