from __future__ import annotations

import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from corpus import Case, case, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.format.batch import parse_batch_header
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs, parse_leader_epochs
from segreader.plan.lineage import (
    Dropped,
    DropReason,
    EpochSpan,
    OffsetHole,
    ResolvedLog,
    assumed_lineage,
    clip,
    epochs_of_batches,
    epochs_within,
    newest_first,
    normalised,
    resolve,
)
from segreader.segment import Segment, SegmentFiles, TopicIdPartition

PARTITION = TopicIdPartition("orders", 3, "LWgrMmVrT0a__7a4SasuPA")
DUPLICATE, DIVERGED, BELOW_LOG_START = DropReason.DUPLICATE, DropReason.DIVERGED, DropReason.BELOW_LOG_START


def epochs(**starts: int) -> LeaderEpochs:
    """``epochs(e0=0, e2=15)``: epoch 0 from offset 0, epoch 2 from 15."""
    return LeaderEpochs(tuple(LeaderEpoch(int(name[1:]), start) for name, start in starts.items()))


def segment(
    name: str, base: int, last: int | None, own: LeaderEpochs | None = None, version: int = 0, size: int = 100
) -> Segment:
    files = SegmentFiles(f"{name}.log")
    return Segment(PARTITION, base, size, files, segment_id=name, last_offset=last, epochs=own, version=version)


def parts(log: ResolvedLog) -> list[tuple[str | None, int, int]]:
    return [(part.segment.segment_id, part.start, part.stop) for part in log.parts]


def drops(log: ResolvedLog) -> list[tuple[str | None, int, int, DropReason]]:
    return [(drop.segment.segment_id, drop.start, drop.stop, drop.reason) for drop in log.dropped]


LINEAGE_G = epochs(e0=0, e1=50, e3=80)
S1 = segment("S1", 0, 49, epochs(e0=0), 1)
S2 = segment("S2", 50, 99, epochs(e1=50), 2)
S3 = segment("S3", 50, 119, epochs(e1=50, e3=80), 3)
S4 = segment("S4", 60, 69, epochs(e1=60), 4)


def test_a_truncated_upload_and_a_short_retry_give_way_to_the_leader_that_went_on() -> None:
    log = resolve(PARTITION, [S1, S2, S3, S4], LINEAGE_G)
    assert parts(log) == [("S1", 0, 50), ("S3", 50, 120)]
    assert drops(log) == [("S2", 50, 80, DUPLICATE), ("S4", 60, 70, DUPLICATE), ("S2", 80, 100, DIVERGED)]
    assert (log.start, log.stop, log.holes, log.lineage) == (0, 120, (), LINEAGE_G)


def test_divergent_offsets_do_not_appear_even_where_nothing_replaces_them() -> None:
    log = resolve(PARTITION, [S1, S2, S4], LINEAGE_G)
    assert parts(log) == [("S1", 0, 50), ("S2", 50, 80)]
    assert (log.stop, log.holes) == (80, ())
    assert ("S2", 80, 100, DIVERGED) in drops(log)
    behind = segment("S5", 110, 119, epochs(e3=110))
    assert resolve(PARTITION, [S1, S2, S4, behind], LINEAGE_G).holes == (OffsetHole(80, 110),)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(0, 100), (0, 200)], [("1", 0, 201)]),
        ([(10, 90), (5, 100)], [("1", 5, 101)]),
        ([(0, 100), (0, 50)], [("0", 0, 101)]),
        ([(0, 100), (0, 100)], [("1", 0, 101)]),
        ([(0, 60), (40, 99), (80, 120)], [("0", 0, 61), ("1", 61, 100), ("2", 100, 121)]),
        ([(0, 50), (20, 99), (30, 99)], [("0", 0, 51), ("2", 51, 100)]),
    ],
    ids=["longer-retry", "wider-copy", "shorter-retry", "same-again", "chain", "equal-reach"],
)
def test_uploads_of_one_epoch_are_read_wherever_they_reach(
    ranges: list[tuple[int, int]], expected: list[tuple[str, int, int]]
) -> None:
    for own, lineage in [(epochs(e0=0), epochs(e0=0)), (None, epochs(e0=0)), (epochs(e0=0), None), (None, None)]:
        finished = [
            segment(str(number), base, last, own and clip(own, base, last), version=number)
            for number, (base, last) in enumerate(ranges)
        ]
        log = resolve(PARTITION, finished, lineage)
        assert parts(log) == expected
        assert log.holes == ()
        assert {drop.reason for drop in log.dropped} == {DUPLICATE}
        assert parts(resolve(PARTITION, finished[::-1], lineage)) == expected


