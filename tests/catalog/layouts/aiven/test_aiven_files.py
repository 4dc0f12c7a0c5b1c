from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any

import aiven_vectors as vectors
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.catalog.layouts.aiven.encryption import KeyRing
from segreader.catalog.layouts.aiven.files import AivenFiles
from segreader.errors import (
    DecryptionError,
    ManifestError,
    ObjectChangedError,
    ObjectNotFoundError,
    SegreaderError,
    ShortReadError,
)
from segreader.format.index_files import parse_offset_index
from segreader.ranges import ByteRange

LOG = f"{vectors.STEM}.log"
CHANGED_VARIANTS = ("encrypted", "compressed", "both")


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    return KeyRing({"key1": vectors.write_private_key(tmp_path_factory.mktemp("keys") / "key1.pem")})


def view_of(variant: str, ring: KeyRing, **changed: Any) -> tuple[AivenFiles, vectors.RequestLog]:
    store = vectors.RequestLog(vectors.objects(variant), **changed)
    return AivenFiles(store, ring), store


def whole(view: AivenFiles, name: str) -> bytes:
    size = view.size(name)
    return view.read_ranges(name, [ByteRange(0, size)])[0] if size else b""


@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_every_variant_is_the_same_segment(variant: str, ring: KeyRing) -> None:
    view, _ = view_of(variant, ring)
    assert whole(view, LOG) == vectors.SEGMENT
    assert whole(view, f"{vectors.STEM}.index") == vectors.OFFSET_INDEX
    assert whole(view, f"{vectors.STEM}.timeindex") == vectors.TIME_INDEX
    assert whole(view, f"{vectors.STEM}.snapshot") == vectors.SNAPSHOT
    assert whole(view, f"{vectors.STEM}.leader_epoch_checkpoint") == vectors.LEADER_EPOCHS
    assert [entry.position for entry in parse_offset_index(vectors.OFFSET_INDEX, 500)] == [80]


@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_an_index_that_was_never_written_is_not_there(variant: str, ring: KeyRing) -> None:
    view, _ = view_of(variant, ring)
    with pytest.raises(ObjectNotFoundError):
        view.size(f"{vectors.STEM}.txnindex")


