"""Which objects are a segment's, as the plugins' layouts have it; nothing that a plugin changed is called plain."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from located_broker import TOPIC, segment_of, segments_of_100

from segreader.broker.messages import OFFSET_INDEX, TRANSACTION_INDEX
from segreader.catalog.layouts.aiven.manifest import main_path
from segreader.catalog.metadata_log import RemoteLogSegmentMetadata
from segreader.errors import ManifestError, ObjectNotFoundError, OptionError, StorageError
from segreader.format.index_files import parse_offset_index
from segreader.gateway.config import GatewayConfig
from segreader.gateway.metrics import GatewayMetrics
from segreader.gateway.remote.catalogue import Catalogue, ObjectFinder
from segreader.gateway.remote.signing import BaseUrlSigner, BucketSigner, make_signer
from segreader.storage.cloud.signing import BucketStore
from segreader.storage.local import LocalStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered


@pytest.fixture
def segment() -> SegmentBuilder:
    return segments_of_100()[1]


def test_files_of_kafkas_own_storage_are_plain(tmp_path: Path, segment: SegmentBuilder) -> None:
    write_local_tiered(tmp_path / "remote", TOPIC, [segment])
    known = segment_of(segment, last_offset=199)
    for layout in ("auto", "local-tiered"):
        finder = ObjectFinder(LocalStore(tmp_path), "remote/", layout)
        found = finder.find(known)
        assert found is not None
        assert (tmp_path / found.log).read_bytes() == segment.to_bytes()
        index = finder.read_index(found.indexes[OFFSET_INDEX], 1 << 20)
        assert index == segment.index()
        assert parse_offset_index(index, 100).lookup(150).position > 0
        assert TRANSACTION_INDEX not in found.indexes
        with pytest.raises(ManifestError, match="too large"):
            finder.read_index(found.indexes[OFFSET_INDEX], 3)


class _Known:
    """Segments of one partition."""

    def __init__(self, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
        self._segments = segments

    def segments(self, topic: str, topic_id: str, partition: int) -> Sequence[RemoteLogSegmentMetadata]:
        return self._segments

    def topic_name(self, topic_id: str) -> str:
        return TOPIC

    def changes(self, topic_id: str, partition: int) -> object:
        return 1

    def lag_s(self, topic_id: str, partition: int) -> float:
        return 0.0


def test_limits_of_reading_and_keeping_indexes_are_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builders, metrics = segments_of_100(), GatewayMetrics()
    write_local_tiered(tmp_path / "remote", TOPIC, builders)
    segments = [segment_of(one, last_offset=100 * number + 99) for number, one in enumerate(builders)]
    finder = ObjectFinder(LocalStore(tmp_path), "remote/", "auto")
    catalogue = Catalogue(_Known(segments), finder, readers=1, cache_bytes=1, max_lag_s=30, metrics=metrics)

    async def read_all() -> None:
        await asyncio.gather(*(catalogue.stored(one) for one in segments))

    with contextlib.closing(catalogue):
        asyncio.run(read_all())
    waited = len(segments) - 1
    assert metrics.limits_reached == {"index_downloads": waited, "index_cache_bytes": waited}
    said = sorted(one.getMessage() for one in caplog.records if one.getMessage().startswith("limit "))
    assert said == [
        f"limit index_cache_bytes (1) reached by {TOPIC}-0, 1 times since last logged",
        f"limit index_downloads (1) reached by {TOPIC}-0, 1 times since last logged",
    ]


def test_objects_that_are_not_there_are_told(tmp_path: Path, segment: SegmentBuilder) -> None:
    for layout in ("auto", "local-tiered", "aiven"):
        with pytest.raises(ObjectNotFoundError):
            ObjectFinder(LocalStore(tmp_path), "", layout).find(segment_of(segment, last_offset=199))
    with pytest.raises(OptionError, match="layout"):
        ObjectFinder(LocalStore(tmp_path), "", "other")


def write_aiven(root: Path, segment: SegmentBuilder, **changes: object) -> str:
    """Objects as Aiven's plugin writes them for a segment of one chunk; ``changes`` are fields of the manifest."""
    data, index = segment.to_bytes(), segment.index()
    known = segment_of(segment, last_offset=199)
    path = main_path(known.partition, segment.base_offset, known.segment_id)
    stem = root / path
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".log").write_bytes(data)
    stem.with_suffix(".indexes").write_bytes(b"before" + index)
    manifest = {
        "version": "1",
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": len(data),
            "originalFileSize": len(data),
            "transformedChunkSize": len(data),
            "finalTransformedChunkSize": len(data),
        },
        "segmentIndexes": {
            "offset": {"position": 6, "size": len(index)},
            "timestamp": {"position": 0, "size": 0},
            "producerSnapshot": {"position": 0, "size": 0},
            "leaderEpoch": {"position": 0, "size": 0},
            "transaction": None,
        },
        "compression": False,
        **changes,
    }
    stem.with_suffix(".rsm-manifest").write_text(json.dumps(manifest))
    return path


def test_untransformed_segments_of_aivens_plugin_are_plain(tmp_path: Path, segment: SegmentBuilder) -> None:
    path = write_aiven(tmp_path / "pre", segment)
    for layout in ("auto", "aiven"):
        finder = ObjectFinder(LocalStore(tmp_path), "pre/", layout)
        found = finder.find(segment_of(segment, last_offset=199))
        assert found is not None
        assert found.log == f"pre/{path}.log"
        assert finder.read_index(found.indexes[OFFSET_INDEX], 1 << 20) == segment.index()
        assert TRANSACTION_INDEX not in found.indexes