def test_each_epoch_of_a_segment_holds_its_own_offsets_only() -> None:
    three = segment("S", 0, 99, epochs(e0=0, e1=40, e3=70))
    assert parts(resolve(PARTITION, [three], three.epochs)) == [("S", 0, 100)]
    log = resolve(PARTITION, [three], epochs(e0=0, e1=30, e2=60, e3=80))
    assert parts(log) == [("S", 0, 30), ("S", 40, 60), ("S", 80, 100)]
    assert log.holes == (OffsetHole(30, 40), OffsetHole(60, 80))
    assert parts(resolve(PARTITION, [three], epochs(e0=0, e3=90))) == [("S", 0, 40), ("S", 90, 100)]
    assert drops(log) == [("S", 30, 40, DIVERGED), ("S", 60, 80, DIVERGED)]


def test_what_is_missing_before_the_first_and_after_the_last_offset_is_no_hole() -> None:
    log = resolve(PARTITION, [segment("S", 40, 59, epochs(e0=40))], epochs(e0=0, e1=80))
    assert (log.start, log.stop, log.holes) == (40, 60, ())


def test_offsets_below_the_log_start_are_dropped_whoever_says_where_it_is() -> None:
    deleted, cut, kept = (segment(n, b, b + 9, epochs(e0=b)) for n, b in [("A", 0), ("B", 10), ("C", 20)])
    for lineage, log_start in [(epochs(e0=0), 15), (epochs(e0=15), None), (epochs(e0=15), 3), (None, 15)]:
        log = resolve(PARTITION, [deleted, cut, kept], lineage, log_start=log_start)
        assert parts(log) == [("B", 15, 20), ("C", 20, 30)]
        assert drops(log) == [("A", 0, 10, BELOW_LOG_START), ("B", 10, 15, BELOW_LOG_START)]
    log = resolve(PARTITION, [deleted, cut, kept], epochs(e0=0), log_start=30)
    assert (log.parts, log.start, log.stop, len(log.dropped)) == ((), 0, 0, 3)


def test_a_segment_uploaded_after_a_delete_of_records_does_not_hold_what_its_uploader_had_deleted() -> None:
    own = clip(epochs(e0=28), 20, 39)
    assert own == epochs(e0=28)
    log = resolve(PARTITION, [segment("S", 20, 39, own)], epochs(e0=0))
    assert parts(log) == [("S", 28, 40)]
    assert drops(log) == [("S", 20, 28, BELOW_LOG_START)]


def test_a_segment_that_stands_for_no_offset_is_neither_delivered_nor_dropped() -> None:
    log = resolve(PARTITION, [segment("S", 10, 9, epochs(e0=10))], epochs(e0=0))
    assert (log.parts, log.dropped) == ((), ())
    assert resolve(PARTITION, [], None).parts == ()


def test_a_segment_without_bytes_covers_its_offsets() -> None:
    compacted = [segment("A", 0, 9), segment("B", 10, 19, size=0), segment("C", 20, 29)]
    assert resolve(PARTITION, compacted, None).holes == ()


def test_an_open_segment_reaches_as_far_as_it_is_said_to() -> None:
    far = (1 << 63) - 1
    log = resolve(PARTITION, [S1, segment("active", 50, far, epochs(e1=50, e3=80))], LINEAGE_G)
    assert parts(log) == [("S1", 0, 50), ("active", 50, far + 1)]


def test_a_segment_whose_last_offset_is_unknown_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"S9\.log"):
        resolve(PARTITION, [segment("S9", 0, None)], None)


def test_a_dropped_range_says_which_offsets_and_what_decided() -> None:
    assert Dropped(S2, 80, 100, DIVERGED).text == (
        "offsets 80-99: its leader epoch did not write these offsets in the lineage (its epochs here: 1)"
    )
    assert Dropped(S3, 50, 120, DIVERGED).text.endswith("(its epochs here: 1 to 3)")
    assert Dropped(S4, 60, 70, DUPLICATE).text == "offsets 60-69: another copy holds these offsets"
    assert "log start" in Dropped(S1, 0, 5, BELOW_LOG_START).text


