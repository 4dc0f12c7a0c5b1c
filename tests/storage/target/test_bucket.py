"""What follows when a bucket does not answer, answers late, or lets two writers win."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import pytest

from segreader.errors import AccessDeniedError, ObjectNotFoundError, StorageError
from segreader.storage.base import ObjectInfo
from segreader.storage.cloud.pages import Pages
from segreader.storage.retry import Clock
from segreader.storage.target.bucket import PART_SIZE, BucketTarget, Upload

Fault = Callable[[str], None]


class Still(Clock):
    """Nothing waits."""

    def __init__(self) -> None:
        self.waits = 0

    def wait(self, stopped: threading.Event, seconds: float) -> bool:
        self.waits += 1
        return stopped.is_set()


class FaultyBucket:
    """A bucket whose requests fail as told: before they arrive, or after."""

    base = "s3://bucket/"
    hint = "Set something"
    rights: Mapping[str, str] = MappingProxyType(
        {"write": "right W", "read": "right R", "list": "right L", "delete": "right D"}
    )
    rivals = 2

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.before: Iterator[Exception | None] = iter(())
        self.after: Iterator[Exception | None] = iter(())
        self.reading: Iterator[Exception | None] = iter(())
        self.checks = True
        self.aborted = 0
        self.parts: list[bytes] = []
        self.unfinished: list[tuple[str, Callable[[], None]]] = []
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes, *, is_new: bool = False) -> None:
        with self._lock:
            _fail(self.before)
            if is_new and self.checks and key in self.objects:
                raise FileExistsError("At least one of the pre-conditions you specified did not hold")
            self.objects[key] = data
            _fail(self.after)

    def get(self, key: str) -> bytes:
        _fail(self.reading)
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key]

    def remove(self, key: str) -> None:
        if self.objects.pop(key, None) is None:
            raise FileNotFoundError(key)

    def pages(self, prefix: str) -> Pages:
        yield [ObjectInfo(name, len(self.objects[name])) for name in sorted(self.objects) if name.startswith(prefix)]

    def begun(self, prefix: str) -> Iterator[tuple[str, Callable[[], None]]]:
        return iter([(key, abort) for key, abort in self.unfinished if key.startswith(prefix)])

    def upload(self, key: str) -> Upload:
        bucket = self

        class Parts:
            def add(self, data: bytes) -> None:
                _fail(bucket.before)
                bucket.parts.append(data)

            def finish(self, data: bytes) -> None:
                self.add(data)
                bucket.objects[key] = b"".join(bucket.parts)

            def abort(self) -> None:
                bucket.aborted += 1
                raise ConnectionError("gone")

        return Parts()


def _fail(faults: Iterator[Exception | None]) -> None:
    if (fault := next(faults, None)) is not None:
        raise fault


@pytest.fixture
def bucket() -> FaultyBucket:
    return FaultyBucket()


@pytest.fixture
def target(bucket: FaultyBucket) -> BucketTarget:
    """One that has found its store to keep conditions."""
    target = BucketTarget(bucket, "out/", clock=Still())
    assert target.put_if_absent("first", b"")
    return target


def test_the_trial_leaves_nothing_and_happens_once(bucket: FaultyBucket, target: BucketTarget) -> None:
    assert list(bucket.objects) == ["out/first"]
    bucket.checks = False
    assert target.put_if_absent("second", b"")


def test_a_winner_whose_answer_was_lost_is_told_that_it_won(bucket: FaultyBucket, target: BucketTarget) -> None:
    bucket.after = iter([TimeoutError("read timed out")])
    assert target.put_if_absent("a", b"ours")
    assert bucket.objects["out/a"] == b"ours"


def test_a_loser_whose_answer_was_lost_is_told_that_it_lost(bucket: FaultyBucket, target: BucketTarget) -> None:
    bucket.objects["out/a"] = b"theirs"
    bucket.before = iter([TimeoutError("connection timed out")])
    assert not target.put_if_absent("a", b"ours")
    assert bucket.objects["out/a"] == b"theirs"


def test_a_request_that_did_not_arrive_is_sent_again(bucket: FaultyBucket, target: BucketTarget) -> None:
    bucket.before = iter([TimeoutError("connection timed out"), OSError("409 ConditionalRequestConflict"), None])
    assert target.put_if_absent("a", b"ours")
    assert bucket.objects["out/a"] == b"ours"


def test_reading_back_may_fail_and_what_is_there_decides_in_the_end(bucket: FaultyBucket, target: BucketTarget) -> None:
    bucket.after = iter([TimeoutError("read timed out")])
    bucket.reading = iter([TimeoutError("read timed out")])
    assert target.put_if_absent("a", b"ours")
    bucket.after = iter([TimeoutError("read timed out")])
    bucket.reading = iter([TimeoutError("read timed out"), None])
    assert not target.put_if_absent("a", b"later")


def test_what_nobody_can_tell_is_an_error_that_says_what_not_to_delete(
    bucket: FaultyBucket, target: BucketTarget
) -> None:
    bucket.before = iter([TimeoutError("https://bucket/out/a?X-Amz-Signature=canary-4711 timed out")] * 9)
    with pytest.raises(StorageError, match=r"it is not known whether.*It may still appear; run it again") as caught:
        target.put_if_absent("a", b"ours")
    assert caught.value.source == "s3://bucket/out/a"
    assert "canary" not in str(caught.value)
    assert len(list(bucket.before)) == 4


def test_a_refusal_is_not_tried_again(bucket: FaultyBucket, target: BucketTarget) -> None:
    for fault, kind in ((PermissionError("no"), AccessDeniedError), (FileNotFoundError("no"), ObjectNotFoundError)):
        bucket.before = iter([fault, None])
        with pytest.raises(kind):
            target.put_if_absent("a", b"ours")
        assert "out/a" not in bucket.objects
    bucket.before, bucket.reading = iter([TimeoutError("x")]), iter([PermissionError("no")])
    with pytest.raises(AccessDeniedError):
        target.put_if_absent("a", b"ours")


def test_a_store_without_the_condition_is_refused_every_time_and_keeps_nothing(bucket: FaultyBucket) -> None:
    bucket.checks = False
    target = BucketTarget(bucket, "out/", clock=Still())
    for _ in range(2):
        with pytest.raises(StorageError, match="does not keep the condition"):
            target.put_if_absent("a", b"ours")
    assert bucket.objects == {}
    bucket.checks = True
    assert target.put_if_absent("a", b"ours")


class CheckingBucket(FaultyBucket):
    """Looks, and then writes: what two writers at once both pass."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = threading.Barrier(self.rivals)

    def put(self, key: str, data: bytes, *, is_new: bool = False) -> None:
        if key in self.objects:
            raise FileExistsError(key)
        self.looked.wait(5)
        self.objects[key] = data


