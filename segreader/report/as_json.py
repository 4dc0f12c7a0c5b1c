"""The report as JSON, with a version; and what has changed between one that was saved and the one of now."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from segreader.errors import OptionError
from segreader.report.model import BucketReport, ReportedPartition, ReportedSegment, ReportedTopic
from segreader.values import dataclass

VERSION: Final = 1
"""Of the JSON: a field that changes its meaning, or goes, makes it another one; new fields do not."""

_FORMAT: Final = "segreader-report"

Row = dict[str, Any]
Topic = tuple[str, str | None]
"""Name and id."""


def report_row(report: BucketReport) -> Row:
    """Everything that the report says, as one object for JSON. Times are ms since 1970 UTC, sizes bytes."""
    bill = report.bill
    return {
        "format": _FORMAT,
        "version": VERSION,
        "location": report.location,
        "made": report.made_ms,
        "deep": report.is_deep,
        "findings": [one.as_row() for one in report.findings],
        "totals": {
            "topics": len(report.topics),
            "partitions": len(report.partitions),
            "segments": sum(1 for topic in report.topics for _ in topic.segments()),
            "size": bill.size,
            "stored": bill.stored,
            "objects": bill.objects,
            "orphan_bytes": sum(one.orphan_bytes for one in report.partitions),
        },
        "bill": {
            "list_requests": bill.listings,
            "get_requests": bill.requests,
            "month": _money(bill.month),
            "read_once": _money(bill.read_once),
            "currency": report.prices.currency if report.prices is not None else None,
        },
        "topics": [_topic(one) for one in report.topics],
        "notes": list(report.notes),
    }


def _topic(one: ReportedTopic) -> Row:
    return {
        "topic": one.topic,
        "topic_id": one.topic_id,
        "size": one.size,
        "stored": one.stored,
        "objects": one.objects,
        "growth_per_day": one.growth_per_day,
        "first_timestamp": one.first_ms,
        "last_timestamp": one.last_ms,
        "codecs": dict(one.codecs),
        "compression": {
            name: {"batches": sample.batches, "plain": sample.plain, "packed": sample.packed}
            for name, sample in one.ratios.items()
        },
        "small_segments": one.small_segments,
        "partitions": [_partition(each) for each in one.partitions],
    }


def _partition(one: ReportedPartition) -> Row:
    return {
        "partition": one.partition.partition,
        "layout": one.layout,
        "size": one.size,
        "stored": one.stored,
        "objects": one.objects,
        "start_offset": one.start_offset,
        "stop_offset": one.stop_offset,
        "last_timestamp": one.last_ms,
        "segments": [_segment(each) for each in one.segments],
        "gaps": [
            {"start_offset": each.start, "stop_offset": each.stop, "compaction": each.is_compaction}
            for each in one.gaps
        ],
        "overlaps": [
            {
                "object": each.object,
                "start_offset": each.start,
                "stop_offset": each.stop,
                "reason": each.reason.value,
            }
            for each in one.overlaps
        ],
        "incomplete": [
            {
                "object": each.object,
                "base_offset": each.base_offset,
                "missing": list(each.missing),
                "size": each.size,
            }
            for each in one.incomplete
        ],
        "orphans": [{"object": each.object, "size": each.size} for each in one.orphans],
    }


def _segment(one: ReportedSegment) -> Row:
    return {
        "object": one.object,
        "first_offset": one.first_offset,
        "last_offset": one.last_offset,
        "first_timestamp": one.from_ms,
        "last_timestamp": one.until_ms,
        "size": one.size,
        "state": one.fate.value,
        "codec": one.codec,
        "active": one.is_active,
    }


def _money(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """What became of one topic: bytes and segments then and now; ``None`` where it was not there."""

    topic: str
    topic_id: str | None
    size_before: int | None
    size_now: int | None
    new_partitions: tuple[int, ...] = ()
    gone_partitions: tuple[int, ...] = ()
    new_segments: int = 0
    gone_segments: int = 0

    @property
    def grown(self) -> int:
        """By how many bytes."""
        return (self.size_now or 0) - (self.size_before or 0)


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between two reports of one location.

    Args:
        before_ms: when the earlier one was made.
        topics: those that are new, gone, or have other partitions, segments or sizes; the most grown first.
        new_findings, gone_findings: as rows of the JSON.
    """

    location_before: str
    before_ms: int
    topics: tuple[TopicChange, ...]
    new_findings: tuple[Row, ...]
    gone_findings: tuple[Row, ...]


