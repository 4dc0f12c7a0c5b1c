"""The page: safe, small, in order, and readable without colour or scripts."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from segreader.catalog.listing import Wanted
from segreader.evidence.findings import Finding
from segreader.evidence.rules import Code
from segreader.plan.cost import parse_prices
from segreader.plan.lineage import DropReason
from segreader.report.as_json import changes_since, report_row
from segreader.report.model import (
    BucketReport,
    IncompleteSet,
    OrphanObject,
    ReportedGap,
    ReportedOverlap,
    ReportedPartition,
    ReportedSegment,
    ReportedTopic,
    SegmentFate,
    read_report,
)
from segreader.report.page import page_of
from segreader.segment import TopicIdPartition
from segreader.stored.source import LocationSource

CORPUS = Path(__file__).parents[2] / "fixtures" / "corpus"
DAY_MS = 86_400_000
BEGIN_MS = 1_790_000_000_000
LARGEST_PAGE = 2_000_000
VOID = frozenset({"meta", "br", "img", "link", "input"})


class Outline(HTMLParser):
    """The tags of a page; fails where one is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if (self.get_starttag_text() or "").endswith("/>") and (not self._open or self._open[-1] != tag):
            return
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def segment(number: int, **more: object) -> ReportedSegment:
    given: dict[str, object] = {
        "object": f"s3://logs/orders-0/{number:020}.log",
        "first_offset": number * 100,
        "last_offset": number * 100 + 99,
        "from_ms": BEGIN_MS + number * DAY_MS,
        "until_ms": BEGIN_MS + (number + 1) * DAY_MS - 1,
        "size": 1 << 30,
        "fate": SegmentFate.LIVE,
        "codec": "zstd",
    }
    return ReportedSegment(**given | more)  # type: ignore[arg-type]


def partition(
    segments: list[ReportedSegment], topic: str = "orders", number: int = 0, **more: object
) -> ReportedPartition:
    return ReportedPartition(TopicIdPartition(topic, number), "local-tiered", tuple(segments), **more)  # type: ignore[arg-type]


def report(
    *partitions: ReportedPartition, findings: tuple[Finding, ...] = (), location: str = "s3://logs"
) -> BucketReport:
    topics: dict[str, list[ReportedPartition]] = {}
    for one in partitions:
        topics.setdefault(one.partition.topic, []).append(one)
    made = tuple(ReportedTopic(name, None, tuple(some)) for name, some in topics.items())
    return BucketReport(location, BEGIN_MS, made, findings)


def rects(page: str, kind: str) -> list[tuple[float, float]]:
    """Where the bars and gaps of one kind are in the lanes, and how wide."""
    drawn = page[page.index('<section id="lanes">') :].split('class="track">', 1)[1]
    found = re.findall(
        rf'<rect class="{kind}(?: thin)?" x="([\d.]+)" y="\d+" width="([\d.]+)" height="\d+"><title>', drawn
    )
    return [(float(x), float(width)) for x, width in found]


def test_the_page_of_a_real_bucket_is_whole_and_asks_for_nothing() -> None:
    made = read_report(LocationSource(str(CORPUS / "tv2" / "remote")))
    page = page_of(made)
    outline = Outline(page)

    assert not outline.tags.keys() & {"script", "img", "link", "iframe", "object", "embed", "base", "form"}
    assert not [one for one in outline.attributes if one[1].startswith("on") or one[1] in ("src", "srcset", "action")]
    assert {value[0] for tag, name, value in outline.attributes if name == "href"} == {"#"}
    assert "http" not in page.replace("http-equiv", "")
    assert "url(#" in page
    assert not re.search(r"url\((?!#)|@import|@font-face", page)
    assert "default-src 'none'" in page


def test_every_topic_has_a_row_and_every_partition_a_lane() -> None:
    made = read_report(LocationSource(str(CORPUS / "tv2" / "remote")))
    page = page_of(made)

    assert page.count('<article id="t') == 34
    assert page.count('class="lane"') == 37
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page
    for topic in made.topics:
        assert f"<bdi>{topic.topic}</bdi>" in page


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title></svg><h1>",
    "{body}{0}",
    "\u202egnp.exe",
    "\x1b[31mred\x00",
    "\udcff\udc80",
    "&lt;b&gt;",
)