def test_a_store_that_looks_and_then_writes_is_refused_when_two_writers_meet() -> None:
    bucket = CheckingBucket()
    with pytest.raises(StorageError, match="of two writers both would win"):
        BucketTarget(bucket, "", clock=Still()).put_if_absent("a", b"ours")
    assert bucket.objects == {}


def test_a_trial_whose_answers_are_lost_is_still_one(bucket: FaultyBucket) -> None:
    bucket.after = iter([TimeoutError("read timed out")])
    target = BucketTarget(bucket, "", clock=Still())
    assert target.put_if_absent("a", b"ours")


def test_a_store_that_is_away_during_the_trial_is_not_called_lax(bucket: FaultyBucket) -> None:
    bucket.before = iter([TimeoutError("connection timed out")] * 3)
    target = BucketTarget(bucket, "", clock=Still())
    with pytest.raises(StorageError, match="found TimeoutError"):
        target.put_if_absent("a", b"ours")
    assert target.put_if_absent("a", b"ours")


def test_parts_have_one_size_and_the_last_is_never_empty(bucket: FaultyBucket, target: BucketTarget) -> None:
    with target.create("a") as file:
        file.write(bytes(3 * PART_SIZE))
        assert [len(part) for part in bucket.parts] == [PART_SIZE] * 2
    assert [len(part) for part in bucket.parts] == [PART_SIZE] * 3


