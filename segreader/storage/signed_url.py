"""Text that must not be shown: signed URLs and secrets, and how other text is cleaned of them.

A signed URL is a password for one object. Libraries below put URLs into exceptions and log lines, so that besides the
types there is ``redact``, which takes out every query and every userinfo, whatever the names in them: a list of known
names is always one cloud short.
"""

from __future__ import annotations

import calendar
import contextlib
import logging
import re
import time
from collections.abc import Callable
from typing import Any, NoReturn, Self
from urllib.parse import parse_qs, urlsplit

from segreader.errors import StorageError

REDACTED = "<redacted>"

_QUERY = r"(?:[^\s\"<>`]|[\"<>`](?=&))"
_URL = re.compile(rf"(?<![a-z0-9+.-])[a-z0-9+.-]++:(?:\\?/){{1,2}}{_QUERY}+", re.IGNORECASE)
_SCHEME = re.compile(r"([^:]*):(?:\\?/){1,2}")  # one slash: a path made of a URL has lost the other
_RELATIVE_QUERY = re.compile(rf"\?[^\s\"<>`=?]*+={_QUERY}*+")
_QUOTED_QUERY = re.compile(r"%3F.*?(?:=|%3D).*", re.IGNORECASE | re.DOTALL)
_CLOSING = "\"'`)]},;.\\"
_NAMED = re.compile(
    r"""(?x) (?<![A-Za-z0-9])
    ( x-amz-(?:signature|credential|security-token) | x-goog-(?:signature|credential) | signature | credential | sig
    | (?:proxy-)?authorization | x-ms-copy-source-authorization
    | account_?key | shared_?access_?signature | sas_?token | connection_?string | (?:aws_)?session_?token
    | (?:aws_)?secret(?:_?access)?_?key | aws_?access_?key_?id | access_?token | refresh_?token | client_?secret
    | password | private_?key )
    ( \\*+["']?+ \s*+ [=:] \s*+ (?:b(?=["'\\]))?+ \\*+["']?+ )
    ( (?: (?:Bearer|Basic|SharedKey|AWS4-HMAC-SHA256) \s+ )? (?:[^\s"',;&<>\\]|\\(?![\\"']))+ )""",
    re.IGNORECASE,
)
_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}")

_LOGGERS = (
    "segreader",
    "urllib3",
    "urllib3.connection",
    "urllib3.connectionpool",
    "urllib3.poolmanager",
    "urllib3.response",
    "urllib3.util.retry",
)
_FAMILIES = ("segreader", "urllib3", "fsspec", "s3fs", "aiobotocore", "botocore", "adlfs", "azure", "gcsfs", "google")


_QUOTING = re.compile(
    r"(?:adlfs|azure\.(?:core|storage)|(?:aio)?botocore\.(?:parsers|retryhandler|utils)|gcsfs|s3fs)(?:\..*)?"
)
"""Loggers of the clouds' clients that quote what a store answers: its error text may repeat any secret of a request."""