def test_a_resolved_log_survives_pickling() -> None:
    log = resolve(PARTITION, [S1, S2, S3, S4], LINEAGE_G, is_assumed=True)
    assert pickle.loads(pickle.dumps(log)) == log
    assert log.is_assumed


def test_the_lineage_is_asked_of_the_highest_epoch_then_of_the_farthest_then_of_the_latest() -> None:
    again = segment("S2b", 50, 99, epochs(e1=50), 5)
    unknown = segment("S0", 0, 500)
    assert newest_first([unknown, S1, S4, S2, again, S3]) == [S3, again, S2, S4, S1, unknown]


def test_epochs_that_wrote_nothing_are_no_part_of_a_normalised_lineage() -> None:
    assert normalised(epochs(e0=0, e1=10, e2=10, e5=10, e7=20)) == epochs(e0=0, e5=10, e7=20)
    assert normalised(epochs(e0=0)) == epochs(e0=0)
    assert normalised(LeaderEpochs()) == LeaderEpochs()
    log = resolve(PARTITION, [segment("S", 0, 29, epochs(e0=0, e5=10, e7=20))], epochs(e0=0, e1=10, e5=10, e7=20))
    assert parts(log) == [("S", 0, 30)]
    assert log.lineage == epochs(e0=0, e5=10, e7=20)


def test_an_assumed_lineage_takes_each_epoch_from_where_it_begins_first() -> None:
    assert assumed_lineage([S4, S3, S2, S1]) == LINEAGE_G
    # epoch 1 went on to 99 on a leader that lost; the survivor of epoch 3 had less of it
    assert assumed_lineage([segment("dead", 60, 99, epochs(e1=60)), segment("live", 40, 59, epochs(e3=40))]) == epochs(
        e3=40
    )
    assert assumed_lineage([segment("S", 0, 9)]) == LeaderEpochs()


def test_an_epoch_that_a_later_log_passed_over_is_not_in_an_assumed_lineage() -> None:
    passed_over = segment("dead", 20, 29, epochs(e1=20))
    survivor = segment("live", 25, 44, epochs(e0=25, e2=35))
    assert assumed_lineage([segment("S", 0, 19, epochs(e0=0)), passed_over, survivor]) == epochs(e0=0, e2=35)


def test_a_stated_lineage_is_continued_by_higher_epochs_only_and_cut_where_these_leave_it() -> None:
    known = epochs(e0=0, e1=50, e3=80)
    assert assumed_lineage([], known) is known
    assert assumed_lineage([segment("dead", 60, 99, epochs(e1=60, e2=90))], known) is known
    assert assumed_lineage([segment("next", 100, 129, epochs(e3=100, e5=110))], known) == epochs(
        e0=0, e1=50, e3=80, e5=110
    )
    assert assumed_lineage([segment("next", 70, 129, epochs(e4=70))], known) == epochs(e0=0, e1=50, e4=70)
    assert assumed_lineage([segment("next", 70, 129, epochs(e1=70, e4=90))], known) == epochs(e0=0, e1=50, e4=90)


def test_epochs_of_batches_fill_what_the_cleaner_removed_by_the_lineage() -> None:
    lineage = epochs(e0=0, e1=15, e2=18, e3=40)
    spans = [EpochSpan(0, 12, 14), EpochSpan(2, 20, 30)]
    own = epochs_of_batches(spans, 10, 49, lineage)
    assert own == epochs(e0=10, e1=15, e2=18, e3=40)
    assert parts(resolve(PARTITION, [segment("S", 10, 49, own)], lineage)) == [("S", 10, 50)]
    for other in (None, epochs(e0=0, e5=11)):
        assert epochs_of_batches(spans, 10, 49, other) == epochs(e0=10, e2=20)
    dead = epochs_of_batches([EpochSpan(0, 12, 20), EpochSpan(1, 21, 30)], 10, 30, lineage)
    assert parts(resolve(PARTITION, [segment("S", 10, 30, dead)], lineage)) == [("S", 10, 15)]
    assert epochs_of_batches([], 10, 9, lineage) == LeaderEpochs()


