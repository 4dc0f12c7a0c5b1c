"""The same logs in every layout: who writes them, what a reader needs besides, and the records that must come out."""

from __future__ import annotations

import re
import uuid
from base64 import urlsafe_b64decode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from segreader.format.batch import TimestampType
from segreader.format.compression import Codec
from segreader.testing import ProducerRecord, SegmentBuilder
from segreader.testing.aiven import aiven_files, write_rsm_config
from segreader.testing.directory import broker_log_files, kafka_uuid, local_tiered_files, write_files
from segreader.testing.layouts import (
    confluent_files,
    early_s3_files,
    linkedin_files,
    named_files,
    pinterest_files,
    uber_files,
)
from segreader.testing.redpanda import redpanda_files

Segments = Sequence[SegmentBuilder]
Files = dict[str, bytes]
Row = tuple[Any, ...]

CLUSTER_UUID = "9687f8b0-b81a-4a4c-9811-883fed35c1d8"
KEY_ID = "key1"


# Logs. Values say what becomes of them: "aborted…" no committed reader sees, "open…" none yet. Before each transaction
# an offset is left out, where Redpanda has its begin.


def plain_log(first: int = 0) -> list[SegmentBuilder]:
    """Every codec, nulls, empty and repeated headers, an idempotent producer, offsets that the cleaner took."""
    one = SegmentBuilder(first)
    for codec in Codec:
        one.batch([b"v%d" % codec, ProducerRecord(None, b"key"), ProducerRecord(b"", b"")], codec=codec)
    headers = (("h", b"1"), ("h", None), ("", b""))
    two = one.roll().batch([ProducerRecord(b"with headers", b"k", headers)], codec=Codec.ZSTD)
    two.batch([b"idempotent 1", b"idempotent 2"], producer_id=5).skip(3).batch([b"idempotent 3"], producer_id=5)
    two.batch([b"at the broker's time"], log_append_time_ms=1_700_000_900_000)
    three = two.roll()
    for number in range(12):
        three.batch([b"%d" % number + b"x" * 700], codec=Codec.LZ4 if number % 2 else Codec.NONE)
    return [one, two, three]


def transactions_log() -> list[SegmentBuilder]:
    """Interleaved transactions that begin in one segment and end in another; every batch indexed; an empty last one."""
    one = SegmentBuilder(index_interval_bytes=1).batch([b"before"])
    one.skip(1).batch([b"aborted 1", b"aborted 2"], producer_id=7, transactional=True, codec=Codec.GZIP)
    one.skip(1).batch([b"committed 1"], producer_id=8, transactional=True)
    two = one.roll().batch([b"between"]).batch([b"aborted 3"], producer_id=7, transactional=True)
    two.batch([b"committed 2"], producer_id=8, transactional=True).marker(7, abort=True).batch([b"after the abort"])
    three = two.roll().batch([b"committed 3"], producer_id=8, transactional=True).marker(8)
    three.skip(1).batch([b"aborted 4"], producer_id=8, transactional=True)
    three.skip(1).batch([b"committed 4"], producer_id=7, transactional=True)
    four = three.roll().batch([b"only plain"])
    five = four.roll().marker(7).marker(8, abort=True).batch([b"last"])
    return [one, two, three, four, five, five.roll()]


def open_log() -> list[SegmentBuilder]:
    """At the end of the second segment a transaction is open: nothing from its first record on is committed yet."""
    one = SegmentBuilder(40, index_interval_bytes=1).batch([b"a", b"b"])
    one.skip(1).batch([b"aborted"], producer_id=3, transactional=True).marker(3, abort=True)
    two = one.roll().batch([b"c"]).skip(1).batch([b"open 1"], producer_id=4, transactional=True).batch([b"open 2"])
    return [one, two]


def leaders_log() -> list[SegmentBuilder]:
    """Three leaders: one begins with a segment, one in the middle of a segment."""
    one = SegmentBuilder(7, leader_epoch=2).batch([b"a", b"b"]).batch([b"c"])
    two = one.roll().new_leader(4).batch([b"d"]).batch([b"e", b"f"])
    three = two.roll().batch([b"g"]).new_leader(5).batch([b"h"])
    return [one, two, three]


def ended_log() -> list[SegmentBuilder]:
    """Five small segments, each with a record or two."""
    log = [SegmentBuilder().batch([b"0"])]
    for number in range(1, 5):
        log.append(log[-1].roll().batch([b"%d" % number] * number))
    return log


TOPICS: dict[str, dict[int, Callable[[], list[SegmentBuilder]]]] = {
    "orders.v2_x": {0: plain_log, 1: partial(plain_log, 1000), 11: ended_log},
    "a-1-0": {0: transactions_log},
    "a-1": {0: open_log},
    "9": {3: leaders_log},
}
"""Topic -> partition -> its log. Names that hold dashes, dots, underscores; two of them look like partitions."""


@cache
def log_of(topic: str, partition: int) -> tuple[SegmentBuilder, ...]:
    """The segments of one partition."""
    return tuple(TOPICS[topic][partition]())


# Layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to store segments.

    Args:
        layout: its name, as ``layout=`` takes it.
        write: topic, partition and segments to objects.
        told_as: what it is taken for, where nothing tells it from another layout.
        shown: what a reader calls a topic.
        key_prefix: of the plugin's settings, where a reader is given them.
        has_keys: whether those settings name the private key.
        uploads_open: whether records that are not decided are there.
        one_epoch: whether each segment has a single leader epoch.
    """

    name: str
    layout: str
    write: Callable[[str, int, Segments], Files]
    told_as: str | None = None
    shown: Callable[[str], str] = str
    key_prefix: str | None = None
    has_keys: bool = False
    is_experimental: bool = False
    uploads_open: bool = True
    one_epoch: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def is_pattern(self) -> bool:
        """Patterns are not told by themselves."""
        return self.layout.startswith("pattern:")

    def files(self, *topics: str) -> Files:
        """All objects of these topics, or of all."""
        files: Files = {}
        for topic in topics or TOPICS:
            for partition in TOPICS[topic]:
                files |= self.write(topic, partition, log_of(topic, partition))
        return files

    def arguments(self, directory: Path) -> dict[str, Any]:
        """What ``scan`` needs besides the location; settings are written to a directory."""
        if self.key_prefix is None:
            return {}
        directory.mkdir(exist_ok=True)
        path = directory / "server.properties"
        if not path.exists():
            keys = {KEY_ID: private_key()} if self.has_keys else None
            write_rsm_config(directory, key_prefix=self.key_prefix, keys=keys)
        return {"rsm_config": path}

    def rows(self, *topics: str, committed: bool = False) -> list[Row]:
        """The records that a reader is given, in its order."""
        rows = []
        for topic in topics or TOPICS:
            for partition in TOPICS[topic]:
                rows += self._rows(topic, partition, committed)
        return sorted(rows, key=lambda row: row[:3])

    def _rows(self, topic: str, partition: int, committed: bool) -> list[Row]:
        segments = log_of(topic, partition)
        records = [record for segment in segments for record in segment.records]
        decided = min((one.offset for one in records if (one.value or b"").startswith(b"open")), default=1 << 62)
        return [
            (
                self.shown(topic),
                partition,
                one.offset,
                one.timestamp_ms,
                one.timestamp_type,
                self._epoch(segments, one.offset),
                one.key,
                one.value,
                one.headers,
            )
            for one in records
            if one.offset < decided or (self.uploads_open and not committed)
            if not (committed and (one.value or b"").startswith(b"aborted"))
        ]

    def _epoch(self, segments: Segments, offset: int) -> int:
        holding = [segment for segment in segments if segment.base_offset <= offset][-1]
        epochs = holding.leader_epochs
        if self.one_epoch:
            return holding.leader_epoch
        return epochs[bisect_right([start for _, start in epochs], offset) - 1][0]


def rows_of(scan: Any) -> list[Row]:
    """What a scan gives, as ``Way.rows`` has it."""
    return list(iter_rows(scan))


def iter_rows(scan: Any) -> Iterator[Row]:
    """The same, one after another."""
    for one in scan.records():
        yield (
            one.topic,
            one.partition,
            one.offset,
            one.timestamp_ms,
            TimestampType(one.timestamp_type),
            one.leader_epoch,
            one.key,
            one.value,
            one.headers,
        )


def lay_out(root: Path, files: Files) -> Path:
    """Write objects below a directory; the directory."""
    root.mkdir(exist_ok=True)
    write_files(root, files)
    return root


_PRIMES = (
    int(
        "fbe664ecafa3d41cd8f9d2d248170dbe85dca3918639bdef1d98f04ac0c821e362450fdef32056d382"
        "e3b8473ea61a1a40d4e7cc85cc658a6f99e863d02e69988dcfb0ef58c4ec21ebc3c738ee1a529d8d2b",
        16,
    ),
    int(
        "d10b6b290341ab440b97a88edf7b8b72807de95f39ed6eaf9ebdb9b6bc6a035bb7313f3faa6b46707d"
        "74c9ff37fff2e9ad9607e3c9c821b3756d33c846e35f79545d45969d2365ecfa64aeba283bd07a0f55",
        16,
    ),
)
"""Of a key of 1312 bits: hardly longer than must be, for every segment's data key is unwrapped in plain Python."""


