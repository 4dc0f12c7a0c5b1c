"""Buckets that lost, cut, mixed up or changed objects: no record is wrong or lost without a word.

``make chaos-bucket`` plants every defect; the tests a sample of them that is always the same.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from bucket_judge import Answer, Place, Way, is_silent, judge, read, verify_errors, ways
from bucket_plants import Bucket, Plant, plants
from corpus import FIXTURES, Case, cases
from layout_writers import WAYS
from layout_writers import Way as Layout
from planted import sound_log
from sample import edges_once, exhaustive

from segreader.stored.source import Catalog

PLANTS = int(os.environ.get("CHAOS_BUCKET", "12"))
"""Defects planted into each topic; 0 for all of them."""

SOME = 4
"""As many of these as `make test` plants."""

SEED = os.environ.get("CHAOS_SEED", "1")

TOPICS = ("txn", "diverged", "epochs-txn", "compacted")
BY_THE_CLEANER = ("batch lost", "base offset changed")
_OF_OTHERS = ("of another partition", "that of the segment before", "that of the segment behind")
_MAY_BE_WRITTEN = ("log-directory", "log-directory-running", "pinterest-bare", "pattern")
"""Layouts whose newest segment a broker may still be writing, as names cannot tell a copy from an upload."""

NEEDS_A_LINEAGE = "diverged-hanging"
WITH_METADATA = ("tv2", "k39", "cluster")
CASES = [
    case for case in cases(remote=True) if any(word in case.topic for word in TOPICS) and case.topic != NEEDS_A_LINEAGE
]


@dataclass(frozen=True)
class Topic:
    """One partition's objects, sound, and how to read them."""

    name: str
    place: Place
    bucket: Bucket = field(repr=False)
    other: Bucket = field(repr=False)
    metadata: Path | None = None

    @property
    def place_with_metadata(self) -> Place:
        return replace(self.place, catalog=replace(self.place.catalog, metadata=self.metadata))


