"""What was measured, against what it should be, and how that is printed."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

MIB = 1 << 20
PACKAGES = ("aiokafka", "pyarrow", "crc32c", "lz4", "zstandard", "cramjam", "isal")

RATIO_TARGETS = {  # times aiokafka, at least
    "100 B": {"none": 10, "lz4": 6, "zstd": 4, "snappy": 5, "gzip": 3.5},
    "1 KiB, 2 headers": {"none": 7, "lz4": 4, "zstd": 2.5, "snappy": 3, "gzip": 4},
    "10 KiB": {"none": 4, "lz4": 2, "zstd": 1.5, "snappy": 1.6, "gzip": 2.5},
}
HELP_TARGET_MS = 150

_ROW = "{:<15}{:>7}{:>7}{:>20}{:>8}{:>6}{:>9}{:>7}{:>10}"


@dataclass(frozen=True, slots=True)
class Peak:
    """By how much one scan raised the peak memory of a process that had imported everything."""

    codec: str
    peak_bytes: int
    largest_batch: int

    @property
    def target_bytes(self) -> int:
        return 24 * MIB + 3 * self.largest_batch

    @property
    def is_met(self) -> bool:
        return self.peak_bytes <= self.target_bytes


@dataclass(frozen=True, slots=True)
class Result:
    """One codec at one size of values. The times are thread CPU seconds, one a round, of the same rounds."""

    shape: str
    codec: str
    records: int
    stored_bytes: int
    body_bytes: int
    payload_bytes: int
    segreader_s: tuple[float, ...]
    aiokafka_s: tuple[float, ...]
    floor_s: tuple[float, ...]
    peak: Peak

    @property
    def target(self) -> float:
        return RATIO_TARGETS[self.shape][self.codec.partition("-")[0]]

    @property
    def ratios(self) -> list[float]:
        """Times aiokafka, round by round."""
        return [theirs / ours for theirs, ours in zip(self.aiokafka_s, self.segreader_s, strict=True)]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def is_met(self) -> bool:
        return self.ratio >= self.target

    @property
    def ceiling(self) -> float:
        """Times aiokafka if the floor were all there is to do."""
        return median(theirs / floor for theirs, floor in zip(self.aiokafka_s, self.floor_s, strict=True))

    @property
    def floor_share(self) -> float:
        """How much of segreader's time is reading, CRC and decompression."""
        return median(floor / ours for floor, ours in zip(self.floor_s, self.segreader_s, strict=True))


def print_machine() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    print(f"{next(names, platform.machine())}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(", ".join(f"{package} {version(package)}" for package in PACKAGES))
    if find_spec("pandas"):
        print("pandas is installed: pyarrow imports it, and garbage collection costs aiokafka more than without it")


def print_heading(shape: str) -> None:
    print(f"\nValues of {shape}")
    print(_ROW.format("codec", "stored", "MB/s", "times aiokafka", "target", "", "ceiling", "floor", "peak MiB"))


def print_result(result: Result) -> None:
    low, high = min(result.ratios), max(result.ratios)
    print(
        _ROW.format(
            result.codec,
            f"{100 * result.stored_bytes / result.body_bytes:.0f} %",
            f"{result.payload_bytes / median(result.segreader_s) / 1e6:.0f}",
            f"{result.ratio:.2f} ({low:.1f}-{high:.1f})",
            f"{result.target:g}",
            verdict(result.is_met),
            f"{result.ceiling:.1f}",
            f"{100 * result.floor_share:.0f} %",
            f"{result.peak.peak_bytes / MIB:.1f}",
        ),
        flush=True,
    )


def print_peaks(results: list[Result], large: list[Peak]) -> None:
    small = max((result.peak for result in results), key=lambda peak: peak.peak_bytes)
    print("\nPeak memory over imports; at most 24 MiB and three times the largest batch")
    for name, peak in [("16 KiB batches", small), *(("large batches", peak) for peak in large)]:
        print(
            f"{name}, {peak.codec}: {peak.peak_bytes / MIB:.1f} MiB"
            f" of {peak.target_bytes / MIB:.1f} (batch {peak.largest_batch / MIB:.2f}): {verdict(peak.is_met)}"
        )


def print_kernels(seconds: dict[str, float]) -> None:
    times = seconds["reference"] / seconds["native"]
    print(f"\nThe native kernel takes 1/{times:.0f} of the reference kernel's time (100 B, none)")


def print_help(milliseconds: float | None) -> None:
    if milliseconds is None:
        print("segreader --help: not measured, it does not run here")
        return
    is_met = milliseconds <= HELP_TARGET_MS
    print(f"segreader --help: {milliseconds:.0f} ms CPU of {HELP_TARGET_MS}: {verdict(is_met)}")


def print_misses(results: list[Result], large: list[Peak], help_ms: float | None) -> None:
    missed = [f"{result.codec} at {result.shape}" for result in results if not result.is_met]
    missed += [f"peak memory of {result.codec} at {result.shape}" for result in results if not result.peak.is_met]
    missed += [f"peak memory of large batches {peak.codec}" for peak in large if not peak.is_met]
    if help_ms is not None and help_ms > HELP_TARGET_MS:
        missed.append("segreader --help")
    print("\nMissed: " + "; ".join(missed) if missed else "\nEvery target is met")


def verdict(is_met: bool) -> str:
    return "met" if is_met else "MISS"