def test_a_manifest_tells_that_a_transaction_index_is_empty_where_the_broker_does_not(
    tmp_path: Path, segment: SegmentBuilder
) -> None:
    write_aiven(tmp_path, segment)
    finder = ObjectFinder(LocalStore(tmp_path), "", "aiven")
    known = segment_of(segment, last_offset=199)
    untold = known._replace(started=known.started._replace(transaction_index_is_empty=False))
    found = finder.find(untold)
    assert found is not None
    assert finder.read_index(found.indexes[TRANSACTION_INDEX], 0) == b""


def test_what_the_plugin_compressed_or_encrypted_is_not_plain(tmp_path: Path, segment: SegmentBuilder) -> None:
    known = segment_of(segment, last_offset=199)
    finder = ObjectFinder(LocalStore(tmp_path), "", "aiven")
    write_aiven(tmp_path, segment, compression=True)
    assert finder.find(known) is None
    encryption = {"dataKey": base64.b64encode(bytes(64)).decode(), "aad": base64.b64encode(bytes(32)).decode()}
    write_aiven(tmp_path, segment, encryption={**encryption, "dataKey": f"key1:{encryption['dataKey']}"})
    with contextlib.suppress(ManifestError):
        assert finder.find(known) is None
    path = write_aiven(tmp_path, segment)
    assert finder.find(known) is not None
    (tmp_path / f"{path}.log").write_bytes(segment.to_bytes() + b"x")
    assert finder.find(known) is None


class Bucket:
    """Signs with a count; its credentials may end."""

    base = "s3://bucket/"

    def __init__(self, end: float | None = None, more: str | None = None) -> None:
        self.headers: dict[str, str] = {}
        self.end, self.more, self.signed, self.looked = end, more, 0, 0
        self.later: float | None = None

    def pages(self, prefix: str, *, is_level: bool = False) -> object:
        raise AssertionError

    def sign(self, name: str, life_s: int) -> str:
        self.signed += 1
        return f"https://bucket.example/{name}?X-Amz-Signature=c4nary{self.signed}"

    def credentials_end(self) -> float | None:
        return self.end

    def find_credentials(self) -> None:
        self.looked += 1
        self.end = self.later if self.later is not None else self.end

    def opens_more(self) -> str | None:
        return self.more

    def hint(self) -> str:
        return "hint"


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def signer_of(bucket: Bucket, clock: Clock, **settings: object) -> BucketSigner:
    store = BucketStore(bucket)  # type: ignore[arg-type]
    values = {"life_s": 900, "gives_names": True, "metrics": GatewayMetrics(), "clock": clock, **settings}
    return BucketSigner(store, **values)  # type: ignore[arg-type]


def test_a_signature_is_used_again_while_more_than_half_of_its_life_is_left() -> None:
    bucket, clock = Bucket(), Clock()
    signer = signer_of(bucket, clock)
    first = signer.access("a")
    assert (first.name, first.expiry_ms) == ("s3://bucket/a", 1_000_900_000)
    clock.now += 449
    assert signer.at_hand("a") == first == signer.access("a")
    clock.now += 1
    assert signer.at_hand("a") is None
    again = signer.access("a")
    assert again.url != first.url
    assert again.expiry_ms == 1_001_350_000
    assert bucket.signed == 2


def test_a_url_never_outlives_the_credentials() -> None:
    clock = Clock()
    bucket = Bucket(end=clock.now + 100)
    signer = signer_of(bucket, clock)
    assert signer.access("a").expiry_ms == int((clock.now + 100) * 1000)
    bucket.later = clock.now + 5000
    clock.now += 11
    assert signer.access("a").expiry_ms == int((clock.now + 900) * 1000)
    assert bucket.looked >= 1


def test_credentials_that_have_ended_sign_nothing() -> None:
    clock = Clock()
    signer = signer_of(Bucket(end=clock.now - 1), clock)
    with pytest.raises(StorageError, match="ended") as caught:
        signer.access("a")
    assert "c4nary" not in str(caught.value)


def test_urls_that_open_more_than_one_object_are_refused() -> None:
    with pytest.raises(OptionError, match="opens more than one blob"):
        signer_of(Bucket(more="the shared access signature opens more than one blob"), Clock())


def test_what_is_given_shows_no_url() -> None:
    signer = signer_of(Bucket(), Clock(), gives_names=False)
    access = signer.access("a")
    assert access.name is None
    assert access.url is not None
    assert "c4nary" not in repr(access) + repr(signer)


def config_of(**settings: object) -> GatewayConfig:
    given = {"bootstrap_servers": "b:9092", "listen": "127.0.0.1:9", "location": "s3://b", **settings}
    return GatewayConfig.load(None, given)


def test_a_directory_needs_a_url_base(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(OptionError, match="url_base"):
        make_signer(config_of(location=str(tmp_path)), store, "remote/", GatewayMetrics())
    config = config_of(location=str(tmp_path), url_base="http://127.0.0.1:8/x/", allow_http=True)
    signer = make_signer(config, store, "remote/", GatewayMetrics())
    access = signer.access("remote/orders 1/a.log")
    assert (access.name, access.url) == (None, "http://127.0.0.1:8/x/orders%201/a.log")
    with pytest.raises(StorageError, match="outside"):
        signer.access("elsewhere/a.log")
    clock = Clock()
    unsigned = BaseUrlSigner("https://h", life_s=60, clock=clock)
    first = unsigned.access("a")
    assert first.expiry_ms == 1_000_060_000
    clock.now += 29
    assert unsigned.at_hand("a") is first
    clock.now += 1
    assert unsigned.access("a").expiry_ms == 1_000_090_000