@cache
def private_key() -> Any:
    """The key that opens what is encrypted here."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    p, q = _PRIMES
    d = pow(65537, -1, (p - 1) * (q - 1))
    return rsa.RSAPrivateNumbers(
        p=p,
        q=q,
        d=d,
        dmp1=rsa.rsa_crt_dmp1(d, p),
        dmq1=rsa.rsa_crt_dmq1(d, q),
        iqmp=rsa.rsa_crt_iqmp(p, q),
        public_numbers=rsa.RSAPublicNumbers(65537, p * q),
    ).private_key()


def uuid_of(topic: str) -> str:
    """The id of a topic as a UUID with dashes."""
    return str(uuid.UUID(bytes=urlsafe_b64decode(kafka_uuid(topic) + "==")))


def _call(writer: Callable[..., Files], **how: Any) -> Callable[[str, int, Segments], Files]:
    return lambda topic, partition, segments: writer(topic, segments, partition=partition, **how)


def _aiven(name: str, *, key_prefix: str = "", is_configured: bool = False, **how: Any) -> Way:
    def write(topic: str, partition: int, segments: Segments) -> Files:
        encryption = (KEY_ID, private_key().public_key()) if how.get("encrypted") else None
        return aiven_files(
            topic,
            segments,
            partition=partition,
            key_prefix=key_prefix,
            chunk_size=how.get("chunk_size", 500),
            compression=how.get("compression", False),
            encryption=encryption,
        )

    return Way(
        name=f"aiven-{name}",
        layout="aiven",
        write=write,
        key_prefix=key_prefix if is_configured or how.get("encrypted") else None,
        has_keys=bool(how.get("encrypted")),
    )


def _redpanda(name: str, **how: Any) -> Way:
    return Way(
        name=f"redpanda-{name}",
        layout="redpanda",
        write=_call(redpanda_files, **how),
        is_experimental=True,
        uploads_open=False,
        one_epoch=True,
    )


def _export_name(topic: str, partition: int) -> Callable[[int, str], str]:
    return lambda base, kind: f"export/{topic}/{partition:05d}/{base}.{_WORDS.get(kind, kind)}"


def _flat_name(topic: str, partition: int) -> Callable[[int, str], str]:
    def name(base: int, kind: str) -> str:
        return f"{topic}~{partition}~{base}~{kafka_uuid(topic, partition, base)}.{_WORDS.get(kind, kind)}"

    return name


def _named(name: Callable[[str, int], Callable[[int, str], str]]) -> Callable[[str, int, Segments], Files]:
    return lambda topic, partition, segments: named_files(segments, name(topic, partition))


_WORDS = {"epochs": "epoch-state", "txnindex": "transaction-index"}
_EXPORT = r"pattern:export/(?P<topic>[^/]+)/(?P<partition>\d+)/(?P<offset>\d+)\.(?P<type>[a-z-]+)"
_FLAT = r"pattern:(?P<topic>[^~]+)~(?P<partition>\d+)~(?P<offset>\d+)~(?P<segment_id>[\w-]{22})\.(?P<type>[a-z-]+)"

WAYS: tuple[Way, ...] = (
    Way(name="local-tiered", layout="local-tiered", write=_call(local_tiered_files)),
    Way(name="log-directory", layout="log-directory", write=_call(broker_log_files)),
    Way(name="log-directory-running", layout="log-directory", write=_call(broker_log_files, preallocated=4096)),
    _aiven("plain"),
    _aiven("zstd", compression=True),
    _aiven("encrypted", encrypted=True),
    _aiven("both-slash", encrypted=True, compression=True, key_prefix="deep/tiered/"),
    _aiven("heuristic-slash", compression="heuristic", key_prefix="tiered/", is_configured=True),
    _aiven("one-chunk", compression=True, chunk_size=4 << 20),
    _aiven("glued", compression=True, key_prefix="tiered", is_configured=True),
    _aiven("glued-both", compression=True, encrypted=True, key_prefix="a/b-", chunk_size=61),
    Way(name="pinterest", layout="pinterest", write=_call(pinterest_files)),
    Way(name="pinterest-entropy", layout="pinterest", write=_call(pinterest_files, entropy_bits=5, hints=False)),
    Way(
        name="pinterest-bare",
        layout="pinterest",
        write=_call(pinterest_files, kinds=("log",), base_prefix="", hints=False),
        told_as="log-directory",
    ),
    Way(name="early-s3", layout="early-s3", write=_call(early_s3_files)),
    Way(name="uber", layout="uber", write=_call(uber_files)),
    Way(
        name="linkedin-azure",
        layout="linkedin-azure",
        write=_call(linkedin_files, container_prefix="kafka"),
        shown=uuid_of,
        is_experimental=True,
    ),
    Way(name="confluent", layout="confluent", write=_call(confluent_files), shown=kafka_uuid, is_experimental=True),
    _redpanda("bin"),
    _redpanda("json", manifest="json", name_format=2),
    _redpanda("labelled", cluster_uuid=CLUSTER_UUID, spilled=1),
    Way(name="pattern", layout=_EXPORT, write=_named(_export_name)),
    Way(name="pattern-with-ids", layout=_FLAT, write=_named(_flat_name)),
)


def way(name: str) -> Way:
    """One of ``WAYS``."""
    return next(one for one in WAYS if one.name == name)


def log_names(files: Files) -> list[str]:
    """The objects that hold records."""
    return sorted(name for name in files if _IS_LOG.search(name))


_IS_LOG = re.compile(r"\.log(\.[\w-]+)?$|\.SEGMENT$|\.segment$|/[\w-]{22}$")