class _Hidden:
    """A text that only ``reveal`` gives. Copies share it; a pickle does not hold it."""

    __slots__ = ("_text",)
    _text: str | None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} does not change")

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def reveal(self) -> str:
        """The text itself, for the one call that needs it.

        Raises:
            StorageError: this one came out of a pickle, which never holds the text.
        """
        if self._text is None:
            raise StorageError(
                f"{self} came from a pickle, which holds no secret",
                hint="Resolve URLs and credentials in the process that reads",
            )
        return self._text

    def __format__(self, format_spec: str) -> str:
        return format(str(self), format_spec)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._text is not None and self._text == getattr(other, "_text", None)

    def __hash__(self) -> int:
        return hash((type(self), self._text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name != "_text"]


class SignedUrl(_Hidden):
    """A URL whose query is a credential; it is shown as ``https://host/path?<redacted>``.

    Args:
        url: the whole URL.
        expires_at: seconds since 1970 UTC when it stops working; read from the URL when not given.
    """

    __slots__ = ("expires_at", "redacted")
    redacted: str
    expires_at: float | None

    def __init__(self, url: str, expires_at: float | None = None) -> None:
        self._keep("_text", url)
        self._keep("redacted", _redact_url(url))
        self._keep("expires_at", signed_until(url) if expires_at is None else expires_at)

    def __str__(self) -> str:
        return self.redacted

    def __repr__(self) -> str:
        return f"SignedUrl({self.redacted!r})"

    def __reduce__(self) -> tuple[Callable[[str, float | None], SignedUrl], tuple[str, float | None]]:
        return _shown_url, (self.redacted, self.expires_at)


class Secret(_Hidden):
    """A key, token or password; it is shown as ``***``."""

    __slots__ = ()

    def __init__(self, value: str) -> None:
        self._keep("_text", value)

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "Secret('***')"

    def __reduce__(self) -> tuple[Callable[[], Secret], tuple[()]]:
        return _shown_secret, ()


def _shown_url(redacted: str, expires_at: float | None) -> SignedUrl:
    url = SignedUrl(redacted, expires_at)
    url._keep("_text", None)
    return url


def _shown_secret() -> Secret:
    secret = Secret("")
    secret._keep("_text", None)
    return secret


def signed_until(url: str) -> float | None:
    """Seconds since 1970 UTC at which a signed URL stops working, or ``None`` where the URL does not contain it.

    Source: AWS Signature V4 and GCS V4 (``X-*-Date`` + ``X-*-Expires``), their older ``Expires``, Azure SAS ``se``.
    The credentials that signed it may die earlier.
    """
    try:
        query = {name.lower(): values[-1] for name, values in parse_qs(urlsplit(url).query).items()}
        for cloud in ("x-amz", "x-goog"):
            if f"{cloud}-expires" in query:
                start = time.strptime(query[f"{cloud}-date"], "%Y%m%dT%H%M%SZ")
                return calendar.timegm(start) + float(query[f"{cloud}-expires"])
        if "expires" in query:
            return float(query["expires"])
        if "se" in query:
            return _parse_azure_time(query["se"])
    except (KeyError, ValueError, OverflowError):
        return None
    return None


def _parse_azure_time(text: str) -> float:
    for form in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d"):
        try:
            return calendar.timegm(time.strptime(re.sub(r"\.\d+Z$", "Z", text), form))
        except ValueError:
            continue
    raise ValueError("no time")


def redact(text: str) -> str:
    """The text without queries and userinfo of the URLs in it, and without values that have a secret's name.

    A relative URL (``GET /bucket/key?sig=…``, as urllib3 writes it) loses its query too.
    """
    text = _URL.sub(_redact_match, text)
    text = _RELATIVE_QUERY.sub(lambda match: f"?{REDACTED}{_closing(match[0])}", text)
    text = _NAMED.sub(rf"\1\2{REDACTED}", text)
    return _ACCESS_KEY.sub(REDACTED, text)


def _closing(url: str) -> str:
    """Quotes and brackets that end the sentence around a URL rather than the URL."""
    return url[len(url.rstrip(_CLOSING)) :]


def _redact_match(match: re.Match[str]) -> str:
    closing = _closing(match[0])
    return _redact_url(match[0].removesuffix(closing)) + closing


def _redact_url(url: str) -> str:
    place = re.split("[?#]", url, maxsplit=1)[0]
    query = url[len(place) :]
    if scheme := _SCHEME.match(place):
        place = scheme[0] + _without_userinfo(scheme[1].lower(), place[scheme.end() :])
    shorter = _QUOTED_QUERY.sub("", place)
    return f"{shorter}?{REDACTED}" if len(query) > 1 or shorter != place else place + query


def _without_userinfo(scheme: str, rest: str) -> str:
    """The part after ``//`` without what comes before the host's ``@``.

    ``abfs://container@account`` keeps its container, which is a name. A secret key may hold ``/``, ``?`` or ``#``, so
    that what follows a colon that begins no port is userinfo up to the last ``@``, or to the end.
    """
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if at:
        return host + slash + path if scheme in ("http", "https") or ":" in user else rest
    if not authority.startswith("[") and re.search(r":(?!\d*$)", authority):
        return rest.rpartition("@")[2] if "@" in path else REDACTED
    return rest


def _without_answers(record: logging.LogRecord) -> str:
    """A client's own words: numbers, and no text that may be a store's."""
    text = str(record.msg)
    if isinstance(record.args, tuple) and record.args:
        with contextlib.suppress(TypeError, ValueError):
            text %= tuple(arg if isinstance(arg, int | float) else REDACTED for arg in record.args)
    elif not record.args:  # the client made one text of it all
        begin, colon, _ = text.partition(":")
        text = f"{begin}: {REDACTED}" if colon and not record.name.startswith("azure") else REDACTED
    if record.exc_info and record.exc_info[0] is not None:
        text += f" ({record.exc_info[0].__name__})"
    record.exc_info = record.exc_text = None
    return text


class RedactingFilter(logging.Filter):
    """Lets every record pass, cleaned by ``redact``: its message, its traceback and its stack.

    Of the clouds' clients that quote a store's answers, no text but their own passes.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean one record, in place."""
        try:
            message = _without_answers(record) if _QUOTING.fullmatch(record.name) else record.getMessage()
        except Exception:  # a record with the wrong arguments must not stop the program, nor slip through
            message = str(record.msg)
        record.msg, record.args = redact(message), ()
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_info = None  # a handler that formats it again would show the exception as it is
        if record.exc_text:
            record.exc_text = redact(record.exc_text)
        if record.stack_info:
            record.stack_info = redact(record.stack_info)
        return True


def install_redaction() -> None:
    """Clean what this library, urllib3 and the clouds' clients log. May be called again, after more is imported.

    A filter of a logger does not see what its children log, hence one on each logger that is there, and one on the
    handlers of each.
    """
    known: dict[str, Any] = logging.Logger.manager.loggerDict
    for name in {*_LOGGERS, *(name for name in list(known) if name.partition(".")[0] in _FAMILIES)}:
        logger = logging.getLogger(name)
        for place in (logger, *logger.handlers):
            if not any(isinstance(there, RedactingFilter) for there in place.filters):
                place.addFilter(RedactingFilter())
