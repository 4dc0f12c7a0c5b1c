"""What a read cost and what it met: counted while it runs, shown when it is done."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import field, fields
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import pyarrow as pa

from segreader.format.kernel import kernel_name
from segreader.plan.live import ReadFrom
from segreader.plan.split import ReadPlan
from segreader.segment import TopicIdPartition
from segreader.values import dataclass

if TYPE_CHECKING:
    from segreader.storage.metrics import StorageMetrics

_Batch = TypeVar("_Batch")
_STATIONS: Final = ("cpu_read_s", "cpu_crc_s", "cpu_decompress_s", "cpu_records_s", "cpu_values_s", "cpu_arrow_s")
_NO_TIME: Final = array("q", (0, 0, 0))
_FIRST: Final = 2
_EVERY: Final = 16
"""The first two stretches of a read are measured, and then one of sixteen."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A damaged part that was left out because ``on_corrupt`` is ``skip``.

    ``start`` and ``stop`` are bytes of ``source``; ``error`` says what was wrong.
    """

    source: str
    start: int
    stop: int
    error: str

    @property
    def text(self) -> str:
        """What was left out, for people."""
        return f"bytes {self.start} to {self.stop} of {self.source}: {self.error.removeprefix(f'{self.source}: ')}"


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """Offsets ``start <= offset < stop`` whose segment vanished between plan and read, with ``on_missing='skip'``."""

    partition: TopicIdPartition
    start: int
    stop: int | None
    error: str

    @property
    def text(self) -> str:
        """What is missing, for people."""
        last = "the end" if self.stop is None else self.stop - 1
        return f"{self.partition}: offsets {self.start} to {last}: {self.error}"


@dataclass(slots=True)
class ScanMetrics:
    """Counters of one scan. ``kernel`` says which decoder ran: ``native`` or ``reference``.

    Batches are those that were met, records those of the offsets that were wanted. ``doubts`` counts the notes on
    damage that was passed over and left out no batch: neighbours, indexes or markers contradict each other.
    ``early_ends`` counts the splits that ended before a transaction whose marker contradicts the indexes.
    ``undecodable`` counts the keys and values that are not what their schemas say, and were left out.

    The rest is what the read has cost up to its last record batch, and differs from one read to the next, so it does
    not count for ``==``. ``seconds`` (wall) and ``cpu_seconds`` (of the whole process) include the plan and what the
    consumer did between two batches; ``first_record_s`` is the wall time up to the first batch, ``None`` before it.
    ``cpu_…_s`` is the CPU time of all threads in one station: ``read`` (fetching bytes from the store), ``crc``,
    ``decompress``, ``records`` (decoding them, and deciding which are delivered), ``values`` (decoding keys and values
    by their schemas) and ``arrow`` (wrapping columns as record batches). In a long read one part in sixteen is
    measured. ``bodies_in_flight_mean`` and ``bodies_in_flight_most`` count the responses that arrived at a time since
    the store was opened; 0 for files.
    """

    kernel: str = field(default_factory=kernel_name)
    splits: int = 0
    requests: int = 0
    bytes_read: int = 0
    batches: int = 0
    control_batches: int = 0
    aborted_batches: int = 0
    control_records: int = 0
    aborted_records: int = 0
    records: int = 0
    body_bytes: int = 0
    holes: list[Hole] = field(default_factory=list)
    missing: list[MissingOffsets] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    doubts: int = 0
    early_ends: int = 0
    undecodable: int = 0
    seconds: float = field(default=0.0, compare=False)
    cpu_seconds: float = field(default=0.0, compare=False)
    first_record_s: float | None = field(default=None, compare=False)
    cpu_read_s: float = field(default=0.0, compare=False)
    cpu_crc_s: float = field(default=0.0, compare=False)
    cpu_decompress_s: float = field(default=0.0, compare=False)
    cpu_records_s: float = field(default=0.0, compare=False)
    cpu_values_s: float = field(default=0.0, compare=False)
    cpu_arrow_s: float = field(default=0.0, compare=False)
    bodies_in_flight_mean: float = field(default=0.0, compare=False)
    bodies_in_flight_most: int = field(default=0, compare=False)

    @property
    def mb_per_s(self) -> float:
        """Stored bytes that were read, in 10^6 a second of ``seconds``."""
        return self.bytes_read / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def native_codecs(self) -> tuple[str, ...]:
        """The codecs that the native kernel decompresses itself."""
        from segreader.format import native_codecs

        return native_codecs.found() if self.kernel == "native" else ()

    def doubt(self, error: Exception) -> None:
        """Note damage that is passed over and leaves out no batch."""
        self.notes.append(str(error))
        self.doubts += 1

    def leave_out(self, text: str) -> None:
        """Count a key or value that is undecodable; the first few have a note of their own."""
        self.undecodable += 1
        if self.undecodable <= _NOTED:
            self.notes.append(text)

    def add(self, other: ScanMetrics) -> None:
        """Count in what another reader of the same scan has counted."""
        for one in fields(ScanMetrics):
            mine, others = getattr(self, one.name), getattr(other, one.name)
            if one.name == "kernel":
                self.kernel = others
            elif one.name == "first_record_s":
                self.first_record_s = min((s for s in (mine, others) if s is not None), default=None)
            elif one.name.startswith("bodies_in_flight"):
                setattr(self, one.name, max(mine, others))
            else:
                setattr(self, one.name, mine + others)

    def cost(self) -> dict[str, float | int | str | None]:
        """What the read has cost, by name, as ``cat --stats`` shows it."""
        shown: dict[str, float | int | str | None] = {name: getattr(self, name) for name in COST}
        shown["mb_per_s"] = self.mb_per_s
        shown["native_codecs"] = ",".join(self.native_codecs) or "none"
        return shown


_NOTED: Final = 3
"""Of the undecodable values of one reader, so many are named."""

COST: Final = tuple(one.name for one in fields(ScanMetrics) if not one.compare)
"""The fields that tell what a read has cost."""


class Seconds(NamedTuple):
    """How long something took, by the clock on the wall and in CPU time of the process."""

    wall: float = 0.0
    cpu: float = 0.0


class Stopwatch:
    """Runs from the moment when it is made.

    Args:
        before: counts, too.
    """

    def __init__(self, before: Seconds | None = None) -> None:
        wall, cpu = before or Seconds()
        self._wall, self._cpu = time.perf_counter() - wall, time.process_time() - cpu

    def so_far(self) -> Seconds:
        """How long it has run."""
        return Seconds(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def timed(
    batches: Generator[_Batch, None, None], metrics: ScanMetrics, stored: StorageMetrics | None, watch: Stopwatch
) -> Generator[_Batch, None, None]:
    """The record batches of a read, the cost of which is noted as they come.

    Args:
        stored: of the store that is read.
        watch: runs since the read began.
    """

    def note() -> None:
        metrics.seconds, metrics.cpu_seconds = watch.so_far()
        if stored is not None:
            metrics.cpu_read_s += stored.take_thread_cpu()
            metrics.bodies_in_flight_mean = stored.bodies_in_flight_mean
            metrics.bodies_in_flight_most = stored.bodies_in_flight_most

    with closing(batches):
        try:
            for batch in batches:
                note()
                if metrics.first_record_s is None:
                    metrics.first_record_s = metrics.seconds
                yield batch
                del batch  # its buffers are free while the next one is decoded
        finally:
            note()


class StationClock:
    """Counts the CPU time of one thread for the station in which it was spent.

    The clock of a thread costs a system call. So of the stretches between two record batches only some are measured,
    and count for those before them, too.

    Args:
        kernel_ns: what the kernel spent, see ``Spent``; it is set to zero here.
    """

    __slots__ = ("_counted", "_ended", "_is_on", "_kernel_ns", "_last", "_model", "_spent", "metrics")

    def __init__(self, metrics: ScanMetrics, kernel_ns: array[int]) -> None:
        self.metrics, self._kernel_ns, self._last = metrics, kernel_ns, 0
        self._ended = self._counted = 0  # stretches
        self._is_on = True
        self._spent, self._model = [0.0] * len(_STATIONS), [0.0] * len(_STATIONS)

    def enter(self) -> None:
        """A split begins: what was spent up to now belongs to no station."""
        if self._is_on:
            self._begin()

    def leave(self) -> None:
        """A split ends: count what was spent since its last record batch, and the stretches that were not measured."""
        if self._is_on:
            self._add(self._spent, 1)
            self._spent = [0.0] * len(_STATIONS)
        if self._counted < self._ended:
            self._add(self._model, self._ended - self._counted)
            self._counted = self._ended

    def restart(self) -> None:
        """The next record batch is asked for: what was spent up to now belongs to no station."""
        self._end_stretch()
        self._ended += 1
        self._is_on = self._ended < _FIRST or self._ended % _EVERY == _EVERY // 2
        if self._is_on:
            self._spent = [0.0] * len(_STATIONS)
            self._begin()

    def end_read(self) -> None:
        """Bytes were fetched since the last call."""
        if self._is_on:
            self._spent[0] += self._lap()

    def end_crc(self) -> None:
        """CRCs were computed since the last call."""
        if self._is_on:
            self._spent[1] += self._lap()

    def end_decode(self) -> None:
        """Batches were decoded since the last call."""
        if self._is_on:
            crc, body, whole = self._kernel_ns
            self._kernel_ns[:] = _NO_TIME
            lap = self._lap()
            scale = lap / max(whole, crc + body, 1)
            self._spent[1] += crc * scale
            self._spent[2] += body * scale
            self._spent[3] += max(0.0, lap - (crc + body) * scale)  # rounding may leave less than nothing

    def end_values(self) -> None:
        """Keys and values were decoded since the last call."""
        if self._is_on:
            self._spent[4] += self._lap()

    def end_arrow(self) -> None:
        """Columns were wrapped since the last call, and a record batch is given: ``restart`` when it is back."""
        if self._is_on:
            self._spent[5] += self._lap()
            self._end_stretch()

    def _end_stretch(self) -> None:
        if self._is_on:
            self._add(self._spent, self._ended + 1 - self._counted)
            self._model, self._counted, self._is_on = self._spent, self._ended + 1, False

    def _begin(self) -> None:
        self._kernel_ns[:] = _NO_TIME
        self._last = time.thread_time_ns()

    def _lap(self) -> float:
        before, self._last = self._last, time.thread_time_ns()
        return (self._last - before) / 1e9

    def _add(self, spent: list[float], times: int) -> None:
        for name, seconds in zip(_STATIONS, spent, strict=True):
            setattr(self.metrics, name, getattr(self.metrics, name) + times * seconds)


def lacks(plan: ReadPlan, metrics: ScanMetrics) -> bool:
    """Whether a read lacks records that its options let it go on without, or passed over damage that may hide some."""
    is_cut = any(end.damage is not None for end in plan.ends)
    return bool(metrics.holes or metrics.missing or metrics.doubts or metrics.undecodable or plan.gaps or is_cut)


def texts_of(plan: ReadPlan, metrics: ScanMetrics) -> list[str]:
    """What people should know of a read: its notes, what it lacks, and where records end before the data does."""
    return list(
        dict.fromkeys(
            [
                *(f"note: {note}" for note in metrics.notes),
                *(f"left out: {hole.text}" for hole in metrics.holes),
                *(f"missing: {one.text}" for one in metrics.missing),
                *(f"missing: {gap.text}" for gap in plan.gaps),
                *(end.text for end in plan.ends if end.reason.is_early),
            ]
        )
    )


@dataclass(slots=True)
class SourceMetrics:
    """Of one source.

    Args:
        parts: of the plan that were read from it; a part that fell back counts for both.
        records: delivered.
        bytes_read: stored bytes of the batches that were looked at.
        requests: pieces of objects, or Fetch answers with records.
    """

    parts: int = 0
    records: int = 0
    bytes_read: int = 0
    requests: int = 0


@dataclass(slots=True)
class LiveMetrics(ScanMetrics):
    """Counters of one scan of live data; those of ``ScanMetrics`` are of all sources together.

    Args:
        sources: by ``store``, ``location`` and ``broker``.
        locations_asked, locations_given, locations_rejected: of the location extension, planning included.
        url_refreshes: URLs that were asked for again.
        fallbacks: how often the broker's records were taken in place of the object store's, by cause.
        broker_requests: by the API's name, planning included.
    """

    sources: dict[str, SourceMetrics] = field(default_factory=lambda: {one.value: SourceMetrics() for one in ReadFrom})
    locations_asked: int = 0
    locations_given: int = 0
    locations_rejected: int = 0
    url_refreshes: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    broker_requests: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, int]:
        """What is counted besides ``ScanMetrics``, by flat names: ``broker_records``, ``fallbacks_expired`` …"""
        rows = {
            f"{source}_{name}": getattr(counts, name)
            for source, counts in self.sources.items()
            for name in ("parts", "records", "bytes_read", "requests")
        }
        rows["broker_fetches"] = rows.pop("broker_requests")
        for name in ("locations_asked", "locations_given", "locations_rejected", "url_refreshes"):
            rows[name] = getattr(self, name)
        rows |= {f"fallbacks_{cause}": count for cause, count in sorted(self.fallbacks.items())}
        return rows | {f"broker_requests_{api}": count for api, count in sorted(self.broker_requests.items())}

    def counted(self, source: ReadFrom, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The record batches, with what they cost counted for their source."""
        mine = self.sources[source.value]
        while True:
            before = (self.records, self.bytes_read, self.requests)
            try:
                batch = next(batches, None)
            finally:
                mine.records += self.records - before[0]
                mine.bytes_read += self.bytes_read - before[1]
                mine.requests += self.requests - before[2]
            if batch is None:
                return
            yield batch
