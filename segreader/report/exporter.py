"""``segreader verify --metrics``: verification again and again, and its results as metrics of Prometheus.

What Prometheus asks for is what the last run saw; only ages are those of the moment. A run that fails leaves the
numbers of the one before, and says so in ``segreader_verify_up``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from segreader.errors import OptionError, SegreaderError, install_hint, shown_count
from segreader.evidence.rules import RULES
from segreader.report.model import BucketReport, ReportedPartition

_OF_PARTITION: Final = ("topic", "topic_id", "partition")


class VerifyExporter:
    """Runs verification in a rhythm, and serves what it saw.

    Args:
        look: one run.
        every_s: seconds from the end of one run to the beginning of the next.
        clock: seconds since 1970 UTC.
    """

    def __init__(
        self, look: Callable[[], BucketReport], every_s: float, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._look, self._every_s, self._clock = look, every_s, clock
        self._wake: SimpleQueue[None] = SimpleQueue()  # unlike an event it may be set in a signal handler
        self._is_stopped = False
        self._last: BucketReport | None = None
        self._runs: Counter[str] = Counter()
        self._ended_s = 0.0
        self._took_s = 0.0
        self._is_up = False

    def stop(self) -> None:
        """End ``run`` as soon as the current look has ended, or at once between two. For signal handlers, too."""
        self._is_stopped = True
        self._wake.put(None)

    @property
    def is_stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._is_stopped

    def run(self, say: Callable[[str], None]) -> None:
        """Look until ``stop``.

        Args:
            say: called with a line about each run.

        Raises:
            SegreaderError: the first run failed: the location or an option is wrong. Later failures are counted.
        """
        while not self._is_stopped:
            began = time.monotonic()
            try:
                self._last = self._look()
            except SegreaderError as error:
                if self._last is None:
                    raise
                self._is_up = False
                self._runs["failed"] += 1
                say(f"error: {error}")
            else:
                self._is_up = True
                self._runs["ok"] += 1
                say(self._line(self._last, time.monotonic() - began))
            self._took_s, self._ended_s = time.monotonic() - began, self._clock()
            with suppress(Empty):
                self._wake.get(timeout=self._every_s)

    @staticmethod
    def _line(report: BucketReport, took_s: float) -> str:
        counts = report.severities
        errors = shown_count(counts.get("error", 0), "error")
        return f"{took_s:.1f} s: {errors}, {shown_count(counts.get('warning', 0), 'warning')}"

    def serve(self, host: str, port: int) -> Callable[[], None]:
        """Answer Prometheus from now on, in a thread; returns what ends that.

        Raises:
            OptionError: the package prometheus-client is missing, or the address cannot be had.
        """
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ModuleNotFoundError:
            raise OptionError("--metrics needs the package prometheus-client", hint=install_hint("gateway")) from None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as error:
            raise OptionError(
                "the address for metrics cannot be had", source=f"{host}:{port}", found=error.strerror
            ) from None

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return end

    def collect(self) -> Iterator[Any]:
        """Every metric, as prometheus-client asks for them."""
        from prometheus_client.core import CounterMetricFamily

        yield _gauge("segreader_verify_up", "Whether the last run could look at the location.", float(self._is_up))
        runs = CounterMetricFamily("segreader_verify_runs", "Runs that have ended.", labels=("result",))
        for result in ("ok", "failed"):
            runs.add_metric((result,), self._runs[result])
        yield runs
        last = self._last
        if last is None:
            return
        yield _gauge("segreader_verify_last_run_timestamp_seconds", "When the last run ended.", self._ended_s)
        yield _gauge("segreader_verify_last_run_duration_seconds", "How long the last run took.", self._took_s)
        yield self._findings(last)
        yield from self._of_partitions(last)

    @staticmethod
    def _findings(last: BucketReport) -> Any:
        """Every code that verification knows, those that were not found as 0: an alert sees them rise."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily("segreader_bucket_findings", "Findings by code.", labels=("code", "severity"))
        counts = Counter(one.code for one in last.findings)
        for code, rule in RULES.items():
            family.add_metric((code.value, rule.severity.value), counts[code])
        return family

    def _of_partitions(self, last: BucketReport) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        now_s = self._clock()
        for name, text, value in _PARTITION_METRICS:
            family = GaugeMetricFamily(name, text, labels=_OF_PARTITION)
            for one in last.partitions:
                if (number := value(one, now_s)) is not None:
                    family.add_metric(_labels(one), number)
            yield family


def _labels(one: ReportedPartition) -> tuple[str, str, str]:
    named = one.partition
    return (_label(named.topic), named.topic_id or "", str(named.partition))


def _label(text: str) -> str:
    """A name as UTF-8 can carry it: files may have names that are no text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _gauge(name: str, text: str, value: float) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)


_Value = Callable[[ReportedPartition, float], float | None]
_PARTITION_METRICS: Final[tuple[tuple[str, str, _Value], ...]] = (
    (
        "segreader_bucket_last_offset",
        "Last offset that was uploaded and is read.",
        lambda one, _: None if one.stop_offset is None else one.stop_offset - 1,
    ),
    (
        "segreader_bucket_last_record_timestamp_seconds",
        "The largest record time that was uploaded and is read.",
        lambda one, _: None if one.last_ms is None else one.last_ms / 1000,
    ),
    (
        "segreader_bucket_last_record_age_seconds",
        "How old that record is now.",
        lambda one, now_s: None if one.last_ms is None else now_s - one.last_ms / 1000,
    ),
    ("segreader_bucket_segments", "Segments that are there.", lambda one, _: len(one.segments)),
    ("segreader_bucket_stored_bytes", "Bytes of all its objects, as they are stored.", lambda one, _: one.stored),
    (
        "segreader_bucket_orphan_bytes",
        "Bytes of objects and of incomplete sets that belong to no segment.",
        lambda one, _: one.orphan_bytes,
    ),
)
