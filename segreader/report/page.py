"""The report as one HTML file: no script, no font or picture from elsewhere, in the order in which people look.

Names in a bucket may be anything: all text is escaped, characters that are not printable are spelled out, and the page
forbids scripts and requests. What could be long is cut at a size, and the page says so: the JSON has everything.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeVar

from segreader.errors import shown_count
from segreader.evidence.findings import Finding
from segreader.evidence.rules import RULES, Code
from segreader.report.as_json import Changes, TopicChange
from segreader.report.lanes import (
    Axis,
    Bar,
    Lane,
    Mark,
    axis_of,
    busiest_first,
    lane_of,
    most_bars,
    overlaps_in_words,
)
from segreader.report.model import Bill, BucketReport, ReportedTopic, SegmentFate
from segreader.report.style import DOCUMENT, STYLE

_FINDINGS_SIZE: Final = 300_000
_CHANGES_SIZE: Final = 100_000
_TOPICS_SIZE: Final = 350_000
_LANES_SIZE: Final = 900_000
"""Bytes that these parts of the page may have; with all else it stays below 2 MB."""

_BARS: Final = 3500
_FEWEST_OF_A_TOPIC: Final = 20_000
_THIN: Final = 6.0
"""Below this width a bar has no outline, which would hide it."""

_OF_ONE_KIND: Final = 20
_TOLD_OF_A_LANE: Final = 6
_LONGEST_NAME: Final = 250
_T = TypeVar("_T")


def page_of(report: BucketReport, changes: Changes | None = None) -> str:
    """The page: HTML of at most 2 MB, whatever the bucket holds."""
    drawn = _Topics(report)
    parts = [
        _header(report),
        _findings(report),
        _totals(report),
        "" if changes is None else _changes(changes, report.location),
        drawn.table(),
        drawn.lanes(),
        _footer(report),
    ]
    return DOCUMENT.format(title=_text(f"Bucket report: {report.location}"), style=STYLE, body="\n".join(parts))


def _text(text: str, longest: int = _LONGEST_NAME) -> str:
    """Text that is safe in HTML and shows what it is: no control or bidirectional character acts on the page."""
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return html.escape(shown)


def _name(text: str) -> str:
    return f"<bdi>{_text(text)}</bdi>"


def _shown_time(time_ms: int | None, *, seconds: bool = False) -> str:
    if time_ms is None:
        return "&ndash;"
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return time.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def _shown_bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f}&nbsp;B" if unit == "B" else f"{size:,.1f}&nbsp;{unit}"


def _shown_money(amount: Decimal | None, currency: str) -> str:
    return (
        "" if amount is None else f"{amount:,.2f}&nbsp;{_text(currency)}" if amount >= 1 else _cents(amount, currency)
    )


def _cents(amount: Decimal, currency: str) -> str:
    return f"{amount:.6f}".rstrip("0").rstrip(".") + f"&nbsp;{_text(currency)}"


def _within(parts: Iterable[_T], budget: int, render: Callable[[_T], str]) -> tuple[list[str], int]:
    """As many rendered parts as fit in ``budget`` bytes, and how many were left out."""
    shown: list[str] = []
    left_out = 0
    for part in parts:
        if budget <= 0:
            left_out += 1
            continue
        text = render(part)
        budget -= len(text.encode())
        if budget < 0 and shown:
            left_out, budget = left_out + 1, 0
        else:
            shown.append(text)
    return shown, left_out


def _header(report: BucketReport) -> str:
    errors, warnings = report.severities.get("error", 0), report.severities.get("warning", 0)
    if errors:
        verdict = f'<p class="verdict error">✕ {shown_count(errors, "error")}: records are missing or unreadable.</p>'
    elif warnings:
        verdict = f'<p class="verdict warning">▲ {shown_count(warnings, "warning")}; no record is known to be lost.</p>'
    else:
        verdict = '<p class="verdict fine">✓ Nothing is known to be wrong.</p>'
    how = "Every log was read." if report.is_deep else "Logs were not read whole: <code>--deep</code> does."
    return (
        f"<header><h1>{_name(report.location)}</h1>"
        f'<p class="quiet">Looked at {_shown_time(report.made_ms)} UTC. {how}</p>{verdict}</header>'
    )


_SIGNS: Final = {"error": "✕", "warning": "▲", "info": "&#8505;"}


def _findings(report: BucketReport) -> str:
    if not report.findings:
        return ""
    by_code: dict[Code, list[Finding]] = {}
    for one in report.findings:
        by_code.setdefault(one.code, []).append(one)
    shown, left_out = _within(by_code.values(), _FINDINGS_SIZE, lambda some: _of_one_code(some, report.location))
    more = f"<p>{shown_count(left_out, 'more kind')} of findings: the JSON has them.</p>" if left_out else ""
    return f'<section id="findings"><h2>Findings</h2>{"".join(shown)}{more}</section>'


def _of_one_code(some: Sequence[Finding], location: str) -> str:
    first = some[0]
    severity = first.severity.value
    rows = "".join(
        f"<tr><td>{_name(one.object.removeprefix(location).lstrip('/') or '.')}</td>"
        f'<td class="number">{"" if one.offset is None else f"{one.offset:,}"}</td>'
        f"<td>{_text(one.explanation, 600)}</td></tr>"
        for one in some[:_OF_ONE_KIND]
    )
    more = len(some) - _OF_ONE_KIND
    left_out = f"<p>{more:,} more like these: the JSON has them.</p>" if more > 0 else ""
    is_open = "" if severity == "info" else " open"
    return (
        f'<details class="finding {severity}"{is_open}><summary><span class="sign">{_SIGNS[severity]}</span> '
        f"<strong>{severity}</strong> <code>{_text(first.code.value)}</code> "
        f'<span class="count">&times;{len(some):,}</span> {_text(RULES[first.code].meaning)}</summary>'
        f'<p class="action"><strong>What to do:</strong> {_text(first.action, 600)}</p>'
        f'<div class="scroll"><table><thead><tr><th>object</th><th class="number">offset</th><th>what was found</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>{left_out}</details>"
    )


def _totals(report: BucketReport) -> str:
    bill = report.bill
    segments = sum(1 for topic in report.topics for _ in topic.segments())
    growth = [one.growth_per_day for one in report.topics if one.growth_per_day is not None]
    orphans = sum(one.orphan_bytes for one in report.partitions)
    facts = [
        ("topics", f"{len(report.topics):,}", f"{shown_count(len(report.partitions), 'partition')}"),
        ("segments", f"{segments:,}", f"{shown_count(bill.objects, 'object')}"),
        ("logs", _shown_bytes(bill.size), f"{_shown_bytes(bill.stored)} stored, indexes included"),
        ("growth", f"{_shown_bytes(sum(growth))} a day" if growth else "&ndash;", "over the last week with records"),
        ("belongs to nothing", _shown_bytes(orphans), "orphans and incomplete sets"),
        *_bill_facts(bill),
    ]
    cards = "".join(f"<div><dt>{name}</dt><dd>{value}<small>{more}</small></dd></div>" for name, value, more in facts)
    return f'<section id="totals"><h2>Totals</h2><dl class="cards">{cards}</dl></section>'


def _bill_facts(bill: Bill) -> list[tuple[str, str, str]]:
    requests = f"{shown_count(bill.requests, 'GET request')}, {shown_count(bill.listings, 'LIST request')}"
    if bill.prices is None:
        return [("reading it once", f"{bill.requests:,} GETs", "give --prices to see money")]
    currency = bill.prices.currency
    return [
        ("storage a month", _shown_money(bill.month, currency), f"{_shown_bytes(bill.stored)} by your prices"),
        ("reading it once", _shown_money(bill.read_once, currency), requests),
    ]


def _changes(changes: Changes, location: str) -> str:
    since = f"Since {_shown_time(changes.before_ms)} UTC"
    if changes.location_before.rstrip("/") != location.rstrip("/"):
        since += f", at {_name(changes.location_before)}"
    rows, left_out = _within(changes.topics, _CHANGES_SIZE, _change)
    new, left_new = _within(changes.new_findings, _CHANGES_SIZE // 2, lambda one: _changed_finding(one, "new"))
    gone, left_gone = _within(changes.gone_findings, _CHANGES_SIZE // 2, lambda one: _changed_finding(one, "gone"))
    table = (
        '<div class="scroll"><table><thead><tr><th>topic</th><th>change</th><th class="number">then</th>'
        '<th class="number">now</th><th class="number">difference</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        if rows
        else "<p>No topic, partition or segment has come, gone or grown.</p>"
    )
    findings = f'<ul class="told">{"".join(new + gone)}</ul>' if new or gone else "<p>The findings are the same.</p>"
    hidden = left_out + left_new + left_gone
    more = f"<p>{shown_count(hidden, 'more change')}: the JSON has them.</p>" if hidden else ""
    return f'<section id="changes"><h2>{since}</h2>{table}{findings}{more}</section>'


def _change(one: TopicChange) -> str:
    said = []
    if one.size_before is None:
        said.append("new topic")
    elif one.size_now is None:
        said.append("gone")
    else:
        said += [f"partition {number} is new" for number in one.new_partitions[:5]]
        said += [f"partition {number} is gone" for number in one.gone_partitions[:5]]
    said += [f"+{shown_count(one.new_segments, 'segment')}"] * bool(one.new_segments)
    said += [f"&minus;{shown_count(one.gone_segments, 'segment')}"] * bool(one.gone_segments)
    sizes = ("&ndash;" if size is None else _shown_bytes(size) for size in (one.size_before, one.size_now))
    cells = "".join(f'<td class="number">{size}</td>' for size in sizes)
    sign = "+" if one.grown > 0 else "&minus;" if one.grown < 0 else "±"
    return (
        f"<tr><td>{_name(one.topic)}</td><td>{', '.join(said) or 'sizes differ'}</td>{cells}"
        f'<td class="number">{sign}{_shown_bytes(abs(one.grown))}</td></tr>'
    )


def _changed_finding(one: dict[str, object], what: str) -> str:
    return (
        f"<li><strong>{what}</strong> {_text(str(one['severity']))} <code>{_text(str(one['code']))}</code> "
        f"{_name(str(one['object']))}: {_text(str(one['explanation']), 600)}</li>"
    )


class _Topics:
    """The topics of one report: their table, and their lanes, of which each row of the table leads to one."""

    def __init__(self, report: BucketReport) -> None:
        self._topics = report.topics
        self._largest = max((topic.size for topic in report.topics), default=0)
        self._partitions = len(report.partitions)
        self._most = most_bars(self._partitions, _BARS)
        self._is_joined = False
        self._lanes, self._left_out = _within(list(enumerate(report.topics)), _LANES_SIZE, self._of_topic)

    def table(self) -> str:
        """All topics, the largest first."""
        rows, left_out = _within(list(enumerate(self._topics)), _TOPICS_SIZE, self._row)
        more = ""
        if left_out:
            size = sum(topic.size for topic in self._topics[len(rows) :])
            more = f"<p>{shown_count(left_out, 'smaller topic')} with {_shown_bytes(size)}: the JSON has them.</p>"
        return (
            '<section id="topics"><h2>Topics by size</h2><div class="scroll"><table class="topics"><thead><tr>'
            '<th>topic</th><th class="number">partitions</th><th class="number">segments</th>'
            '<th class="number">size</th><th class="share"></th><th class="number">a day</th>'
            "<th>first time (UTC)</th><th>last time</th><th>compression</th><th>to note</th>"
            f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{more}</section>"
        )

    def _row(self, numbered: tuple[int, ReportedTopic]) -> str:
        number, topic = numbered
        segments = sum(1 for _ in topic.segments())
        share = 100 * topic.size / self._largest if self._largest else 0
        growth = topic.growth_per_day
        link = f'<a href="#t{number}">{_name(topic.topic)}</a>' if number < len(self._lanes) else _name(topic.topic)
        return (
            f'<tr><td>{link}</td><td class="number">{len(topic.partitions):,}</td>'
            f'<td class="number">{segments:,}</td><td class="number">{_shown_bytes(topic.size)}</td>'
            f'<td class="share"><i style="width:{share:.1f}%"></i></td>'
            f'<td class="number">{"&ndash;" if growth is None else _shown_bytes(growth)}</td>'
            f'<td class="time">{_shown_time(topic.first_ms)}</td><td class="time">{_shown_time(topic.last_ms)}</td>'
            f"<td>{_codecs(topic)}</td><td>{_notes(topic)}</td></tr>"
        )

    def lanes(self) -> str:
        """A lane for each partition."""
        more = ""
        if self._left_out:
            topics = shown_count(self._left_out, "more topic is", "more topics are")
            more = f"<p>{topics} not drawn, to keep the page small.</p>"
            if self._left_out > 1:
                more = more.replace(" is ", " are ")
        joined = " Neighbouring segments are drawn as one bar where they are many." if self._is_joined else ""
        how = f'<p class="quiet">Along time, or along offsets where times do not keep segments apart.{joined}</p>'
        head = f'<section id="lanes"><h2>Partitions over time</h2>{_LEGEND}{how}'
        return f"{head}{''.join(self._lanes)}{more}</section>"

    def _of_topic(self, numbered: tuple[int, ReportedTopic]) -> str:
        number, topic = numbered
        axis = axis_of(topic)
        shown, left_out = _within(
            busiest_first(topic.partitions),
            max(_FEWEST_OF_A_TOPIC, _LANES_SIZE * len(topic.partitions) // self._partitions),
            lambda one: self._lane(lane_of(one, axis, self._most), axis),
        )
        more = f"<p>{shown_count(left_out, 'more partition')}: the JSON has them.</p>" if left_out else ""
        topic_id = f" <small>{_name(topic.topic_id)}</small>" if topic.topic_id is not None else ""
        head = f"<h3>{_name(topic.topic)}{topic_id}</h3>"
        return f'<article id="t{number}">{head}{"".join(shown)}{_axis(axis)}{more}</article>'

    def _lane(self, lane: Lane, axis: Axis) -> str:
        one = lane.partition
        self._is_joined = self._is_joined or any(len(bar.segments) > 1 for bar in lane.bars)
        offsets = (
            "nothing to read"
            if one.start_offset is None or one.stop_offset == one.start_offset
            else f"offsets {one.start_offset:,} to {'…' if one.stop_offset is None else f'{one.stop_offset - 1:,}'}"
        )
        label = f"{shown_count(len(one.segments), 'segment')}, {_shown_bytes(one.size)}, {offsets}"
        bars = "".join(_bar(bar, axis) for bar in lane.bars)
        gaps = "".join(_gap(mark) for mark in lane.drawn if mark.kind != "incomplete")
        has_lower = any(not bar.is_upper for bar in lane.bars)
        height = 28 if has_lower else 18
        marks = "".join(
            f'<span class="mark {mark.kind}" style="left:{(mark.x + mark.width / 2) / 10:.2f}%" aria-hidden="true">'
            f"{_MARKS[mark.kind]}</span>"
            for mark in lane.drawn
            if _MARKS[mark.kind]
        )
        return (
            f'<div class="lane"><div class="who"><b>{one.partition.partition}</b> <span>{label}</span></div>'
            f'<div class="track"><svg viewBox="0 0 1000 {height}" style="height:{height}px" preserveAspectRatio="none" '
            f'role="img" aria-label="partition {one.partition.partition}: {label}">{bars}{gaps}</svg>{marks}</div>'
            f"{_told(lane)}</div>"
        )


def _codecs(topic: ReportedTopic) -> str:
    ratios = topic.ratios
    said = []
    for codec in sorted(topic.codecs, key=lambda name: -topic.codecs[name]):
        ratio = f" {ratios[codec].ratio:.1f}&times;" if codec in ratios else ""
        said.append(f"{_text(codec)}{ratio}")
    return ", ".join(said) or "&ndash;"


def _notes(topic: ReportedTopic) -> str:
    said = []
    lost = sum(not gap.is_compaction for one in topic.partitions for gap in one.gaps)
    branches = sum(one.fate is SegmentFate.LOST_BRANCH for one in topic.segments())
    copies = sum(one.fate is SegmentFate.DUPLICATE for one in topic.segments())
    incomplete = sum(len(one.incomplete) for one in topic.partitions)
    orphans = sum(len(one.orphans) for one in topic.partitions)
    for number, one, many in (
        (lost, "gap", "gaps"),
        (branches, "segment of a lost branch", "segments of a lost branch"),
        (copies, "duplicate", "duplicates"),
        (incomplete, "incomplete set", "incomplete sets"),
        (orphans, "orphan", "orphans"),
        (topic.small_segments, "segment under 16 MiB", "segments under 16 MiB"),
    ):
        if number:
            text = shown_count(number, one, many)
            said.append(f"<strong>✕ {text}</strong>" if one == "gap" else text)
    return ", ".join(said)


def _bar(bar: Bar, axis: Axis) -> str:
    y, height = (1, 16) if bar.is_upper else (19, 8)
    first, last = bar.segments[0], max(bar.segments, key=lambda one: one.last_offset or one.first_offset)
    size = sum(one.size or 0 for one in bar.segments)
    end = "…" if last.last_offset is None else f"{last.last_offset:,}"
    what = "" if len(bar.segments) == 1 else f"{len(bar.segments):,} segments, "
    times = f", {_shown_time(first.from_ms)} to {_shown_time(last.until_ms)}" if axis.is_time else ""
    active = " Still written to." if any(one.is_active for one in bar.segments) else ""
    title = f"{what}offsets {first.first_offset:,} to {end}, {_shown_bytes(size)}{times}. {bar.fate.text}.{active}"
    kind = bar.fate.value + (" active" if active else "") + (" thin" if bar.width < _THIN else "")
    return (
        f'<rect class="{kind}" x="{bar.x:.1f}" y="{y}" width="{bar.width:.1f}" height="{height}">'
        f"<title>{title.replace(' read', ' Read', 1).replace(' not read', ' Not read', 1)}</title></rect>"
    )


def _gap(mark: Mark) -> str:
    width = max(4.0, mark.width)
    return (
        f'<rect class="{mark.kind}" x="{min(mark.x, 996.0):.1f}" y="1" width="{width:.1f}" height="16">'
        f"<title>{_text(mark.text)}</title></rect>"
    )


_MARKS: Final = {"gap": "✕", "compacted": "", "incomplete": "◇"}
_WORDS: Final = {
    "gap": "gap",
    "incomplete": "incomplete",
    "lost-branch": "lost branch",
    "duplicate": "overlap",
    "orphan": "orphans",
    "below-log-start": "deleted",
    "compacted": "compacted away",
}
"""What a lane tells of, the worst first."""

_OF_REASON: Final = {"diverged": "lost-branch", "duplicate": "duplicate", "below-log-start": "below-log-start"}


def _told(lane: Lane) -> str:
    """What the marks of a lane mean, in words."""
    one = lane.partition
    said = [(mark.kind, mark.text) for mark in lane.marks]
    said += [(_OF_REASON[reason], text) for reason, text in overlaps_in_words(one)]
    if one.orphans:
        size = _plain_bytes(sum(each.size for each in one.orphans))
        belong = "belongs" if len(one.orphans) == 1 else "belong"
        said.append(("orphan", f"{shown_count(len(one.orphans), 'object')} with {size} {belong} to no segment"))
    if not said:
        return ""
    said.sort(key=lambda each: list(_WORDS).index(each[0]))
    items = "".join(
        f"<li>{_swatch(kind)} <strong>{_WORDS[kind]}</strong>: {_text(text, 400)}</li>"
        for kind, text in said[:_TOLD_OF_A_LANE]
    )
    more = len(said) - _TOLD_OF_A_LANE
    return f'<ul class="told">{items}{f"<li>and {more:,} more: the JSON has them</li>" if more > 0 else ""}</ul>'


def _swatch(kind: str) -> str:
    """What a lane draws for it, or the sign that it shows."""
    if kind in ("incomplete", "orphan"):
        return f'<span class="sign {kind}">◇</span>'
    sign = '<text x="11" y="11" class="sign gap" text-anchor="middle">✕</text>' if kind == "gap" else ""
    return (
        '<svg class="swatch" viewBox="0 0 22 14" width="22" height="14" aria-hidden="true">'
        f'<rect class="{kind}" x="1" y="1" width="20" height="12"/>{sign}</svg>'
    )


def _plain_bytes(size: int) -> str:
    return _shown_bytes(size).replace("&nbsp;", " ")


def _axis(axis: Axis) -> str:
    middle = (axis.start + axis.stop) // 2
    if axis.is_time:
        is_short = axis.stop - axis.start < 3_600_000
        ends = [_shown_time(value, seconds=is_short) for value in (axis.start, middle, axis.stop)]
    else:
        ends = [f"offset {value:,}" for value in (axis.start, middle, axis.stop)]
    return '<div class="axis">' + "".join(f"<span>{one}</span>" for one in ends) + "</div>"


def _footer(report: BucketReport) -> str:
    notes = "".join(f"<li>{_text(note, 600)}</li>" for note in report.notes[:_OF_ONE_KIND])
    return f"<footer>{f'<ul>{notes}</ul>' if notes else ''}<p>{_METHOD}</p></footer>"


_METHOD: Final = (
    "Sizes of logs are plain; &#8220;stored&#8221; is what the store keeps, after its own compression. The codec is "
    "that of each segment&#8217;s first batch; the ratio was measured in the first batch of up to three segments of a "
    "partition. Times are those of records, markers included, in UTC. A segment counts as small below 16&nbsp;MiB: one "
    "request fetches that much. Made by segreader."
)


_LEGEND: Final = (
    '<p class="legend">'
    + "".join(
        f"<span>{_swatch(kind)} {words}</span>"
        for kind, words in (
            ("live", "read"),
            ("partly-live", "read in part"),
            ("live active", "still written to"),
            ("gap", "gap: records are missing"),
            ("compacted", "compacted away"),
            ("lost-branch", "lost branch"),
            ("duplicate", "another copy is read"),
            ("below-log-start", "below the log start"),
            ("unfinished", "unfinished or deleted"),
            ("incomplete", "incomplete set of objects"),
        )
    )
    + "</p>"
)
