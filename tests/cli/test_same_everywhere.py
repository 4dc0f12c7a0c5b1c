"""``on_corrupt``, ``on_gap`` and ``on_missing`` mean the same in scans, commands, tables and loads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import segreader
from segreader import polars
from segreader.cli.exit_codes import exit_code
from segreader.cli.main import main
from segreader.errors import SegreaderError
from segreader.loader import LoadQuery, ResumableReader, SplitEnumerator
from segreader.plan.split import ReadPlan
from segreader.scans import Scan
from segreader.tables.dataset import TopicDataset, open_dataset
from segreader.tables.plans import FilteredPlans
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

TOLERANT = {"on_corrupt": "skip", "on_gap": "skip", "on_missing": "skip"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a host gave: values, the type of its error, and what it said."""

    values: list[str]
    error: str | None
    said: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A log with a defect, and what a read of it gives.

    Args:
        spoil: does the damage to the partition's directory.
        strict: values before the error, and its type; ``None`` where there is none.
        tolerant: values with ``TOLERANT``.
        told: what is said then.
        while_read: whether the damage is done between plan and read.
        is_whole: whether nothing is lacking with ``TOLERANT``.
    """

    name: str
    spoil: Callable[[Path], None]
    strict: tuple[str, str | None]
    tolerant: str
    told: str
    while_read: bool = False
    is_whole: bool = False

    def __str__(self) -> str:
        return self.name


def segments() -> list[SegmentBuilder]:
    """Nine records in three segments, a batch each."""
    built = [SegmentBuilder(index_interval_bytes=1)]
    for number, value in enumerate("abcdefghi"):
        if number and number % 3 == 0:
            built.append(built[-1].roll())
        built[-1].batch([value.encode()])
    return built


def flip(directory: Path, base: int, position: int) -> None:
    (log,) = directory.glob(f"{base:020d}-*.log")
    data = bytearray(log.read_bytes())
    data[position] ^= 1
    log.write_bytes(data)


def remove(directory: Path, base: int) -> None:
    for log in directory.glob(f"{base:020d}-*.log"):
        log.unlink()


SCENES = (
    Scene(
        "damaged batch",
        lambda place: flip(place, 3, -2),
        ("abcde", "CorruptBatchError"),
        "abcdeghi",
        "left out: bytes 138 to 207 of",
    ),
    Scene(
        "gap",
        lambda place: remove(place, 3),
        ("", "SegmentGapError"),
        "abcghi",
        "missing: t-0: no segment has offsets 3 to 5",
    ),
    Scene(
        "segment that vanishes",
        lambda place: remove(place, 3),
        ("abc", "ObjectNotFoundError"),
        "abcghi",
        "missing: t-0: offsets 3 to 5:",
        while_read=True,
    ),
    Scene(
        "oldest log missing", lambda place: remove(place, 0), ("defghi", None), "defghi", "has no log", is_whole=True
    ),
)


def do_scan(root: Path, options: dict[str, str]) -> Outcome:
    scan = segreader.scan(root, **options)  # type: ignore[arg-type]
    values: list[str] = []
    error = None
    try:
        for batch in scan.to_batches():
            values += map(bytes.decode, batch["value"].to_pylist())
    except SegreaderError as caught:
        return Outcome(values, type(caught).__name__, "")
    plan = scan.plan()
    texts = [f"missing: {gap.text}" for gap in plan.gaps]
    texts += [f"missing: {offsets.text}" for offsets in scan.metrics.missing]
    texts += [f"left out: {hole.text}" for hole in scan.metrics.holes]
    return Outcome(values, error, "\n".join([*texts, *scan.metrics.notes]))


def read_table(dataset: TopicDataset, batches: Any) -> Outcome:
    values: list[str] = []
    try:
        for batch in batches():
            values += map(bytes.decode, batch["value"].to_pylist())
    except SegreaderError as error:
        return Outcome(values, type(error).__name__, "")
    return Outcome(values, None, "\n".join(dataset.notes))


def do_dataset(root: Path, options: dict[str, Any]) -> Outcome:
    dataset = open_dataset(root, **options)
    return read_table(dataset, dataset.to_batches)


def do_fragments(root: Path, options: dict[str, Any]) -> Outcome:
    dataset = open_dataset(root, **options)
    return read_table(dataset, lambda: (batch for one in dataset.get_fragments() for batch in one.to_batches()))


def do_polars(root: Path, options: dict[str, Any]) -> Outcome:
    dataset = open_dataset(root, **options)
    try:
        values = polars.lazy_frame(dataset).collect()["value"].to_list()
    except Exception:  # Polars has types of its own
        assert dataset.last_error is not None
        return Outcome([], type(dataset.last_error).__name__, "")
    return Outcome([value.decode() for value in values], None, "\n".join(dataset.notes))


def do_load(root: Path, options: dict[str, str]) -> Outcome:
    query = LoadQuery(location=str(root), **options)  # type: ignore[arg-type]
    values: list[str] = []
    said: list[str] = []
    try:
        with SplitEnumerator(query) as enumerator:
            splits = enumerator.discover()
            said += [f"missing: {note}" for note in enumerator.notes]
        for split in splits:
            with ResumableReader(split, query) as reader:
                while (batch := reader.read()) is not None:
                    values += map(bytes.decode, batch["value"].to_pylist())
                said += [f"left out: {hole.text}" for hole in reader.metrics.holes]
                said += [f"missing: {one.text}" for one in reader.metrics.missing]
    except SegreaderError as error:
        return Outcome(values, type(error).__name__, "")
    return Outcome(values, None, "\n".join(said))


@pytest.mark.parametrize("scene", SCENES, ids=str)
class TestEverywhere:
    """Each scene through every host."""

    @pytest.fixture
    def root(self, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        place = write_local_tiered(tmp_path, "t", segments())
        if not scene.while_read:
            scene.spoil(place)
            return tmp_path

        def spoiled(kind: type, name: str) -> None:
            original = getattr(kind, name)

            def planned(self: object, *arguments: object) -> ReadPlan:
                found: ReadPlan = original(self, *arguments)
                scene.spoil(place)
                return found

            monkeypatch.setattr(kind, name, planned)

        spoiled(Scan, "plan")
        spoiled(FilteredPlans, "plan")
        spoiled(SplitEnumerator, "discover")
        return tmp_path

    @pytest.mark.parametrize("host", [do_scan, do_dataset, do_fragments, do_polars, do_load])
    def test_a_strict_read_ends_with_the_same_error_behind_the_same_records(
        self, scene: Scene, root: Path, host: Callable[[Path, dict[str, str]], Outcome]
    ) -> None:
        found = host(root, {})
        values, error = scene.strict
        assert found.error == error
        if host is not do_polars or error is None:  # Polars gives a whole frame or none
            assert "".join(found.values) == values

    @pytest.mark.parametrize("host", [do_scan, do_dataset, do_fragments, do_polars, do_load])
    def test_a_tolerant_read_gives_the_same_records_and_says_the_same(
        self, scene: Scene, root: Path, host: Callable[[Path, dict[str, str]], Outcome]
    ) -> None:
        found = host(root, TOLERANT)
        assert ("".join(found.values), found.error) == (scene.tolerant, None)
        assert scene.told in found.said

    @pytest.mark.parametrize("command", ["cat", "sql"])
    def test_a_strict_command_ends_with_the_exit_code_of_that_error(
        self, scene: Scene, root: Path, command: str, capsysbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        code, values, err = run(command, root, {}, capsysbinary)
        expected, error = scene.strict
        kind = getattr(segreader.errors, error) if error is not None else None
        assert code == (0 if kind is None else exit_code(kind("x")))
        if command == "cat" or error is None:  # DuckDB gives what it had before an error only in large batches
            assert values == expected
        assert err if error else scene.told in err

    @pytest.mark.parametrize("command", ["cat", "sql"])
    def test_a_tolerant_command_prints_the_rest_and_says_so_on_stderr(
        self, scene: Scene, root: Path, command: str, capsysbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        code, values, err = run(command, root, TOLERANT, capsysbinary)
        assert (code, values) == (0 if scene.is_whole else 1, scene.tolerant)
        assert scene.told in err


def run(
    command: str, root: Path, options: dict[str, str], captured: pytest.CaptureFixture[bytes]
) -> tuple[int, str, str]:
    """Exit code, values and stderr of a command."""
    if command == "cat":
        flags = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
        code = main(["cat", str(root), *flags])
    else:
        named = "".join(f", {name} := '{value}'" for name, value in options.items())
        code = main(["sql", f"select value from topic('{root}'{named})"])
    out, err = captured.readouterr()
    return int(code), "".join(json.loads(line)["value"] for line in out.splitlines()), err.decode()