@pytest.mark.parametrize("name", HOSTILE, ids=[str(number) for number in range(len(HOSTILE))])
def test_a_hostile_name_is_text_wherever_it_stands(name: str) -> None:
    one = segment(0, object=f"s3://logs/{name}/0.log", codec=name)
    finding = Finding(Code.HOLE, one.object, f"found {name}", offset=3, partition=TopicIdPartition(name, 0))
    odd = partition(
        [one],
        name,
        incomplete=(IncompleteSet(one.object, 5, (name,), 7),),
        orphans=(OrphanObject(one.object, 7),),
    )
    before = report_row(report(partition([segment(1)], name + "old")))
    made = report(odd, findings=(finding,), location=f"s3://{name}")
    page = page_of(made, changes_since(before, report_row(made)))
    sane = page_of(report(odd, location="s3://x"))

    outline = Outline(page)
    assert not outline.tags.keys() & {"script", "img", "b"} - {"b"}
    assert outline.tags["h1"] == 1
    assert page.isascii() or all(c.isprintable() or c == "\n" for c in page)
    page.encode()
    assert Outline(sane).tags["h1"] == 1


def test_findings_come_before_totals_and_errors_before_infos() -> None:
    findings = (
        Finding(Code.HOLE, "s3://logs/orders-0/3.log", "offsets 5-9 are in no segment", offset=5),
        Finding(Code.RECREATED_TOPIC, "s3://logs", "topic 'orders' has two ids"),
    )
    page = page_of(report(partition([segment(0)]), findings=findings))
    order = [
        page.index(text)
        for text in (
            "1 error: records",
            "<code>hole",
            "<code>re-created-topic",
            'id="totals"',
            'id="topics"',
            'id="lanes"',
        )
    ]

    assert order == sorted(order)
    assert "Restore the missing segment" in page


def test_a_lane_shows_gaps_lost_branches_and_incomplete_sets_in_shape_and_in_words() -> None:
    lost = segment(2, fate=SegmentFate.LOST_BRANCH)
    copy = segment(1, fate=SegmentFate.DUPLICATE)
    odd = partition(
        [segment(0), segment(1), copy, lost, segment(3), segment(6)],
        gaps=(ReportedGap(400, 600, is_compaction=False),),
        overlaps=(
            ReportedOverlap(lost.object, 200, 300, DropReason.DIVERGED),
            ReportedOverlap(copy.object, 100, 200, DropReason.DUPLICATE),
        ),
        incomplete=(IncompleteSet("s3://logs/orders-0/4.index", 400, ("log",), 7),),
        orphans=(OrphanObject("s3://logs/orders-0/notes.txt", 7),),
    )
    page = page_of(report(odd))
    words = Outline(page).text

    assert len(rects(page, "live")) == 4
    assert len(rects(page, "lost-branch")) == len(rects(page, "duplicate")) == 1
    [(x, width)] = rects(page, "gap")
    assert (round(x / 1000, 2), round((x + width) / 1000, 2)) == (0.57, 0.86)  # days 4 to 6 of 7
    assert "fill:url(#slanted)" in page
    assert "gap : offsets 400 to 599 are in no segment" in words
    assert "lost branch : offsets 200 to 299 of one segment are not read: on a branch" in words
    assert "overlap : offsets 100 to 199 of one segment are not read: another copy" in words
    assert "incomplete : an incomplete set of objects at offset 400: no log" in words
    assert "orphans : 1 object with 7 B belongs to no segment" in words


def test_bars_lie_where_their_times_are() -> None:
    page = page_of(report(partition([segment(0), segment(1), segment(2), segment(3)])))

    assert rects(page, "live") == [(0.0, 250.0), (250.0, 250.0), (500.0, 250.0), (750.0, 250.0)]


