"""What a backfill makes of damaged batches: it stops, or leaves them out, names their offsets, and proves the rest."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from backfill_runs import do, finish, plan_into, request, rows_of

import segreader
from segreader.backfill.commit import collect
from segreader.backfill.job_plan import JobPlan
from segreader.backfill.job_splits import LostOffsets
from segreader.backfill.report import Completeness
from segreader.backfill.task import Destination
from segreader.backfill.verify import Verification, VerifyTask, read_output
from segreader.errors import FormatError, SegreaderError
from segreader.plan.request import Policy
from segreader.storage.target.store import open_target
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered


@dataclass(frozen=True)
class Damaged:
    """Topic ``orders`` of three segments, of which the second will be damaged."""

    root: Path
    segments: list[SegmentBuilder]

    @property
    def log(self) -> Path:
        """The file of the second segment."""
        return next(self.root.rglob(f"{self.segments[1].base_offset:020d}-*.log"))

    def flip(self, position: int, *, bits: int = 1) -> None:
        data, times = bytearray(self.log.read_bytes()), self.log.stat()
        data[position] ^= bits
        self.log.write_bytes(data)
        os.utime(self.log, ns=(times.st_atime_ns, times.st_mtime_ns))  # as a disk does, and no upload

    def offsets(self) -> list[int]:
        scan = segreader.scan(self.root, columns=["offset"], on_corrupt="skip")
        return list(scan.to_arrow()["offset"].to_pylist())

    def run(self, target: Path, *, split_bytes: int = 1 << 20, on_corrupt: Policy = Policy.SKIP) -> Completeness:
        store = open_target(target)
        plan = plan_into(store, request(self.root, subscribe="orders", split_bytes=split_bytes))
        do(plan, store, on_corrupt=on_corrupt)
        return finish(plan, store)


def verified(target: Path) -> Verification:
    """The proof with the segments read again."""
    store = open_target(target)
    output = read_output(store)
    (one,) = output.rounds
    task = VerifyTask(one.pairs, Destination(str(target)), one.plan.output, one.plan.options)
    return Verification(output, tuple(task.verdicts(range(len(task)))), has_read_source=True)


def written(target: Path) -> list[int]:
    return [row["offset"] for row in rows_of(target)]


def lost_of(found: Completeness) -> list[tuple[int, int]]:
    return [(one.start, one.stop) for part in found.partitions for one in part.lost]


@pytest.fixture
def plain(tmp_path: Path) -> Damaged:
    """90 offsets, batches of ten, an index entry for each."""
    segments = [SegmentBuilder(index_interval_bytes=1)]
    for number in range(3):
        segments += [segments[-1].roll()] if number else []
        for _ in range(3):
            segments[-1].batch([b"%d" % (segments[-1].next_offset + at) for at in range(10)])
    write_local_tiered(tmp_path / "tier", "orders", segments)
    return Damaged(tmp_path / "tier", segments)


@pytest.fixture
def transactional(tmp_path: Path) -> Damaged:
    """Committed and aborted transactions of two producers, with markers between them."""
    segments = [SegmentBuilder(index_interval_bytes=1)]
    for number in range(3):
        segments += [segments[-1].roll()] if number else []
        one = segments[-1]
        for batch in range(4):
            producer = 7 + batch % 2
            one.batch([b"x"] * 5, producer_id=producer, producer_epoch=0, transactional=True)
            one.batch([b"y"] * 3)
            one.marker(producer, abort=batch > 1)
    write_local_tiered(tmp_path / "tier", "orders", segments)
    return Damaged(tmp_path / "tier", segments)


@pytest.mark.parametrize("split_bytes", [1, 1 << 20])
@pytest.mark.parametrize(("batch", "lost"), [(0, (30, 40)), (1, (40, 50)), (2, (50, 60))])
@pytest.mark.parametrize("place", ["records", "magic", "length"])
def test_a_damaged_batch_is_left_out_named_and_accepted_by_the_proof(
    plain: Damaged, tmp_path: Path, split_bytes: int, batch: int, lost: tuple[int, int], place: str
) -> None:
    at = plain.segments[1].batch_positions[batch]
    plain.flip(at + {"records": 70, "magic": 16, "length": 8}[place], bits=0x7F)
    whole, target = set(range(90)), tmp_path / "out"
    found = plain.run(target, split_bytes=split_bytes)
    assert lost_of(found) == [lost]
    assert written(target) == sorted(whole - set(range(*lost))) == plain.offsets()
    (part,) = found.partitions
    assert (part.records, part.holes) == (80, 0)
    assert found.is_complete
    (loss,) = found.losses
    assert loss.startswith(f"orders-0: offsets {lost[0]} to {lost[1] - 1} are lost: ")
    assert f"{plain.log.name}, bytes {at} to " in loss
    proof = verified(target)
    assert proof.is_exact
    assert proof.to_json()["losses"] == [loss]


def test_without_the_option_damage_stops_the_job_and_it_can_go_on_with_it(plain: Damaged, tmp_path: Path) -> None:
    plain.flip(plain.segments[1].batch_positions[1] + 70)
    target = tmp_path / "out"
    with pytest.raises(FormatError, match="fails its CRC"):
        plain.run(target, on_corrupt=Policy.FAIL)
    store = open_target(target)
    plan = read_plan_of(store)
    do(plan, store, on_corrupt=Policy.SKIP)
    assert lost_of(finish(plan, store)) == [(40, 50)]
    assert verified(target).is_exact


def test_the_proof_takes_no_other_damage_than_the_one_that_is_named(plain: Damaged, tmp_path: Path) -> None:
    positions = plain.segments[1].batch_positions
    plain.flip(positions[1] + 70)
    plain.run(tmp_path / "out")
    plain.flip(positions[1] + 70)
    texts = [str(one) for one in verified(tmp_path / "out").findings]
    assert any(
        "the manifest says that damage hides offsets 40 to 49, in the segments it hides nothing" in one for one in texts
    )
    assert any(re.search("40 to 49 are missing|40-49 are missing", one) for one in texts), texts

    plain.flip(positions[1] + 70)
    plain.flip(positions[2] + 70)
    texts = [str(one) for one in verified(tmp_path / "out").findings]
    assert any("offsets 40 to 49, in the segments it hides offsets 40 to 59" in one for one in texts)


def test_damage_that_comes_after_the_job_is_no_loss_of_the_job(plain: Damaged, tmp_path: Path) -> None:
    plain.run(tmp_path / "out")
    plain.flip(plain.segments[1].batch_positions[1] + 70)
    proof = verified(tmp_path / "out")
    assert not proof.is_exact
    assert "the segment cannot be read again" in str(proof.findings[0])
    assert proof.to_json()["losses"] == []


def test_an_entry_without_damage_is_read_as_before(plain: Damaged, tmp_path: Path) -> None:
    plain.run(tmp_path / "out")
    store = open_target(tmp_path / "out")
    entries = collect(store, read_plan_of(store)).values()
    assert [entry.damaged for entry in entries] == [()] * 3
    before = {key: text for key, text in next(iter(entries)).to_json().items() if key != "damaged"}
    assert type(next(iter(entries))).from_json({k: v for k, v in before.items() if k != "holes"}).damaged == ()


def read_plan_of(store: object) -> JobPlan:
    from segreader.backfill.job_plan import read_plan

    plan = read_plan(store)  # type: ignore[arg-type]
    assert plan is not None
    return plan


def damages(one: Damaged, seed: int) -> Iterator[int]:
    """Bytes under the CRC, or of a header but for base offsets, which only neighbours can contradict."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 3)):
        start = chance.choice(one.segments[1].batch_positions)
        yield start + chance.randrange(8, 70)


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        ("plain", range(8)),
        ("transactional", range(8)),
        pytest.param("transactional", range(8, 60), marks=pytest.mark.exhaustive),
    ],
)
def test_wherever_a_segment_is_damaged_each_record_is_written_or_named_as_lost(
    kind: str, seeds: range, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One to three bytes are damaged, and each output is proved with the segments."""
    log: Damaged = request.getfixturevalue(kind)
    truth, sound = log.offsets(), log.log.read_bytes()
    skipped = 0
    for seed in seeds:
        for position in damages(log, seed):
            log.flip(position, bits=1 << seed % 8)
        target = tmp_path / f"out{seed}"
        try:
            found = log.run(target, split_bytes=1 if seed % 2 else 1 << 20)
        except SegreaderError:
            found = None
        if found is not None:
            lost = {offset for start, stop in lost_of(found) for offset in range(start, stop)}
            assert found.is_complete, (seed, found.findings)
            assert sorted({*written(target)} | ({*truth} & lost)) == truth, seed
            assert not lost & {*written(target)}, seed
            proof = verified(target)
            assert proof.is_exact, (seed, proof.findings)
            skipped += bool(lost)
        log.log.write_bytes(sound)
    assert skipped > len(seeds) // 4


def test_damage_that_hides_what_was_committed_stops_the_job_before_it_begins(
    transactional: Damaged, tmp_path: Path
) -> None:
    """No task would read it: all records behind it are undecided."""
    last = transactional.segments[2]
    for path in [*transactional.root.rglob("*.txnindex"), *transactional.root.rglob("*.snapshot")]:
        path.unlink()
    log = next(transactional.root.rglob(f"{last.base_offset:020d}-*.log"))
    data = bytearray(log.read_bytes())
    data[last.batch_positions[2] + 16] = 9
    log.write_bytes(data)
    for policy in Policy:
        with pytest.raises(FormatError, match="it hides what was committed") as raised:
            transactional.run(tmp_path / "out", on_corrupt=policy)
    assert f"with --offsets below {last.base_offset}" in str(raised.value)
    assert not (tmp_path / "out" / "_job").exists()


def test_ranges_of_damage_are_losses() -> None:
    assert LostOffsets(3, 5, "a.log, bytes 1 to 2, is damaged: x").text.endswith("a.log, bytes 1 to 2, is damaged: x")