def test_epochs_of_batches_below_a_segments_name_begin_with_the_segment() -> None:
    spans = [EpochSpan(2, 5, 9), EpochSpan(4, 10, 20)]
    assert epochs_of_batches(spans, 17, 20, None) == epochs(e2=17, e4=17)


def test_a_lineage_without_entries_decides_nothing() -> None:
    log = resolve(PARTITION, [S1, S3], LeaderEpochs())
    assert (parts(log), log.lineage) == ([("S1", 0, 50), ("S3", 50, 120)], None)


def test_the_epochs_of_a_segment_are_those_of_its_uploader_up_to_its_end() -> None:
    lineage = epochs(e0=0, e1=50, e2=80, e3=80)
    for base, last, own in [
        (0, 49, epochs(e0=0)),
        (30, 50, epochs(e0=30, e1=50)),
        (60, 79, epochs(e1=60)),
        (60, 80, epochs(e1=60, e3=80)),
        (90, 90, epochs(e3=90)),
        (90, 89, LeaderEpochs()),
    ]:
        assert clip(lineage, base, last) == own


def test_a_reader_of_a_range_is_given_the_epochs_of_its_offsets_and_no_more() -> None:
    lineage = epochs(e0=5, e1=50, e3=80)
    for start, stop, expected in [
        (5, 50, ((0, 5),)),
        (20, 51, ((0, 5), (1, 50))),
        (50, 80, ((1, 50),)),
        (79, 200, ((1, 50), (3, 80))),
        (0, 6, ((0, 5),)),
        (0, 5, ()),
        (60, 60, ()),
    ]:
        assert epochs_within(lineage, start, stop) == expected


# The corpus: segments as real brokers uploaded them, and the history that a consumer was given.

_DIVERGED = ["diverged", "diverged-txn", "diverged-mid", "moved"]


def remote_segments(which: Case, directory: Path) -> list[Segment]:
    logs = sorted(directory.glob("*.log"))
    compacted = which.topic.startswith("compacted")  # there the last offset is the next segment's base - 1
    found = []
    for number, path in enumerate(logs):
        base, data, position, last = int(path.name[:20]), memoryview(path.read_bytes()), 0, -1
        while position < len(data):
            header = parse_batch_header(data, position)
            last, position = header.last_offset, position + header.size
        if compacted and number + 1 < len(logs):
            last = int(logs[number + 1].name[:20]) - 1
        lineage = parse_leader_epochs(path.with_suffix(".leader_epoch_checkpoint").read_bytes())
        found.append(segment(path.name, base, last, clip(lineage, base, last)))
    return found


def of_manifest(facts: list[list[int]]) -> LeaderEpochs:
    return LeaderEpochs(tuple(LeaderEpoch(epoch, start) for epoch, start in facts))


def remote_partitions(which: Case) -> list[tuple[int, Path]]:
    return [(int(path.name[len(which.topic) + 1 :].split("-")[0]), path) for path in which.remote]


@pytest.mark.parametrize("which", cases("cluster", "k39", "tv1", "tv2", remote=True), ids=str)
def test_the_real_history_begins_and_ends_where_the_manifest_says(which: Case) -> None:
    for partition, directory in remote_partitions(which):
        if which.topic_id not in directory.name:
            continue
        facts = which.facts["offline"][str(partition)]
        log = resolve(PARTITION, remote_segments(which, directory), of_manifest(facts["lineage"]))
        assert (log.start, log.stop, log.holes) == (facts["first"], facts["remote_stop"], ())
        assert log.lineage == of_manifest(facts["lineage"])


@pytest.mark.parametrize("topic", _DIVERGED)
def test_the_newest_segment_knows_the_lineage_of_the_surviving_leader(topic: str) -> None:
    which = case("cluster", topic)
    (directory,) = which.remote
    found = remote_segments(which, directory)
    newest = directory / newest_first(found)[0].files.log.removesuffix(".log")
    lineage = parse_leader_epochs(newest.with_suffix(".leader_epoch_checkpoint").read_bytes())
    assert lineage == of_manifest(which.facts["offline"]["0"]["lineage"])
    assert resolve(PARTITION, found, lineage).stop == which.remote_stop(0)


