"""The rules for the head of an answer, without a server."""

from __future__ import annotations

import random
import string
from typing import Any

import pytest
from urllib3 import HTTPHeaderDict

from segreader.errors import (
    AccessDeniedError,
    LocationExpiredError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    ThrottledError,
    WrongAnswerError,
)
from segreader.ranges import ByteRange
from segreader.storage.http.answer import Identity, check_head, error_code, refusal
from segreader.storage.retry import Remedy, RequestFailed

WANTED = ByteRange(100, 200)


def check(status: int = 206, wanted: ByteRange = WANTED, known_size: int | None = None, **headers: str) -> Identity:
    named = HTTPHeaderDict({name.replace("_", "-"): value for name, value in headers.items()})
    return check_head(status, named, wanted, known_size=known_size, source="here")


def refuse(status: int, body: bytes = b"", known_size: int | None = None, **headers: str) -> RequestFailed:
    named = HTTPHeaderDict({name.replace("_", "-"): value for name, value in headers.items()})
    return refusal(status, named, body, wanted=WANTED, known_size=known_size, source="here", now=0.0)


@pytest.mark.parametrize("status", [200, 206])
def test_the_exact_range_is_taken_whatever_the_status_calls_it(status: int) -> None:
    identity = check(status, Content_Range="bytes 100-199/1000", Content_Length="100", ETag='"a"', Last_Modified="now")

    assert identity == Identity(1000, '"a"', "now")


def test_a_whole_object_of_the_exact_length_needs_no_content_range() -> None:
    assert check(200, ByteRange(0, 100), Content_Length="100") == Identity(100)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {"Content_Length": "100"}),
        (200, {}),
        (206, {"Content_Length": "100"}),
        (206, {"Content_Range": "bytes 101-200/1000"}),
        (206, {"Content_Range": "bytes 99-198/1000"}),
        (206, {"Content_Range": "bytes 100-200/1000"}),
        (206, {"Content_Range": "bytes 100-199/199"}),
        (206, {"Content_Range": "bytes 100-199/*"}),
        (206, {"Content_Range": "bytes */1000"}),
        (206, {"Content_Range": "items 100-199/1000"}),
        (206, {"Content_Range": "bytes 100-199/1000, bytes 100-199/1000"}),
        (206, {"Content_Range": "bytes 100-199/" + "9" * 5000}),
        (206, {"Content_Range": "bytes 100-199/1000", "Content_Length": "99"}),
        (206, {"Content_Range": "bytes 100-199/1000", "Content_Length": "100, 100"}),
        (206, {"Content_Range": "bytes 100-199/1000", "Content_Length": "-1"}),
        (206, {"Content_Range": "bytes 100-199/1000", "Content_Length": "100", "Transfer_Encoding": "chunked"}),
        (206, {"Content_Range": "bytes 100-199/1000", "Transfer_Encoding": "gzip, chunked"}),
        (206, {"Content_Range": "bytes 100-199/1000", "Transfer_Encoding": "identity"}),
        (206, {"Content_Range": "bytes 100-199/1000", "Transfer_Encoding": ""}),
        (206, {"Content_Range": "bytes 100-199/1000", "Content_Encoding": "gzip"}),
        (206, {"Content_Range": "bytes 100-199/1000", "Content_Encoding": "aws-chunked"}),
    ],
)
def test_anything_else_is_a_wrong_answer(status: int, headers: dict[str, Any]) -> None:
    with pytest.raises(WrongAnswerError):
        check(status, **headers)


def test_the_end_of_the_object_inside_the_range_is_a_short_read_that_says_where() -> None:
    with pytest.raises(ShortReadError) as caught:
        check(Content_Range="bytes 100-149/150")

    assert caught.value.position == 150


def test_an_answer_that_stops_early_is_a_short_read() -> None:
    with pytest.raises(ShortReadError):
        check(Content_Range="bytes 100-149/1000")


@pytest.mark.parametrize("content_range", ["bytes 100-199/1001", "bytes 100-149/150"])
def test_another_size_than_the_known_one_is_another_object(content_range: str) -> None:
    with pytest.raises(ObjectChangedError):
        check(known_size=1000, Content_Range=content_range)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Identity(10, '"a"'), Identity(10, '"b"')),
        (Identity(10, '"a"'), Identity(11, '"a"')),
        (Identity(10, '"a"'), Identity(10, None, "t")),
        (Identity(10, 'W/"a"'), Identity(10, 'W/"b"')),
        (Identity(10, None, "t"), Identity(10, None, "u")),
        (Identity(10, None, "t"), Identity(10, None, None)),
        (Identity(10), Identity(11)),
    ],
)
def test_another_version_is_found(first: Identity, second: Identity) -> None:
    with pytest.raises(ObjectChangedError):
        first.check_same(second, "here")


def test_a_tag_that_turns_weak_on_the_way_is_the_same_version() -> None:
    Identity(10, '"a"').check_same(Identity(10, 'W/"a"'), "here")