def test_segments_of_one_moment_are_drawn_along_their_offsets() -> None:
    page = page_of(report(partition([segment(number, from_ms=BEGIN_MS, until_ms=BEGIN_MS + 1) for number in range(4)])))

    assert len(rects(page, "live")) == 4
    assert "<span>offset 400</span>" in page


def test_a_segment_that_was_emptied_leaves_the_lane_along_time() -> None:
    emptied = segment(1, size=0, from_ms=None, until_ms=None, last_offset=None, codec=None)
    page = page_of(report(partition([segment(0), emptied, segment(2), segment(3)])))

    assert rects(page, "live") == [(0.0, 250.0), (500.0, 250.0), (750.0, 250.0)]


SHAPES = {
    "ten lanes": [partition([segment(number) for number in range(1000)], number=number) for number in range(10)],
    "one lane": [partition([segment(number) for number in range(10_000)])],
    "a hundred lanes": [partition([segment(number) for number in range(100)], number=number) for number in range(100)],
    "ten thousand lanes": [partition([segment(0)], number=number) for number in range(10_000)],
    "ten thousand topics": [partition([segment(0)], "t" * 240 + str(number)) for number in range(10_000)],
    "names of nothing but quotes": [partition([segment(0)], "'" * 240 + str(number)) for number in range(10_000)],
    "as many gaps": [
        partition(
            [segment(2 * number) for number in range(10_000)],
            gaps=tuple(ReportedGap(200 * number + 100, 200 * number + 200, False) for number in range(10_000)),
            overlaps=tuple(
                ReportedOverlap("o", 1000 * number, 1000 * number + 1, DropReason.DIVERGED) for number in range(10_000)
            ),
        )
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_ten_thousand_segments_make_a_page_of_at_most_two_megabytes(shape: str) -> None:
    findings = tuple(
        Finding(code, "s3://logs/" + "<" * 900 + f"/{number}", "'" * 900, offset=number)
        for code in Code
        for number in range(40)
    )
    made = report(*SHAPES[shape], findings=findings)
    nothing = report_row(report(partition([segment(0)], "other")))
    page = page_of(made, changes_since(nothing, report_row(made)))

    assert len(page.encode()) <= LARGEST_PAGE
    assert shape.startswith(("ten thousand", "names")) or page.count('class="lane"') == len(SHAPES[shape])
    Outline(page)
    assert "the JSON has" in page
    if shape in ("one lane", "as many gaps"):
        assert "Neighbouring segments are drawn as one bar" in page
        assert 300 <= len(rects(page, "live")) <= 400


def test_money_is_told_by_the_users_prices() -> None:
    prices = parse_prices({"gib_month": "0.02", "get_per_1000": "0.4", "gib_out": "0.1", "currency": "USD"})
    one = partition([segment(0), segment(1)], stored=3 << 30, objects=12)
    made = BucketReport("s3://logs", BEGIN_MS, (ReportedTopic("orders", None, (one,)),), (), prices=prices)
    words = Outline(page_of(made)).text

    assert made.bill.requests == 128
    assert "0.06 USD" in words.replace("\xa0", " ")
    assert "0.2512 USD" in words.replace("\xa0", " ")  # 128 GETs and 2 GiB


def test_growth_is_that_of_the_last_week() -> None:
    made = report(partition([segment(number, size=100 if number < 10 else 700) for number in range(20)]))

    assert made.topics[0].growth_per_day == 700


def test_small_segments_are_noted_where_most_of_a_topic_are() -> None:
    small = report(partition([segment(number, size=1000) for number in range(6)]))
    few = report(partition([segment(number, size=1000 if number < 2 else 1 << 30) for number in range(6)]))

    assert "6 segments under 16 MiB" in page_of(small)
    assert "under 16 MiB" not in page_of(few)


def test_only_what_is_asked_for_is_in_a_report() -> None:
    made = read_report(LocationSource(str(CORPUS / "tv2" / "remote")), Wanted("multi", partitions=[2]))

    assert [str(one.partition) for one in made.partitions] == ["multi-2"]