def test_a_part_that_fails_is_the_error_and_the_upload_is_given_up(bucket: FaultyBucket, target: BucketTarget) -> None:
    bucket.before = iter([None, ConnectionError("gone")])
    with pytest.raises(StorageError, match="found ConnectionError") as caught, target.create("a") as file:
        file.write(bytes(3 * PART_SIZE))
    assert caught.value.source == "s3://bucket/out/a"
    assert bucket.aborted == 1
    assert "out/a" not in bucket.objects


def test_a_file_outside_its_block_takes_nothing(target: BucketTarget) -> None:
    with target.create("a") as file:
        pass
    with pytest.raises(ValueError, match="closed"):
        file.write(b"1")


def test_an_odd_buffer_is_counted_in_bytes(bucket: FaultyBucket, target: BucketTarget) -> None:
    import array

    with target.create("a") as file:
        assert file.write(array.array("q", [1, 2])) == 16
    assert len(bucket.objects["out/a"]) == 16


def test_an_upload_that_its_writer_ended_meanwhile_is_none_to_abort(bucket: FaultyBucket, target: BucketTarget) -> None:
    aborted: list[str] = []

    def gone() -> None:
        raise FileNotFoundError("no such upload")

    bucket.unfinished = [("out/a", gone), ("out/b", lambda: aborted.append("b")), ("elsewhere/b", gone)]
    assert target.forget_unfinished(lambda name: name in "ab") == 1
    assert aborted == ["b"]


def test_a_store_that_does_not_tell_of_uploads_is_an_error(bucket: FaultyBucket, target: BucketTarget) -> None:
    def denied() -> None:
        raise PermissionError("not yours")

    bucket.unfinished = [("out/a", denied)]
    assert target.forget_unfinished(lambda name: False) == 0
    with pytest.raises(AccessDeniedError):
        target.forget_unfinished(lambda name: True)


class Answered(Exception):
    """What a cloud's client raises: a status, and the store's code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__("the store's own text, canary-4711")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}


def test_what_was_refused_is_told_with_the_right_that_it_needs(target: BucketTarget, bucket: FaultyBucket) -> None:
    def denied() -> Iterator[Exception | None]:
        while True:
            yield Answered(403, "AccessDenied")

    def create() -> None:
        with target.create("a") as file:
            file.write(bytes(PART_SIZE + 1))

    bucket.before = bucket.reading = denied()
    attempts: list[tuple[Callable[[], object], str]] = [
        (lambda: target.put("a", b"1"), "write.*right W"),
        (lambda: target.put_if_absent("a", b"1"), "write.*right W"),
        (lambda: target.read("a"), "read.*right R"),
    ]
    for attempt, told in attempts:
        with pytest.raises(AccessDeniedError, match=f"the store refuses to {told}. Set something") as caught:
            attempt()
        assert "found status 403 AccessDenied" in str(caught.value)
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (507, "XMinioStorageFull", "a: the store is full, or a quota is used up.*Make room there, then run it again"),
        (403, "QuotaExceeded", "a: the store is full, or a quota is used up.*Make room there, then run it again"),
        (404, "NoSuchUpload", "a: the store has forgotten this upload.*Run it again"),
        (404, "NoSuchBucket", "a: there is no such bucket: bucket;.*Create the bucket first"),
        (404, "", "a: there is no such bucket: bucket;.*Create the bucket first"),
    ],
)
def test_a_store_that_takes_no_more_says_why_and_what_to_do(
    target: BucketTarget, bucket: FaultyBucket, status: int, code: str, told: str
) -> None:
    bucket.before = iter([Answered(status, code)])
    with pytest.raises(StorageError, match=told) as caught, target.create("a") as file:
        file.write(b"1")
    assert "canary" not in str(caught.value)
    assert list(bucket.objects) == ["out/first"]
