"""What is wrong in a layout ends in a typed error that names the object; every record that comes before it is right."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from layout_writers import KEY_ID, WAYS, Files, Way, iter_rows, lay_out, log_names, way

import segreader
from segreader.catalog.layouts.aiven.manifest import parse_manifest
from segreader.errors import (
    DecryptionError,
    ManifestError,
    ObjectChangedError,
    SegmentGapError,
    SegreaderError,
    TruncatedError,
)
from segreader.testing import SegmentBuilder
from segreader.testing.aiven import write_rsm_config

ENCRYPTED = [one for one in WAYS if one.has_keys]
PLAIN = [
    way(name)
    for name in ("local-tiered", "pinterest", "early-s3", "confluent", "pattern-with-ids", "log-directory", "pattern")
]
"""Layouts whose names tell offsets, and nothing else does."""
FINISHED = PLAIN[:5]
"""Those of which no segment may still be written to."""


def log() -> list[SegmentBuilder]:
    """Offsets 0 to 14 in three segments, a batch each, all of them indexed."""
    segments = [SegmentBuilder(index_interval_bytes=1)]
    for number in range(3):
        if number:
            segments.append(segments[-1].roll())
        for at in range(5):
            segments[-1].batch([b"%d of segment %d" % (at, number) + b"." * 90])
    return segments


Reader = Callable[..., tuple[int, SegreaderError | None]]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    """How many records come, and the error after them. Those that come are the first of the log; all, if no error."""
    expected = [record.value for segment in log() for record in segment.records]
    numbers = count()

    def read_files(one: Way, files: Files, **how: Any) -> tuple[int, SegreaderError | None]:
        root = lay_out(tmp_path / f"data{next(numbers)}", files)
        arguments = {"layout": one.layout if one.is_pattern else None, "isolation_level": "read_uncommitted"}
        values: list[bytes | None] = []
        try:
            for row in iter_rows(segreader.scan(root, **arguments | one.arguments(tmp_path / "settings") | how)):
                assert row[2] == len(values)
                values.append(row[7])
        except SegreaderError as error:
            assert values == expected[: len(values)]
            assert str(pickle.loads(pickle.dumps(error))) == str(error)
            return len(values), error
        assert values == expected
        return len(values), None

    return read_files


# Manifests


def manifests(files: Files) -> list[str]:
    return [name for name in files if name.endswith("rsm-manifest") or "/manifest." in name]


WITH_MANIFEST = [way(name) for name in ("aiven-zstd", "aiven-both-slash", "redpanda-bin", "redpanda-json")]


@pytest.mark.parametrize("one", WITH_MANIFEST, ids=str)
def test_a_cut_manifest_is_refused_with_its_name(one: Way, read: Reader) -> None:
    files = one.write("t", 0, log())
    name = manifests(files)[-1]
    size = len(files[name])
    for cut in (0, 1, 2, *range(10, size, size // 9), size - 1):
        seen, error = read(one, {**files, name: files[name][:cut]})
        assert isinstance(error, ManifestError), (cut, error)
        assert (error.source or "").endswith(name)
        assert seen == 0


GARBAGE = [b"\0" * 100, b"{}", b"[]", b"null", b"\xff\xfe{", b"[" * 50_000, b'{"version":"2"}', b"9" * 10_000]


@pytest.mark.parametrize("one", WITH_MANIFEST, ids=str)
def test_a_manifest_of_other_bytes_is_refused_with_its_name(one: Way, read: Reader) -> None:
    files = one.write("t", 0, log())
    name = manifests(files)[-1]
    for data in GARBAGE:
        _, error = read(one, {**files, name: data})
        assert isinstance(error, ManifestError), (data[:20], error)
        assert (error.source or "").endswith(name)
        assert len(str(error)) < 2000


def test_a_single_file_segment_that_is_cut_before_its_log_is_refused_with_its_name(read: Reader) -> None:
    one = way("uber")
    files = one.write("t", 0, log())
    name = log_names(files)[1]
    start = int.from_bytes(files[name][21:25])
    for cut in (*range(26), *range(26, start, 11), start - 1):
        _, error = read(one, {**files, name: files[name][:cut]})
        assert isinstance(error, ManifestError), (cut, error)
        assert (error.source or "").endswith(name)


# Keys


@pytest.mark.parametrize("one", ENCRYPTED, ids=str)
def test_a_wrong_key_opens_nothing_and_neither_key_is_shown(one: Way, read: Reader, tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    wrong = rsa.generate_private_key(65537, 1312)
    config = write_rsm_config(tmp_path / "wrong", key_prefix=one.key_prefix or "", keys={KEY_ID: wrong})
    seen, error = read(one, one.write("t", 0, log()), rsm_config=config)

    assert (seen, type(error)) == (0, DecryptionError)
    assert re.search(rf"\.(log|indexes): .*key {KEY_ID} does not open", str(error))
    assert_no_secret(error, one)


@pytest.mark.parametrize("one", ENCRYPTED, ids=str)
def test_a_missing_key_is_named_with_those_at_hand(one: Way, read: Reader, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = rsa.generate_private_key(65537, 1312)
    config = write_rsm_config(tmp_path / "other", key_prefix=one.key_prefix or "", keys={"newer": other})
    seen, error = read(one, one.write("t", 0, log()), rsm_config=config)

    assert (seen, type(error)) == (0, DecryptionError)
    assert f"found key id {KEY_ID}, expected one of newer" in str(error)
    assert_no_secret(error, one)


def assert_no_secret(error: SegreaderError | None, one: Way) -> None:
    files = one.write("t", 0, log())
    for name in manifests(files):
        encryption = parse_manifest(files[name]).encryption
        assert encryption is not None
        for secret in (encryption.wrapped_key, encryption.aad):
            assert repr(secret) not in f"{error!r}{vars(error)}"
            assert secret not in pickle.dumps(error)


# Changed bytes


@pytest.mark.parametrize("one", ENCRYPTED, ids=str)
def test_a_changed_byte_of_an_encrypted_chunk_is_refused_before_a_record_of_it_is_shown(one: Way, read: Reader) -> None:
    files = one.write("t", 0, log())
    name = log_names(files)[1]
    chunks = parse_manifest(files[name.replace(".log", ".rsm-manifest")]).chunks
    segment = log()[1]
    for chunk in range(0, len(chunks), 1 + len(chunks) // 4):
        stored = chunks.stored_range(range(chunk, chunk + 1))
        before = sum(end <= chunks.original_range(chunk).start for end in batch_ends(segment))
        for at in (stored.start, stored.start + 12, (stored.start + stored.stop) // 2, stored.stop - 1):
            seen, error = read(one, {**files, name: flipped(files[name], at)})
            assert isinstance(error, DecryptionError), (at, error)
            assert f"{name}: chunk {chunk} " in str(error)
            assert seen <= 5 + before


def batch_ends(segment: SegmentBuilder) -> list[int]:
    """Where each batch ends, in bytes."""
    return [*segment.batch_positions[1:], len(segment.to_bytes())]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@pytest.mark.parametrize("one", [way("aiven-encrypted"), way("aiven-both-slash")], ids=str)
def test_a_changed_byte_of_an_encrypted_index_is_refused_where_it_is_read(one: Way, read: Reader) -> None:
    files = one.write("t", 0, log())
    name = next(name for name in files if name.endswith(".indexes"))
    for at in (0, 12, 40, 59):  # of the offset index
        seen, error = read(one, {**files, name: flipped(files[name], at)}, split_bytes=1)
        assert (seen, type(error)) == (0, DecryptionError)
        assert name in str(error)


@pytest.mark.parametrize("one", [way("aiven-zstd"), way("aiven-one-chunk"), way("aiven-plain")], ids=str)
def test_a_changed_byte_of_a_chunk_that_is_not_encrypted_shows_no_wrong_record(one: Way, read: Reader) -> None:
    files = one.write("t", 0, log())
    name = log_names(files)[1]
    for at in range(0, len(files[name]), max(1, len(files[name]) // 40)):
        seen, error = read(one, {**files, name: flipped(files[name], at)})
        assert error is None or name in str(error)
        assert error is None or 5 <= seen < 10


@pytest.mark.parametrize("one", [one for one in WAYS if one.layout != "redpanda"], ids=str)
def test_the_log_of_another_segment_under_a_name_is_refused(one: Way, read: Reader) -> None:
    files = one.write("t", 0, log())
    (second,), (third,) = (log_names(one.write("t", 0, [segment])) for segment in log()[1:])
    seen, error = read(one, {**files, second: files[third]})

    assert error is not None
    assert seen in (0, 5)


# Names that lie


def renamed(files: Files, true: int, false: int) -> Files:
    """All objects with another base offset in their names."""
    pattern = re.compile(rf"(?<=[/~])0*{true}(?=[.\-_~](?!~))")
    return {pattern.sub(lambda match: f"{false:0{len(match[0])}d}", name): data for name, data in files.items()}


FALSE_BASES = [(5, 7), (5, 3), (10, 12), (10, 8), (0, 2), (5, 1)]


@pytest.mark.parametrize(("true", "false"), FALSE_BASES)
@pytest.mark.parametrize("one", PLAIN, ids=str)
@pytest.mark.parametrize(("split_bytes", "level"), [(1, "read_committed"), (1 << 30, "read_uncommitted")])
def test_a_base_offset_that_is_not_the_logs_own_is_refused(
    one: Way, true: int, false: int, split_bytes: int, level: str, read: Reader
) -> None:
    files = renamed(one.write("orders", 7, log()), true, false)
    assert set(files) != set(one.write("orders", 7, log()))
    _, error = read(one, files, split_bytes=split_bytes, isolation_level=level)

    assert error is not None
    assert error.source


@pytest.mark.parametrize(("true", "false"), [(5, 7), (10, 12), (5, 3)])
@pytest.mark.parametrize("one", FINISHED, ids=str)
def test_a_range_of_a_log_with_a_false_base_offset_lacks_nothing(
    one: Way, true: int, false: int, tmp_path: Path
) -> None:
    root = lay_out(tmp_path / "data", renamed(one.write("orders", 7, log()), true, false))
    layout = one.layout if one.is_pattern else None
    for start in range(4, 15):
        offsets = []
        try:
            for row in iter_rows(segreader.scan(root, layout=layout, offsets=(start, 15), split_bytes=1)):
                offsets.append(row[2])
        except SegreaderError:
            assert offsets == list(range(start, start + len(offsets)))
        else:
            assert offsets == list(range(start, 15))


@pytest.mark.parametrize("one", [way("aiven-plain"), way("aiven-both-slash")], ids=str)
def test_objects_with_other_offsets_than_their_manifests_are_refused(one: Way, read: Reader) -> None:
    for true, false in ((5, 7), (5, 3), (0, 2)):
        _, error = read(one, renamed(one.write("orders", 7, log()), true, false))
        assert isinstance(error, ManifestError)
        assert f"{false:020d}" in str(error)


@pytest.mark.parametrize("one", PLAIN, ids=str)
def test_a_copy_under_another_base_offset_adds_and_changes_nothing(one: Way, read: Reader) -> None:
    files = one.write("orders", 7, log())
    seen, error = read(one, {**files, **renamed(files, 5, 6)})
    assert error is None or seen <= 6


# Logs that are cut


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("one", FINISHED, ids=str)
def test_a_finished_log_that_is_cut_is_refused_with_its_name(one: Way, at: int, read: Reader) -> None:
    files = one.write("t", 0, log())
    (name,) = log_names(one.write("t", 0, log()[at : at + 1]))
    last = len(log()[at].to_bytes()) - log()[at].batch_positions[-1]
    for cut in (1, last - 20):
        seen, error = read(one, {**files, name: files[name][:-cut]})
        assert isinstance(error, TruncatedError), error
        assert error.source is not None
        assert error.source.endswith(name)
        assert seen == 5 * at + 4
    for cut in (last - 1, last):  # nothing is left of the last batch but a zero; the index knows of it
        _, error = read(one, {**files, name: files[name][:-cut]}, split_bytes=1)
        assert isinstance(error, TruncatedError | SegmentGapError)
        assert (error.source or "").endswith(name)


@pytest.mark.parametrize("one", [one for one in WAYS if one.layout in ("aiven", "redpanda")], ids=str)
def test_a_log_of_another_size_than_its_manifest_says_is_refused_with_its_name(one: Way, read: Reader) -> None:
    files = one.write("t", 0, log())
    name = log_names(files)[1]
    for data in (files[name][:-1], files[name] + b"\0", b""):
        _, error = read(one, {**files, name: data})
        assert isinstance(error, ManifestError | ObjectChangedError)
        assert (error.source or "").endswith(name)