def test_a_survivor_that_uploaded_nothing_is_known_only_by_its_own_lineage() -> None:
    which = case("cluster", "diverged-hanging")
    found = remote_segments(which, which.remote[0])
    live = of_manifest(which.facts["offline"]["0"]["lineage"])
    log = resolve(PARTITION, found, live)
    assert [(part.start, part.stop) for part in log.parts] == [(0, 26), (26, 34)]
    assert [(drop.start, drop.stop, drop.reason) for drop in log.dropped] == [(34, 49, DIVERGED), (49, 74, DIVERGED)]
    assert resolve(PARTITION, found, assumed_lineage(found)).stop == 74


def test_live_offsets_come_from_the_segments_that_hold_them_when_dead_tails_overlap() -> None:
    which = case("cluster", "diverged-mid")
    found = remote_segments(which, which.remote[0])
    log = resolve(PARTITION, found, of_manifest([[0, 0], [2, 15], [4, 47]]))
    assert [(part.segment.base_offset, part.start, part.stop) for part in log.parts] == [
        (0, 0, 15),
        (15, 15, 47),
        (47, 47, 64),
    ]
    assert {drop.reason for drop in log.dropped} == {DIVERGED}


# Random histories against a walk over every single offset.


@dataclass
class Branch:
    """The log of one replica: the epoch of each offset, and its leader-epoch cache."""

    written: list[int] = field(default_factory=list)
    cache: list[LeaderEpoch] = field(default_factory=list)

    def up_to(self, stop: int) -> Branch:
        kept = [entry for entry in self.cache if entry.start_offset < stop]
        return Branch(self.written[:stop], kept)

    def lead(self, epoch: int) -> None:
        self.cache.append(LeaderEpoch(epoch, len(self.written)))

    def append(self, count: int) -> None:
        self.written += [self.cache[-1].epoch] * count

    @property
    def lineage(self) -> LeaderEpochs:
        return LeaderEpochs(tuple(self.cache))


@dataclass(frozen=True)
class Upload:
    """A segment, and for each of its offsets the epoch that wrote it there."""

    segment: Segment
    content: dict[int, int]


@dataclass(frozen=True)
class History:
    live: Branch
    uploads: tuple[Upload, ...]


def make_history(seed: int) -> History:
    """Leaders come and go, cleanly or not; old ones go on for a while; each uploads some ranges, some of them twice."""
    dice = random.Random(seed)
    branches = [Branch()]
    branches[0].lead(0)
    branches[0].append(dice.randint(0, 12))
    epoch, uploads = 0, []
    for step in range(dice.randint(1, 24)):
        branch = branches[-1] if dice.random() < 0.7 else dice.choice(branches)
        match dice.choice(["append", "append", "upload", "upload", "retry", "elect", "unclean"]):
            case "append":
                branch.append(dice.randint(1, 12))
            case "upload" if branch.written:
                base = dice.randrange(len(branch.written))
                base = dice.choice([0, base, max(0, len(branch.written) - 10)])
                uploads.append(upload(branch, base, dice.randint(base, len(branch.written) - 1), step, dice))
            case "retry" if uploads:
                first = dice.choice(uploads).segment
                if first.base_offset < len(branch.written):
                    end = len(branch.written) - 1
                    last = min(end, dice.choice([first.last_offset or 0, dice.randint(first.base_offset, end)]))
                    uploads.append(upload(branch, first.base_offset, last, step, dice))
            case "elect":
                epoch += dice.randint(1, 2)
                branches.append(Branch(branch.written[:], branch.cache[:]))
                branches[-1].lead(epoch)
            case "unclean":
                epoch += dice.randint(1, 2)
                branches.append(branch.up_to(dice.randint(0, len(branch.written))))
                branches[-1].lead(epoch)
            case _:
                pass
    return History(branches[-1], tuple(uploads))


def upload(branch: Branch, base: int, last: int, step: int, dice: random.Random) -> Upload:
    own = clip(branch.lineage, base, last)
    made = segment(f"{step}-{dice.random()}", base, last, own, version=dice.choice([0, step]))
    return Upload(made, {offset: branch.written[offset] for offset in range(base, last + 1)})