def objects_of(case: Case) -> Bucket:
    root = case.root / "remote"
    files = (path for directory in case.remote for path in sorted(directory.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def topic_of_corpus(case: Case) -> Topic:
    given: dict[str, Any] = {}
    if case.set_name == "aiven-encrypted":
        given["rsm_config"] = FIXTURES / "aiven-encrypted.properties"
    other = next(one for one in CASES if one.set_name == case.set_name and one != case)
    place = Place(case.topic, case.topic_id, Catalog(**given))
    metadata = case.root / "metadata" if case.set_name in WITH_METADATA else None
    return Topic(str(case), place, objects_of(case), objects_of(other), metadata)


def topic_of_layout(way: Layout, directory: Path) -> Topic:
    catalog = Catalog(layout=way.layout if way.is_pattern else None, **way.arguments(directory))
    files = way.write("orders", 0, sound_log())
    return Topic(str(way), Place(way.shown("orders"), None, catalog), files, way.files("a-1-0"))


def is_beyond_the_bucket(topic: Topic, plant: Plant, way: Way) -> str | None:
    """Why nothing in the bucket shows a defect (``docs/explanation/reliability.md``); ``None`` where something does."""
    if plant.kind == "missing" and plant.place != "middle" and (plant.role == "set" or is_alone(plant)):
        return "retention and uploads that are still to come leave the same objects"
    if plant.kind in _OF_OTHERS and plant.place != "middle" and is_without_an_offset(topic, plant):
        return "two uploads of one segment, and another one that is gone"
    if way.offsets[1] is not None and "snapshot" in plant.role and "current first offset" in plant.kind:
        return "a row of a snapshot with a new checksum: only the log below the range tells, as another copy would"
    if "compacted" in topic.name and plant.role == "log" and plant.kind in BY_THE_CLEANER:
        return "the log cleaner leaves the same batches: only another copy tells"
    if topic.name in _MAY_BE_WRITTEN and plant.place == "newest":
        is_empty = plant.role == "log" and plant.bucket.get(plant.name) == b""
        is_read_behind = plant.kind == "cut inside a batch" and way.offsets[0] > 0
        is_cut = plant.role == "log" and (plant.kind == "cut between batches" or is_read_behind)
        if is_empty or is_cut or (plant.role, plant.kind) == ("set", "missing"):
            return "a broker has not written more of it yet"
    if plant.role == "log" and plant.kind == "cut between batches" and plant.place == "newest":
        if is_alone(plant):
            return "no file beside the log says how far it reaches"
        if "compacted" in topic.name:
            return "the log cleaner leaves the same batches"
        if way.level == "read_uncommitted":
            return "only the snapshot names later offsets, and such a read needs none"
    return None


def is_alone(plant: Plant) -> bool:
    """Whether a segment has no object but its log."""
    stem = plant.name.removesuffix(".log")
    return plant.role == "log" and not any(name.startswith(stem) for name in plant.bucket if name != plant.name)


def is_without_an_offset(topic: Topic, plant: Plant) -> bool:
    """Whether no object's name says where a segment begins: the HDFS plugin's and LinkedIn's."""
    return plant.role == "log" and topic.name in ("uber", "linkedin-azure")


def silences(topic: Topic, most: int) -> list[str]:
    """Every plant that gives wrong or fewer records without a word, a line each; of ``most`` plants, 0 for all."""
    dice = random.Random(f"{SEED} {topic.name}")
    planted = plants(topic.bucket, topic.other, dice)
    chosen = planted if not PLANTS or len(planted) <= PLANTS else dice.sample(planted, PLANTS)
    chosen = chosen[:most] if most else chosen
    rows = read(topic.bucket, topic.place, Way("read_uncommitted")).rows
    assert rows, topic.name
    found: list[str] = []
    sound: dict[Way | tuple[Way, str], Answer] = {}
    for plant in chosen:
        for way in ways(rows, dice):
            if way not in sound:
                sound[way] = read(topic.bucket, topic.place, way)
            verdict = judge(sound[way], read(plant.bucket, topic.place, way), way)
            is_late = verdict == "wrong before the error" and plant.role.endswith("txnindex")
            if not is_late and not is_silent(verdict):
                continue
            reason = is_beyond_the_bucket(topic, plant, way)
            if reason is not None:
                if topic.metadata is None or "another copy" in reason:
                    continue
                if (way, "metadata") not in sound:
                    sound[way, "metadata"] = read(topic.bucket, topic.place_with_metadata, way)
                verdict = judge(sound[way, "metadata"], read(plant.bucket, topic.place_with_metadata, way), way)
                if not is_silent(verdict):
                    continue
                verdict += ", with the metadata topic, too"
            found.append(f"{verdict}: {topic.name} {way}: {plant}")
    return found


@pytest.mark.parametrize(
    ("case", "most"),
    [*((case, SOME) for case in edges_once(CASES)), *(exhaustive(case, PLANTS) for case in CASES)],
    ids=str,
)
def test_no_damage_to_a_brokers_segments_is_silent(case: Case, most: int) -> None:
    assert silences(topic_of_corpus(case), most) == []


@pytest.mark.parametrize("most", [SOME, exhaustive(PLANTS)])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_damage_in_any_layout_is_silent(way: Layout, most: int, tmp_path: Path) -> None:
    assert silences(topic_of_layout(way, tmp_path / "keys"), most) == []


@pytest.mark.parametrize("case", [case for case in CASES if case.set_name in WITH_METADATA], ids=str)
def test_the_metadata_topic_tells_of_segments_that_are_gone_at_either_end(case: Case) -> None:
    topic = topic_of_corpus(case)
    place = topic.place_with_metadata
    way = Way("read_uncommitted")
    sound = read(topic.bucket, place, way)
    assert sound.error is None
    missing = [one for one in plants(topic.bucket, {}, random.Random(0)) if (one.role, one.kind) == ("set", "missing")]
    assert missing
    for plant in missing:
        damaged = read(plant.bucket, place, way)
        assert damaged.error is not None or damaged.notes - sound.notes, plant
        assert not is_silent(judge(sound, damaged, way)), plant


@pytest.mark.parametrize("case", [case for case in CASES if case.set_name == "tv1"], ids=str)
def test_deep_verification_finds_every_row_that_is_lost(case: Case) -> None:
    topic = topic_of_corpus(case)
    assert not verify_errors(topic.bucket, topic.place, deep=True)
    for plant in plants(topic.bucket, topic.other, random.Random(0)):
        if plant.role == "txnindex" and plant.kind in ("row lost", "empty", "missing"):
            assert verify_errors(plant.bucket, topic.place, deep=True), plant
