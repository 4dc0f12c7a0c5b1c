from __future__ import annotations

import copy
import io
import json
import logging
import pickle
import time
import traceback

import pytest

from segreader.errors import StorageError
from segreader.storage.signed_url import (
    RedactingFilter,
    Secret,
    SignedUrl,
    install_redaction,
    redact,
    signed_until,
)

CANARY = "c4naryS1gnature"
S3 = f"https://b.s3.amazonaws.com/t/0.log?X-Amz-Date=20261101T000000Z&X-Amz-Expires=900&X-Amz-Signature={CANARY}"
AZURE = f"https://a.blob.core.windows.net/c/0.log?sv=2024-11-04&se=2026-11-01T01%3A00%3A00Z&sig={CANARY}%3D"
SHOWN = "https://b.s3.amazonaws.com/t/0.log?<redacted>"


@pytest.mark.parametrize("hidden", [SignedUrl(S3), Secret(CANARY)])
def test_what_is_hidden_shows_in_no_form(hidden: SignedUrl | Secret) -> None:
    shown = [str(hidden), repr(hidden), f"{hidden}", f"{hidden!r:>80}", repr([hidden]), format(hidden, "")]
    shown += [repr(pickle.dumps(hidden, protocol)) for protocol in range(6)]
    shown += [repr(hidden.__reduce__()), str(dir(hidden)), json.dumps({"a": hidden}, default=str)]
    with pytest.raises(TypeError) as caught:
        json.dumps(hidden)
    shown.append("".join(traceback.format_exception(caught.value)))
    assert [text for text in shown if CANARY in text] == []
    assert not hasattr(hidden, "__dict__")


def test_a_signed_url_shows_where_it_leads() -> None:
    assert str(SignedUrl(S3)) == SignedUrl(S3).redacted == SHOWN
    assert repr(SignedUrl(S3)) == f"SignedUrl({SHOWN!r})"
    assert str(SignedUrl("https://h/plain")) == "https://h/plain"


@pytest.mark.parametrize("hidden", [SignedUrl(S3), Secret(CANARY)])
def test_only_a_process_that_was_given_the_text_can_reveal_it(hidden: SignedUrl | Secret) -> None:
    assert CANARY in hidden.reveal()
    assert copy.deepcopy(hidden).reveal() == copy.copy(hidden).reveal() == hidden.reveal()
    back = pickle.loads(pickle.dumps(hidden))
    assert (type(back), str(back)) == (type(hidden), str(hidden))
    with pytest.raises(StorageError, match="pickle") as caught:
        back.reveal()
    assert CANARY not in str(caught.value)
    assert pickle.loads(pickle.dumps(back)) != back


def test_hidden_texts_are_values() -> None:
    assert SignedUrl(S3) == SignedUrl(S3) != SignedUrl(AZURE)
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    assert Secret("a") != "a"
    with pytest.raises(AttributeError):
        Secret("a")._text = "b"