def check_against_a_walk(log: ResolvedLog, uploads: tuple[Upload, ...], live: list[int] | None, first: int) -> None:
    end = 1 + max((max(one.content) for one in uploads), default=-1) if live is None else len(live)
    holders = {
        offset: [one for one in uploads if offset in one.content and (not live or one.content[offset] == live[offset])]
        for offset in range(first, end)
    }
    held = [offset for offset, by in holders.items() if by]
    content = {one.segment.segment_id: one.content for one in uploads}
    delivered = [offset for part in log.parts for offset in range(part.start, part.stop)]
    assert delivered == held
    missing = [offset for hole in log.holes for offset in range(hole.start, hole.stop)]
    assert missing == [o for o in holders if held and held[0] < o < held[-1] and not holders[o]]
    assert all(one.stop < two.start for one, two in zip(log.holes, log.holes[1:], strict=False))

    ends: dict[tuple[str | None, int], str] = {}
    for part in log.parts:
        own = content[part.segment.segment_id]
        assert part.start < part.stop
        for offset in range(part.start, part.stop):
            assert not live or own[offset] == live[offset]
            ends[part.segment.segment_id, offset] = "delivered"
        for rival in holders[part.start]:
            run = next(o for o in range(part.start, 1 << 20) if rival not in holders.get(o, ()))
            assert (run, rival.segment.version) <= (part.stop, part.segment.version)
    for drop in log.dropped:
        for offset in range(drop.start, drop.stop):
            assert (drop.segment.segment_id, offset) not in ends
            ends[drop.segment.segment_id, offset] = drop.reason
            lives = offset in holders and any(one.segment is drop.segment for one in holders[offset])
            assert drop.reason == (BELOW_LOG_START if offset < first else DUPLICATE if lives else DIVERGED)
    assert set(ends) == {(name, offset) for name, offsets in content.items() for offset in offsets}


@settings(max_examples=tries(300), deadline=None)
@given(seed=st.integers(0, 1 << 40), log_start=st.one_of(st.none(), st.integers(0, 20)))
def test_each_live_offset_is_delivered_once_from_a_copy_of_its_own_epoch(seed: int, log_start: int | None) -> None:
    history = make_history(seed)
    segments = [one.segment for one in history.uploads]
    log = resolve(PARTITION, segments, history.live.lineage, log_start=log_start)
    check_against_a_walk(log, history.uploads, history.live.written, log_start or 0)
    random.Random(seed).shuffle(segments)
    assert parts(resolve(PARTITION, segments, history.live.lineage, log_start=log_start)) == parts(log)


@settings(max_examples=tries(100), deadline=None)
@given(seed=st.integers(0, 1 << 40), log_start=st.one_of(st.none(), st.integers(0, 20)))
def test_without_a_lineage_each_offset_of_any_copy_is_delivered_once(seed: int, log_start: int | None) -> None:
    history = make_history(seed)
    log = resolve(PARTITION, [one.segment for one in history.uploads], None, log_start=log_start)
    check_against_a_walk(log, history.uploads, None, log_start or 0)


@settings(max_examples=tries(100), deadline=None)
@given(seed=st.integers(0, 1 << 40), data=st.data())
def test_the_epochs_of_a_range_answer_for_each_of_its_offsets(seed: int, data: st.DataObject) -> None:
    live = make_history(seed).live
    start = data.draw(st.integers(0, len(live.written)))
    stop = data.draw(st.integers(start, len(live.written)))
    answers = epochs_within(live.lineage, start, stop)
    for offset in range(start, stop):
        assert [epoch for epoch, first in answers if first <= offset][-1] == live.written[offset]
    assert {epoch for epoch, _ in answers} == set(live.written[start:stop])


@pytest.mark.parametrize(
    ("start", "stop", "offsets"),
    [(50, 80, (50, 79)), (50, 120, (50, 79, 80, 119)), (80, 81, (80,)), (79, 81, (79, 80)), (100, 120, (100, 119))],
)
def test_dropped_offsets_are_decided_by_the_ends_of_each_epoch(start: int, stop: int, offsets: tuple[int, ...]) -> None:
    assert Dropped(S3, start, stop, DUPLICATE).deciding_offsets == offsets