@pytest.mark.parametrize(("etag", "sent"), [('"a"', '"a"'), ('W/"a"', None), ("a", None), (None, None)])
def test_only_strong_tags_are_sent(etag: str | None, sent: str | None) -> None:
    assert Identity(1, etag).if_match == sent


@pytest.mark.parametrize(
    ("status", "code", "error", "remedy"),
    [
        (503, "SlowDown", ThrottledError, Remedy.SLOW_DOWN),
        (429, "", ThrottledError, Remedy.SLOW_DOWN),
        (400, "RequestTimeout", StorageError, Remedy.RETRY),
        (408, "", StorageError, Remedy.RETRY),
        (500, "InternalError", StorageError, Remedy.RETRY),
        (502, "", StorageError, Remedy.RETRY),
        (504, "", StorageError, Remedy.RETRY),
        (401, "", AccessDeniedError, Remedy.REFRESH),
        (403, "AccessDenied", AccessDeniedError, Remedy.REFRESH),
        (403, "AuthenticationFailed", AccessDeniedError, Remedy.REFRESH),
        (400, "ExpiredToken", LocationExpiredError, Remedy.REFRESH),
        (403, "RequestTimeTooSkewed", AccessDeniedError, Remedy.NONE),
        (403, "InvalidObjectState", AccessDeniedError, Remedy.NONE),
        (404, "NoSuchKey", ObjectNotFoundError, Remedy.NONE),
        (404, "NoSuchBucket", ObjectNotFoundError, Remedy.NONE),
        (410, "", ObjectNotFoundError, Remedy.NONE),
        (412, "PreconditionFailed", ObjectChangedError, Remedy.NONE),
        (416, "InvalidRange", ShortReadError, Remedy.NONE),
        (301, "PermanentRedirect", WrongAnswerError, Remedy.NONE),
        (204, "", WrongAnswerError, Remedy.NONE),
        (304, "", WrongAnswerError, Remedy.NONE),
        (400, "InvalidRequest", StorageError, Remedy.NONE),
        (501, "NotImplemented", StorageError, Remedy.NONE),
    ],
)
def test_a_refusal_is_told_by_status_and_code(
    status: int, code: str, error: type[StorageError], remedy: Remedy
) -> None:
    failed = refuse(status, f"<Error><Code>{code}</Code></Error>".encode())

    assert type(failed.error) is error
    assert failed.remedy is remedy
    assert str(status) in str(failed.error) or status == 416


def test_an_expired_signature_is_told_by_its_message_where_the_code_does_not() -> None:
    failed = refuse(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")

    assert isinstance(failed.error, LocationExpiredError)


def test_an_archived_object_says_that_it_must_be_restored() -> None:
    assert "Restore it" in str(refuse(409, x_ms_error_code="BlobArchived").error)


def test_a_416_after_the_object_shrank_is_a_changed_object() -> None:
    assert isinstance(refuse(416, known_size=1000, Content_Range="bytes */10").error, ObjectChangedError)
    assert isinstance(refuse(416, known_size=1000).error, ObjectChangedError)
    assert isinstance(refuse(416, known_size=100, Content_Range="bytes */100").error, ShortReadError)


def test_a_bucket_elsewhere_names_its_region() -> None:
    assert "eu-north-1" in str(refuse(301, x_amz_bucket_region="eu-north-1").error)


def test_a_redirect_does_not_show_the_query_of_its_target() -> None:
    assert "secret" not in str(refuse(307, Location="https://other/x?sig=secret").error)


def test_the_body_of_an_error_is_never_shown_but_for_its_code() -> None:
    body = b"<Error><Code>SignatureDoesNotMatch</Code><SignatureProvided>secret</SignatureProvided></Error>"
    text = str(refuse(403, body).error)

    assert "SignatureDoesNotMatch" in text
    assert "secret" not in text


def test_a_code_is_only_what_looks_like_one() -> None:
    assert error_code({}, b"<Error><Code>https://x?sig=secret</Code>") == ""
    assert error_code({"x-ms-error-code": "a b"}, b"") == ""
    assert error_code({}, b"<Error><Code>SlowDown</Code><Mess") == "SlowDown"


def test_any_headers_at_all_give_an_identity_or_an_error() -> None:
    rng = random.Random(4)
    letters = string.printable + "éä\x00"
    names = ["Content-Range", "Content-Length", "Content-Encoding", "ETag", "Last-Modified", "Location", "Retry-After"]
    good = {"Content-Range": "bytes 100-199/1000", "Content-Length": "100"}
    for _ in range(3000):
        headers = HTTPHeaderDict(good)
        name = rng.choice(names)
        text = list(headers.get(name, "bytes 100-199/1000"))
        for _ in range(rng.randint(1, 4)):
            text[rng.randrange(len(text))] = rng.choice(letters)
        headers[name] = "".join(text)
        try:
            check_head(rng.choice([200, 206]), headers, WANTED, known_size=None, source="here")
        except StorageError as error:
            assert str(error)
        status = rng.randrange(100, 600)
        failed = refusal(status, headers, rng.randbytes(30), wanted=WANTED, known_size=None, source="here", now=0.0)
        assert str(failed.error)