@pytest.mark.parametrize(
    ("url", "until"),
    [
        (S3, 1793491200 + 900),
        (S3.replace("X-Amz", "X-Goog"), 1793491200 + 900),
        (AZURE, 1793491200 + 3600),
        ("https://h/p?se=2026-11-01&sig=x", 1793491200),
        ("https://h/p?se=2026-11-01T00:00:00.0000000Z", 1793491200),
        ("https://h/p?Expires=1793491200&Signature=x", 1793491200),
        ("https://h/p", None),
        ("https://h/p?X-Amz-Expires=900", None),
        ("https://h/p?X-Amz-Expires=1e999x&X-Amz-Date=20261101T000000Z", None),
        ("https://h/p?se=soon", None),
        ("https://[h/p?se=soon", None),
    ],
)
def test_a_signed_url_says_when_it_dies(url: str, until: float | None) -> None:
    assert signed_until(url) == SignedUrl(url).expires_at == until
    assert SignedUrl(url, expires_at=7.0).expires_at == 7.0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"GET {S3} gave 403", f"GET {SHOWN} gave 403"),
        (f"open('{S3}')", f"open('{SHOWN}')"),
        (f'{{"url":"{S3}","n":1}}', f'{{"url":"{SHOWN}","n":1}}'),
        (f"a='{S3}', b='x'", f"a='{SHOWN}', b='x'"),
        (f"<{S3}>", f"<{SHOWN}>"),
        (f"see {S3}.", f"see {SHOWN}."),
        (f"https://user:{CANARY}@h:9000/b/k", "https://h:9000/b/k"),
        (f"https://{CANARY}@h/b", "https://h/b"),
        (f"https:/u:{CANARY}@h/b", "https:/h/b"),
        (f"s3:/key:{CANARY}/{CANARY}@bucket/k", "s3:/bucket/k"),
        (f"https:\\/\\/u:{CANARY}@h\\/b?sig={CANARY}", "https:\\/\\/h\\/b?<redacted>"),
        ("/data/at:/10:30/x@y", "/data/at:/10:30/x@y"),
        (f"s3://key:{CANARY}/{CANARY}@bucket/k", "s3://bucket/k"),
        (f"https://user:a#{CANARY}@h/b", "https://<redacted>?<redacted>"),
        ("abfs://container@account.dfs.core.windows.net/k@1", "abfs://container@account.dfs.core.windows.net/k@1"),
        ("http://[::1]:9000/a@b", "http://[::1]:9000/a@b"),
        ("http://h:9000/a@b", "http://h:9000/a@b"),
        (f"https://h/k#{CANARY}", "https://h/k?<redacted>"),
        (f"https://h/k%3FX-Amz-Signature%3D{CANARY}", "https://h/k?<redacted>"),
        ("https://h/what%3F.log", "https://h/what%3F.log"),
        (f'https://h/k?x="&sig={CANARY}', "https://h/k?<redacted>"),
        (f"https://h/k?x='&sig={CANARY}", "https://h/k?<redacted>"),
        (
            f"HTTPSConnectionPool(host='h', port=443): Max retries exceeded with url: /k?sig={CANARY} (Caused by X())",
            "HTTPSConnectionPool(host='h', port=443): Max retries exceeded with url: /k?<redacted> (Caused by X())",
        ),
        (f'https://h:443 "GET /k?a=1&sig={CANARY} HTTP/1.1" 206', 'https://h:443 "GET /k?<redacted> HTTP/1.1" 206'),
        (f"AccountName=a;AccountKey={CANARY}==;End=b", "AccountName=a;AccountKey=<redacted>;End=b"),
        (f"SharedAccessSignature=sv=1&sig={CANARY}", "SharedAccessSignature=<redacted>&sig=<redacted>"),
        (f"{{'Authorization': b'Bearer {CANARY}'}}", "{'Authorization': b'<redacted>'}"),
        (rf"{{\'Authorization\': b\'Bearer {CANARY}\'}}", r"{\'Authorization\': b\'<redacted>\'}"),
        (rf'"{{\\"x-amz-security-token\\": \\"{CANARY}\\"}}"', r'"{\\"x-amz-security-token\\": \\"<redacted>\\"}"'),
        (f"x-amz-security-token:{CANARY}", "x-amz-security-token:<redacted>"),
        ("AKIAIOSFODNN7EXAMPLE", "<redacted>"),
        ("is it there? yes", "is it there? yes"),
        ("it signs a design: ok", "it signs a design: ok"),
        ("", ""),
    ],
)
def test_text_is_cleaned_of_what_urls_and_names_give_away(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "part", ["?", "?a", "https://", "sig", "sig=", "a:b@", '"', "https://h?'", " = ", "%3F", "sig\\\\"]
)
def test_cleaning_takes_time_in_proportion_to_the_text(part: str) -> None:
    start = time.process_time()
    redact(part * (32 << 10))
    assert time.process_time() - start < 1


def test_a_log_record_is_cleaned_with_its_traceback() -> None:
    out = io.StringIO()
    logger = logging.Logger("cleaned")
    handler = logging.StreamHandler(out)
    handler.addFilter(RedactingFilter())
    logger.addHandler(handler)
    try:
        raise OSError(f"cannot open {S3}")
    except OSError:
        logger.exception("at %s", S3, stack_info=True)
    logger.warning("%d arguments are wrong", "not", S3)
    assert CANARY not in out.getvalue()
    assert f"cannot open {SHOWN}" in out.getvalue()
    assert "Traceback" in out.getvalue()


def test_redaction_is_installed_once_and_reaches_loggers_that_come_later(caplog: pytest.LogCaptureFixture) -> None:
    late = logging.getLogger("botocore.late")
    install_redaction()
    install_redaction()
    for name in ("segreader", "urllib3.connectionpool", "botocore.late"):
        assert sum(isinstance(there, RedactingFilter) for there in logging.getLogger(name).filters) == 1
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("urllib3.connectionpool").warning("Retrying %s", S3)
        late.debug("x-amz-security-token:%s", CANARY)
    assert CANARY not in caplog.text
    assert SHOWN in caplog.text
    late.filters.clear()