@pytest.mark.parametrize("piece_size", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_every_range_of_a_log_is_cut_exactly(variant: str, piece_size: int, ring: KeyRing) -> None:
    view, _ = view_of(variant, ring, piece_size=piece_size)
    for start in range(0, 160, 9):
        for stop in range(start + 1, 161, 13):
            pieces = [bytes(piece) for piece in view.read_pieces(LOG, ByteRange(start, stop))]
            assert b"".join(pieces) == vectors.SEGMENT[start:stop]
            buffer = bytearray(stop - start)
            view.read_into(LOG, start, memoryview(buffer))
            assert buffer == vectors.SEGMENT[start:stop]


@pytest.mark.parametrize(
    ("variant", "wanted", "request_"),
    [
        ("encrypted", ByteRange(70, 131), "bytes=92-243"),
        ("encrypted", ByteRange(0, 1), "bytes=0-91"),
        ("encrypted", ByteRange(63, 65), "bytes=0-183"),
        ("encrypted", ByteRange(128, 160), "bytes=184-243"),
        ("both", ByteRange(70, 131), "bytes=80-239"),
        ("both", ByteRange(64, 128), "bytes=80-170"),
        ("compressed", ByteRange(64, 65), "bytes=52-114"),
        ("plain", ByteRange(70, 131), "bytes=70-130"),
    ],
)
def test_a_range_costs_one_request_of_the_chunks_that_hold_it(
    variant: str, wanted: ByteRange, request_: str, ring: KeyRing
) -> None:
    view, store = view_of(variant, ring)
    assert b"".join(map(bytes, view.read_pieces(LOG, wanted))) == vectors.SEGMENT[wanted.start : wanted.stop]
    manifest_size = len(store.stored[f"{vectors.STEM}.rsm-manifest"])
    assert store.requests == [f"GET rsm-manifest bytes=0-{manifest_size - 1}", f"GET log {request_}"]


@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_the_manifest_of_a_segment_is_fetched_once(variant: str, ring: KeyRing) -> None:
    view, store = view_of(variant, ring)
    for _ in range(3):
        whole(view, LOG)
        whole(view, f"{vectors.STEM}.index")
        whole(view, f"{vectors.STEM}.snapshot")
    assert sum("rsm-manifest" in line for line in store.requests) == 1


def test_threads_that_want_one_segment_share_its_manifest(ring: KeyRing) -> None:
    view, store = view_of("both", ring)
    threads = [threading.Thread(target=whole, args=(view, LOG)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("rsm-manifest" in line for line in store.requests) == 1


def test_a_manifest_that_could_not_be_read_is_asked_for_again(ring: KeyRing) -> None:
    view, store = view_of("both", ring)
    manifest = store.stored.pop(f"{vectors.STEM}.rsm-manifest")
    with pytest.raises(ObjectNotFoundError):
        view.size(LOG)
    store.stored[f"{vectors.STEM}.rsm-manifest"] = manifest
    assert whole(view, LOG) == vectors.SEGMENT


def test_old_manifests_are_forgotten(ring: KeyRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segreader.catalog.layouts.aiven.files._KEPT_CHUNKS", 600)
    stems = [vectors.STEM.replace("tiered/", f"{number}/") for number in range(3)]
    store = vectors.RequestLog({k: v for stem in stems for k, v in vectors.objects("compressed", stem).items()})
    view = AivenFiles(store, ring)
    for stem in (*stems, stems[2], stems[1], stems[0]):
        view.size(f"{stem}.log")
    assert [line.startswith("GET rsm-manifest") for line in store.requests] == [True] * 4


def test_an_index_costs_one_request_of_its_own_bytes(ring: KeyRing) -> None:
    view, store = view_of("encrypted", ring)
    view.size(LOG)
    store.requests.clear()
    whole(view, f"{vectors.STEM}.timeindex")
    assert store.requests == ["GET indexes bytes=36-75"]


def test_names_of_other_files_mean_what_they_mean_in_the_store(ring: KeyRing) -> None:
    stored = {"readme": b"text", "orders-0/00000000000000000000.log": b"log", **vectors.objects("both")}
    view = AivenFiles(vectors.RequestLog(stored), ring)
    for name in ("readme", "orders-0/00000000000000000000.log", f"{vectors.STEM}.indexes"):
        assert whole(view, name) == stored[name]
    assert [info.name for info in view.list("orders")] == ["orders-0/00000000000000000000.log"]


@pytest.mark.parametrize("variant", ["encrypted", "both"])
def test_each_flipped_byte_of_an_encrypted_log_is_refused_with_key_chunk_and_object(
    variant: str, ring: KeyRing
) -> None:
    view, store = view_of(variant, ring)
    view.size(LOG)
    good = store.stored[LOG]
    chunk_of = [
        chunk
        for chunk, size in enumerate((92, 92, 60) if variant == "encrypted" else (80, 91, 69))
        for _ in range(size)
    ]
    for position, chunk in enumerate(chunk_of):
        wrong = bytearray(good)
        wrong[position] ^= 0xFF
        store.stored[LOG] = bytes(wrong)
        seen = b""
        with pytest.raises(DecryptionError) as caught:
            for piece in view.read_pieces(LOG, ByteRange(0, 160)):
                seen += piece
        assert seen == vectors.SEGMENT[: 64 * chunk]
        assert caught.value.source == f"s3://bucket/{LOG}"
        assert caught.value.position == chunk_of.index(chunk)
        assert f"chunk {chunk} " in str(caught.value)
        assert "key id key1" in str(caught.value)


def test_each_flipped_byte_of_an_encrypted_index_is_refused(ring: KeyRing) -> None:
    view, store = view_of("encrypted", ring)
    good = store.stored[f"{vectors.STEM}.indexes"]
    for position in range(36, 76):
        wrong = bytearray(good)
        wrong[position] ^= 1
        store.stored[f"{vectors.STEM}.indexes"] = bytes(wrong)
        assert whole(view, f"{vectors.STEM}.index") == vectors.OFFSET_INDEX
        with pytest.raises(DecryptionError, match=r"\.indexes: the timestamp index was changed"):
            whole(view, f"{vectors.STEM}.timeindex")


@pytest.mark.parametrize("variant", CHANGED_VARIANTS)
def test_a_cut_log_is_no_log(variant: str, ring: KeyRing) -> None:
    view, store = view_of(variant, ring)
    good = store.stored[LOG]
    for size in range(0, len(good), 11):
        store.stored[LOG] = good[:size]
        with pytest.raises((ObjectChangedError, ShortReadError)):
            whole(view, LOG)


def test_a_flipped_byte_of_a_compressed_log_gives_other_bytes_or_an_error(ring: KeyRing) -> None:
    view, store = view_of("compressed", ring)
    good = store.stored[LOG]
    for position in range(len(good)):
        wrong = bytearray(good)
        wrong[position] ^= 0x55
        store.stored[LOG] = bytes(wrong)
        try:
            assert len(whole(view, LOG)) == 160  # the batches' own checksums find it
        except ManifestError as error:
            assert error.source == f"s3://bucket/{LOG}"


@pytest.mark.parametrize("declares", [True, False])
@pytest.mark.parametrize("size", [0, 63, 65, 1 << 30])
def test_a_chunk_that_is_not_as_long_as_it_must_be_is_refused_before_memory_is_taken(
    size: int, declares: bool, ring: KeyRing
) -> None:
    content = bytes(min(size, 1 << 20))
    frame = zstandard.ZstdCompressor(write_content_size=declares).compress(content)
    if size > len(content):  # four bytes of content size say so
        frame = b"\x28\xb5\x2f\xfd\xa0" + size.to_bytes(4, "little") + b"\x03\x00\x00\x00"
    manifest = vectors.manifest("compressed")
    manifest["chunkIndex"] = {
        "type": "fixed",
        "originalChunkSize": 64,
        "originalFileSize": 64,
        "transformedChunkSize": len(frame),
        "finalTransformedChunkSize": len(frame),
    }
    stored = vectors.with_manifest({**vectors.objects(), LOG: frame}, manifest)
    with pytest.raises(ManifestError, match="chunk 0"):
        whole(AivenFiles(vectors.RequestLog(stored), ring), LOG)


def test_a_frame_of_a_few_bytes_cannot_claim_a_gibibyte(ring: KeyRing) -> None:
    frame = b"\x28\xb5\x2f\xfd\xa0" + (1 << 30).to_bytes(4, "little") + b"\x03\x00\x00\x00"
    manifest = vectors.manifest("compressed")
    manifest["chunkIndex"] = {
        "type": "fixed",
        "originalChunkSize": 1 << 30,
        "originalFileSize": 1 << 30,
        "transformedChunkSize": len(frame),
        "finalTransformedChunkSize": len(frame),
    }
    stored = vectors.with_manifest({**vectors.objects(), LOG: frame}, manifest)
    with pytest.raises(ManifestError, match="chunk 0"):
        next(iter(AivenFiles(vectors.RequestLog(stored), ring).read_pieces(LOG, ByteRange(0, 10))))


def test_a_frame_with_something_behind_it_is_refused(ring: KeyRing) -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(64))
    manifest = vectors.manifest("compressed")
    size = 2 * len(frame)
    manifest["chunkIndex"] = {
        "type": "fixed",
        "originalChunkSize": 64,
        "originalFileSize": 64,
        "transformedChunkSize": size,
        "finalTransformedChunkSize": size,
    }
    stored = vectors.with_manifest({**vectors.objects(), LOG: 2 * frame}, manifest)
    with pytest.raises(ManifestError, match="chunk 0"):
        whole(AivenFiles(vectors.RequestLog(stored), ring), LOG)


def test_swapped_chunks_are_found_by_their_place_or_by_the_batches(ring: KeyRing) -> None:
    view, store = view_of("encrypted", ring)
    log = store.stored[LOG]
    store.stored[LOG] = log[92:184] + log[:92] + log[184:]
    assert whole(view, LOG) != vectors.SEGMENT  # no tag covers a chunk's number: the batches' checksums find it


def test_a_missing_key_is_told_with_the_object(ring: KeyRing) -> None:
    view, _ = view_of("both", KeyRing())
    assert view.size(LOG) == 160
    with pytest.raises(DecryptionError, match=r"\.log: the segment is encrypted.*key id key1"):
        whole(view, LOG)


def test_a_segment_that_has_gone_is_not_found_and_is_not_said_to_have_aborted_nothing(ring: KeyRing) -> None:
    view = AivenFiles(vectors.RequestLog({}), ring)
    for suffix in ("log", "index", "snapshot"):
        with pytest.raises(ObjectNotFoundError):
            view.size(f"{vectors.STEM}.{suffix}")
    with pytest.raises(ObjectChangedError, match="has gone"):
        view.size(f"{vectors.STEM}.txnindex")


def test_a_transaction_index_that_has_gone_is_no_empty_one(ring: KeyRing) -> None:
    manifest = vectors.manifest()
    manifest["segmentIndexes"]["transaction"] = {"position": 40, "size": 34}
    view = AivenFiles(vectors.RequestLog(vectors.with_manifest({LOG: vectors.SEGMENT}, manifest)), ring)
    with pytest.raises(ObjectChangedError, match="has gone"):
        whole(view, f"{vectors.STEM}.txnindex")
    with pytest.raises(ObjectNotFoundError):
        whole(view, f"{vectors.STEM}.snapshot")


def test_an_index_range_outside_of_its_object_is_a_short_read(ring: KeyRing) -> None:
    view, store = view_of("plain", ring)
    store.stored[f"{vectors.STEM}.indexes"] = store.stored[f"{vectors.STEM}.indexes"][:30]
    with pytest.raises(ShortReadError):
        whole(view, f"{vectors.STEM}.leader_epoch_checkpoint")


@pytest.mark.parametrize("variant", ["plain", "encrypted"])
def test_indexes_of_the_oldest_layout_are_objects_of_their_own(variant: str, ring: KeyRing) -> None:
    stored = vectors.objects(variant)
    indexes = stored.pop(f"{vectors.STEM}.indexes")
    manifest = vectors.manifest(variant)
    for kind, suffix in (("offset", "index"), ("leaderEpoch", "leader-epoch-checkpoint")):
        part = manifest["segmentIndexes"][kind]
        stored[f"{vectors.STEM}.{suffix}"] = indexes[part["position"] : part["position"] + part["size"]]
    del manifest["segmentIndexes"]
    view = AivenFiles(vectors.RequestLog(vectors.with_manifest(stored, manifest)), ring)
    assert whole(view, LOG) == vectors.SEGMENT
    assert whole(view, f"{vectors.STEM}.index") == vectors.OFFSET_INDEX
    assert whole(view, f"{vectors.STEM}.leader-epoch-checkpoint") == vectors.LEADER_EPOCHS
    with pytest.raises(ObjectNotFoundError):
        view.size(f"{vectors.STEM}.txnindex")


def test_an_empty_segment_has_no_bytes(ring: KeyRing) -> None:
    manifest = vectors.manifest()
    manifest["chunkIndex"] |= {"originalFileSize": 0, "finalTransformedChunkSize": 0}
    view = AivenFiles(vectors.RequestLog(vectors.with_manifest({LOG: b""}, manifest)), ring)
    assert view.size(LOG) == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=tries(40))
@given(st.data())
def test_a_file_in_chunks_of_any_size_is_the_file(data: st.DataObject) -> None:
    content = data.draw(st.binary(min_size=1, max_size=300))
    chunk_size = data.draw(st.integers(1, 120))
    compressor = zstandard.ZstdCompressor()
    chunks = [compressor.compress(content[at : at + chunk_size]) for at in range(0, len(content), chunk_size)]
    binary = len(chunks).to_bytes(4)
    if len(chunks) > 1:
        base = min(map(len, chunks[:-1]))
        binary += base.to_bytes(4) + b"\2" + b"".join((len(chunk) - base).to_bytes(2) for chunk in chunks[:-1])
    binary += len(chunks[-1]).to_bytes(4)
    manifest = vectors.manifest("compressed")
    manifest["chunkIndex"] = {
        "type": "variable",
        "originalChunkSize": chunk_size,
        "originalFileSize": len(content),
        "transformedChunks": base64.b64encode(compressor.compress(binary)).decode(),
    }
    store = vectors.RequestLog(
        {LOG: b"".join(chunks), f"{vectors.STEM}.rsm-manifest": json.dumps(manifest).encode()},
        piece_size=data.draw(st.integers(1, 50)),
    )
    view = AivenFiles(store)
    start = data.draw(st.integers(0, len(content) - 1))
    stop = data.draw(st.integers(start + 1, len(content)))
    assert b"".join(map(bytes, view.read_pieces(LOG, ByteRange(start, stop)))) == content[start:stop]
    sizes = list(map(len, chunks))
    first, last = start // chunk_size, (stop - 1) // chunk_size
    assert store.requests[-1] == f"GET log bytes={sum(sizes[:first])}-{sum(sizes[: last + 1]) - 1}"


def test_no_error_shows_a_key(ring: KeyRing, tmp_path: Path) -> None:
    view, store = view_of("both", KeyRing({"key1": tmp_path / "missing.pem"}))
    for name in (LOG, f"{vectors.STEM}.index"):
        with pytest.raises(SegreaderError) as caught:
            whole(view, name)
        assert vectors.WRAPPED_KEY[:20] not in f"{caught.value!s}{caught.value!r}"
    assert store.requests