def changes_since(before: Mapping[str, Any], now: Mapping[str, Any]) -> Changes:
    """What has changed between two reports, each as ``report_row`` gives it.

    A segment is its log object, a finding its code, object and offset: names count from the location on, which may be
    spelled in another way.
    """
    old, new = dict(_topics_of(before)), dict(_topics_of(now))
    places = (before["location"], now["location"])
    found = (_change(key, old.get(key), new.get(key), places) for key in {**old, **new})
    changes = [change for change in found if change is not None]
    changes.sort(key=lambda one: (-one.grown, one.topic, one.topic_id or ""))
    return Changes(
        before["location"],
        before["made"],
        tuple(changes),
        tuple(_only_in(now, before)),
        tuple(_only_in(before, now)),
    )


def change_row(changes: Changes) -> Row:
    """The changes as one object for JSON."""
    return {
        "location": changes.location_before,
        "made": changes.before_ms,
        "topics": [
            {
                "topic": one.topic,
                "topic_id": one.topic_id,
                "size_before": one.size_before,
                "size_now": one.size_now,
                "new_partitions": list(one.new_partitions),
                "gone_partitions": list(one.gone_partitions),
                "new_segments": one.new_segments,
                "gone_segments": one.gone_segments,
            }
            for one in changes.topics
        ],
        "new_findings": list(changes.new_findings),
        "gone_findings": list(changes.gone_findings),
    }


def _topics_of(report: Mapping[str, Any]) -> Iterator[tuple[Topic, Row]]:
    for topic in report["topics"]:
        yield (topic["topic"], topic["topic_id"]), topic


def _change(key: Topic, old: Row | None, new: Row | None, places: tuple[str, str]) -> TopicChange | None:
    partitions = [set(_numbers(one)) for one in (old, new)]
    segments = [set(_objects(one, place)) for one, place in zip((old, new), places, strict=True)]
    change = TopicChange(
        *key,
        None if old is None else old["size"],
        None if new is None else new["size"],
        tuple(sorted(partitions[1] - partitions[0])),
        tuple(sorted(partitions[0] - partitions[1])),
        len(segments[1] - segments[0]),
        len(segments[0] - segments[1]),
    )
    is_same = change.size_before == change.size_now and partitions[0] == partitions[1] and segments[0] == segments[1]
    return None if is_same else change


def _numbers(topic: Row | None) -> Iterator[int]:
    return (one["partition"] for one in (topic or {"partitions": ()})["partitions"])


def _objects(topic: Row | None, location: str) -> Iterator[str]:
    for partition in (topic or {"partitions": ()})["partitions"]:
        for segment in partition["segments"]:
            yield segment["object"].removeprefix(location)


def _only_in(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Row]:
    """The findings of one report that the other lacks, each as often."""
    there = Counter(_identity(finding, other["location"]) for finding in other["findings"])
    for finding in one["findings"]:
        key = _identity(finding, one["location"])
        if there[key]:
            there[key] -= 1
        else:
            yield finding


def _identity(finding: Row, location: str) -> tuple[object, ...]:
    return (finding["code"], finding["object"].removeprefix(location), finding["offset"])


_LARGEST_FILE: Final = 1 << 30


def read_saved(name: str) -> Row:
    """A report that was saved as JSON.

    Raises:
        OptionError: the file cannot be read, or is no such report.
    """
    try:
        with open(name, "rb") as file:
            data = file.read(_LARGEST_FILE)
    except OSError as error:
        raise OptionError(
            "the earlier report cannot be read", source=name, found=error.strerror, hint="Check the path"
        ) from None
    try:
        given = json.loads(data)
        _require_report(given)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise OptionError(
            "not a report in JSON",
            source=name,
            expected=f"what segreader report --json wrote, of version {VERSION}",
            hint="Write one with --json FILE and compare with it next time",
        ) from None
    assert isinstance(given, dict)
    return given


_LARGEST: Final = (1 << 63) - 1
_OF_FINDINGS: Final = (
    ("code", str),
    ("severity", str),
    ("object", str),
    ("explanation", str),
    ("offset", int | None),
)


def _require_report(given: Any) -> None:
    """Raise where something that ``changes_since`` and the page read is not there, or is of another kind."""
    if given["format"] != _FORMAT or given["version"] != VERSION:
        raise ValueError("another format")
    _require(given, ("location", str), ("made", int), ("findings", list), ("topics", list))
    for finding in given["findings"]:
        _require(finding, *_OF_FINDINGS)
    for topic in given["topics"]:
        _require(topic, ("topic", str), ("topic_id", str | None), ("size", int), ("partitions", list))
        for partition in topic["partitions"]:
            _require(partition, ("partition", int), ("segments", list))
            for segment in partition["segments"]:
                _require(segment, ("object", str))


def _require(row: Any, *kinds: tuple[str, Any]) -> None:
    for name, kind in kinds:
        value = row[name]
        if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and abs(value) > _LARGEST):
            raise TypeError(name)
