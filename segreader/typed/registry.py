"""Schemas from a registry over HTTP: Confluent's REST contract, which Apicurio and Karapace speak, too.

Source: Confluent Schema Registry 7.8, "API Reference" (subjects, versions, ids, references, error codes, contexts).
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import math
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from numbers import Real
from operator import index
from typing import Any, Final, Self, SupportsIndex, TypeVar
from urllib.parse import quote, unquote, urljoin, urlsplit

import urllib3

from segreader.errors import (
    OptionError,
    SchemaAccessError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SegreaderError,
    shown_count,
)
from segreader.storage.http.connections import Connections, Exchange, Timers, transport_failure
from segreader.storage.options import parse_storage_option
from segreader.storage.retry import BackOff, Clock, Remedy, parse_retry_after
from segreader.storage.signed_url import Secret, SignedUrl, redact
from segreader.typed.schema import Framing, Reference, Schema, SchemaFormat, SchemaSet, Version
from segreader.values import dataclass

LARGEST_ANSWER: Final = 16 << 20
"""Bytes of one answer, at most."""

MOST_REFERRED: Final = 10_000
"""Schemas in one, at most, those that it refers to counted as often as they are named."""

DEEPEST_REFERENCE: Final = 50

_LARGEST_ERROR: Final = 64 << 10
_TRIES: Final = 5
_AT_ONCE: Final = 8
_CONNECT_S: Final = 10.0
_REDIRECTS: Final = 3
_RETRIED: Final = (408, 429, 500, 502, 503, 504)
_MOVED: Final = (301, 302, 307, 308)
_PORTS: Final = {"http": 80, "https": 443}
_HEADER: Final = re.compile(r"[ -~\x80-\xff]*")
_FORMATS: Final = {one.value.upper(): one for one in SchemaFormat}
_TYPE: Final = "application/vnd.schemaregistry.v1+json, application/json"

Hidden = str | Secret
"""A secret as it is given: itself, or where it is, ``env:VARIABLE`` or ``@FILE``. A ``Secret`` is always itself."""

_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """One version of a subject, as a registry gives it.

    Args:
        guid: the schema's id in any registry, 32 hex digits; ``None`` where the registry has none.
        references: names, and the subjects and versions that they mean.
    """

    subject: str
    version: int
    id: int
    guid: str | None
    format: SchemaFormat
    text: str
    references: tuple[tuple[str, str, int], ...] = ()

    @classmethod
    def parse(cls, document: object, **known: Any) -> Self | None:
        """The version that a JSON object describes; ``None`` if its schema is of a format that is not read here.

        Args:
            known: what the object may lack.

        Raises:
            SchemaRegistryError: it is no such object.
        """
        try:
            if not isinstance(document, dict):
                raise TypeError
            found: dict[str, Any] = known | document
            form = _FORMATS.get(found.get("schemaType") or "AVRO")
            if form is None:
                return None
            references = tuple(
                (_of(str, one["name"]), _of(str, one["subject"]), _of(int, one["version"]))
                for one in found.get("references") or ()
            )
            guid = None if found.get("guid") is None else uuid.UUID(found["guid"]).hex
            text = _of(str, found["schema"])
            subject, version, id = _of(str, found["subject"]), _of(int, found["version"]), _of(int, found["id"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SchemaRegistryError(
                "the answer is not a version of a schema", expected="subject, version, id, schema"
            ) from None
        return cls(subject, version, id, guid, form, text, references)


def _of(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError
    return value


class SchemaResolver:
    """Makes schemas of versions, with the schemas that they refer to; each version is found once.

    Args:
        find: the version of a subject.
    """

    def __init__(self, find: Callable[[str, int], RegisteredVersion]) -> None:
        self._find = find
        self._made: dict[tuple[str, int, int], tuple[Schema, int]] = {}

    def schema(self, one: RegisteredVersion) -> Schema:
        """The whole schema of a version, ready for a plan: one that needs a compiler is compiled.

        Raises:
            SchemaRegistryError: references go round in a circle, or are too many or too deep.
            OptionError: the schema is invalid.
        """
        schema, _ = self._whole(one, ())
        if schema.format is SchemaFormat.PROTOBUF:
            from segreader.typed.formats.protobuf import described

            try:
                return described(schema)
            except OptionError as error:
                raise error.located(source=f"version {one.version} of {one.subject}") from None
        return schema

    def _whole(self, one: RegisteredVersion, above: tuple[tuple[str, int, int], ...]) -> tuple[Schema, int]:
        """A schema with its references, and how many schemas it is."""
        place = one.subject, one.version, one.id
        if place in above or len(above) > DEEPEST_REFERENCE:
            raise SchemaRegistryError(
                "schemas refer to each other in a circle" if place in above else "references are too deep",
                found=" > ".join(f"{subject} {version}" for subject, version, _ in (*above[-5:], place)),
            )
        if place not in self._made:
            references, size = [], 1
            for name, subject, version in one.references:
                below, its_size = self._whole(self._find(subject, version), (*above, place))
                references.append(Reference(name, below))
                size += its_size
                if size > MOST_REFERRED:
                    raise SchemaRegistryError(
                        "a schema refers to too many others", found=f"{one.subject} {one.version}"
                    )
            self._made[place] = Schema(one.format, one.text, tuple(references)), size
        return self._made[place]


def gathered(
    found: Iterable[tuple[RegisteredVersion, Schema]], framing: Framing, message: str | None = None
) -> SchemaSet:
    """What was learnt of these versions, each with its schema, by subject and version.

    A version without a subject is known by its id alone.
    """
    ids: dict[str, Schema] = {}
    subjects: dict[str, dict[int, Version]] = {}
    for one, schema in sorted(found, key=lambda pair: (not pair[0].subject, pair[0].subject, pair[0].version)):
        ids.setdefault(str(one.id), schema)
        if one.guid is not None:
            ids.setdefault(one.guid, schema)
        if framing is Framing.SINGLE_OBJECT and schema.format is SchemaFormat.AVRO:
            ids.setdefault(single_object_id(schema), schema)
        if one.subject:
            subjects.setdefault(one.subject, {})[one.version] = Version(one.version, one.id)
    by_version = ((name, tuple(versions.values())) for name, versions in subjects.items())
    return SchemaSet(framing=framing, ids=tuple(ids.items()), subjects=tuple(by_version), message=message)


def single_object_id(schema: Schema) -> str:
    """What a single object names an Avro schema by: CRC-64-AVRO as it stands in the frame, in hex."""
    from segreader.typed.formats.avro import fingerprint64

    return fingerprint64(schema).hex()


class SchemaRegistry:
    """Schemas of a registry: ``segreader.schemas.registry`` makes it, and says what its arguments are."""

    def __init__(
        self,
        url: str,
        *,
        auth: Hidden | tuple[Hidden, Hidden] | None = None,
        token: Hidden | None = None,
        headers: Mapping[str, Hidden] | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        verify: bool = True,
        subject: str | Collection[str] | None = None,
        ids: Collection[int | str] = (),
        framing: Framing | str = Framing.CONFLUENT,
        message: str | None = None,
        timeout_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self._base, in_url = _place(url)
        if in_url is not None and auth is not None:
            raise OptionError("the registry's user is in its URL and in auth", source=self._base, hint="Leave one out")
        if isinstance(auth, tuple) and len(auth) != 2:
            raise OptionError("auth is (user, password)", found=shown_count(len(auth), "text"))
        given = auth if in_url is None else in_url
        texts = given if isinstance(given, tuple) or given is None else (given,)
        self._auth = None if texts is None else tuple(_kept("auth", one) for one in texts)
        self._token = None if token is None else _kept("token", token)
        if self._auth is not None and self._token is not None:
            raise OptionError("auth and token exclude each other", source=self._base)
        self._headers = _kept_headers({} if headers is None else headers)
        self._tls = {"ca_file": ca_file, "certificate_file": certificate_file, "key_file": key_file, "verify": verify}
        if key_file is not None and certificate_file is None:
            raise OptionError("key_file needs certificate_file", source=self._base)
        self._subjects = None if subject is None else tuple(map(_name, _each(subject)))
        self._ids = tuple(map(_id, _each(ids)))
        self._framing = parse_framing(framing)
        if self._framing in (Framing.GLUE, Framing.BARE):
            raise OptionError(
                "this framing names no schema of a registry like this one",
                found=self._framing.value,
                expected="confluent, apicurio or single-object",
            )
        self._message = message
        self._timeout_s = _seconds(timeout_s)
        self._clock = clock or Clock()

    def __repr__(self) -> str:
        return f"registry({self._base!r})"

    @property
    def framing(self) -> Framing:
        """How values name the schemas of this registry."""
        return self._framing

    def __getstate__(self) -> dict[str, Any]:
        """The settings, for a pickle.

        Raises:
            OptionError: a secret is among them.
        """
        secrets = [self._token, *(self._auth or ()), *self._headers.values()]
        if any(isinstance(one, Secret) for one in secrets):
            raise OptionError(
                "a registry with a secret cannot be pickled",
                source=self._base,
                hint="Give its secrets as env:VARIABLE or @FILE, or pass on what learn() returns",
            )
        return vars(self)

    def learn(self, topic: str | None) -> SchemaSet:
        """The schemas of a topic, soft-deleted versions among them; ``None``: of all subjects.

        Raises:
            SchemaNotFoundError: the registry has no subject for the topic, or not one of ``ids``.
            SchemaRegistryError: it cannot be asked, or its answers cannot be used.
            OptionError: a secret, or a file of TLS, is not there; a schema is invalid.
        """
        with self._conversation() as asked:
            subjects, is_all = self._wanted(topic), topic is None and self._subjects is None
            if subjects is None:
                subjects = asked.subjects()
            listed = asked.each(asked.versions, subjects)
            places = [(name, one) for name, found in zip(subjects, listed, strict=True) for one in found]
            found = [one for one in asked.each(partial(asked.listed, skips_others=is_all), places) if one is not None]
            if not found and not self._ids and not is_all:
                raise SchemaNotFoundError(
                    f"the registry has no schemas of {topic}" if topic else "the registry has no such subject",
                    source=self._base,
                    found=f"none for {', '.join(subjects)}",
                    hint="If subjects are not named after topics, name them: subject=…",
                )
            known = gathered(((one, asked.resolver.schema(one)) for one in found), self._framing, self._message)
            missing = [one for one in self._ids if known.schema(one) is None]
            by_id = asked.of_ids(missing, self._wanted(topic))
        if unknown := [one for one in missing if one not in by_id]:
            raise SchemaNotFoundError("the registry has no such id", source=self._base, found=", ".join(unknown))
        return replace(known, ids=(*known.ids, *by_id.items()))

    def find(self, ids: Iterable[str], topic: str | None = None) -> dict[str, Schema]:
        """The schemas of these ids, as far as the registry has them; raises as ``learn``."""
        with self._conversation() as asked:
            return asked.of_ids(list(ids), self._wanted(topic))

    def _wanted(self, topic: str | None) -> tuple[str, ...] | None:
        if self._subjects is not None:
            return self._subjects
        return None if topic is None else (f"{topic}-value", f"{topic}-key")

    def _conversation(self) -> _Conversation:
        headers = {"Accept": _TYPE, "Accept-Encoding": "identity", "User-Agent": "segreader"}
        headers |= {name: _said(name, value) for name, value in self._headers.items()}
        if self._auth is not None:
            text = ":".join(_looked_up("auth", one) for one in self._auth)
            headers["Authorization"] = f"Basic {base64.b64encode(text.encode()).decode()}"
        elif self._token is not None:
            headers["Authorization"] = f"Bearer {_said('token', self._token)}"
        connections = Connections(size=_AT_ONCE, **self._tls)  # type: ignore[arg-type]
        return _Conversation(self._base, headers, connections, self._timeout_s, self._clock)


def parse_framing(framing: Framing | str) -> Framing:
    """A framing by its name.

    Raises:
        OptionError: it is none.
    """
    try:
        return Framing(framing)
    except ValueError:
        expected = ", ".join(one.value for one in Framing)
        raise OptionError("unknown framing", found=repr(framing), expected=expected) from None


def _place(url: str) -> tuple[str, tuple[Secret, ...] | None]:
    """A registry's URL without a slash at its end and without its userinfo, and the user and password of that.

    Raises:
        OptionError: it is none, or has a query.
    """
    if not isinstance(url, str):
        raise OptionError("not the URL of a registry", found=type(url).__name__)
    shown = redact(url)
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    if not has_host:
        raise OptionError("not the URL of a registry", found=shown, expected="http://host:port or https://host:port")
    if parts.query or parts.fragment:
        raise OptionError("the URL of a registry has no query", found=shown, hint="Give secrets as auth or token")
    userinfo, at, place = parts.netloc.rpartition("@")
    user = tuple(Secret(unquote(one)) for one in userinfo.split(":", 1)) if at else None
    return f"{parts.scheme}://{place}{parts.path}".rstrip("/"), user


def _each(given: Any) -> Iterable[Any]:
    return given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def _seconds(given: Any) -> float:
    seconds = float(given) if isinstance(given, Real) and not isinstance(given, bool) else math.nan
    if not 0 < seconds < math.inf:
        raise OptionError("timeout_s must be a positive number", found=repr(given)[:80])
    return seconds


def _name(given: object) -> str:
    if not isinstance(given, str):
        raise OptionError("subject is a name, or several", found=repr(given)[:80])
    return given


def _id(given: object) -> str:
    if not isinstance(given, str | SupportsIndex) or isinstance(given, bool):
        raise OptionError("ids are numbers or GUIDs", found=repr(given)[:80])
    return given if isinstance(given, str) else str(index(given))


def _kept_headers(given: Mapping[str, Hidden]) -> dict[str, Hidden]:
    if not isinstance(given, Mapping):
        raise OptionError("headers must be a mapping", found=type(given).__name__, expected="{name: value}")
    for name in given:
        if not isinstance(name, str):
            raise OptionError("names of headers must be text", found=type(name).__name__)
    return {name: _kept(f"the header {name}", value) for name, value in given.items()}


def _kept(name: str, given: Hidden) -> Hidden:
    """What is kept of a secret: a reference as it is, anything else so that nothing shows it.

    Raises:
        OptionError: it is no text.
    """
    if not isinstance(given, str | Secret):
        raise OptionError(f"{name} must be text", found=type(given).__name__)
    return given if isinstance(given, Secret) or given.startswith(("env:", "@")) else Secret(given)


def _looked_up(name: str, kept: Hidden) -> str:
    return (kept if isinstance(kept, Secret) else parse_storage_option(f"{name}={kept}")[1]).reveal()


def _said(name: str, kept: Hidden) -> str:
    """The value of a header.

    Raises:
        OptionError: it cannot be one.
    """
    value = _looked_up(name, kept).strip()
    if not _HEADER.fullmatch(value):
        raise OptionError(f"{name} cannot be sent: it has characters that no header may have")
    return value


class _TryFailed(Exception):
    """One request failed: the error to raise if nothing helps, and whether another try may. Does not leave here."""

    def __init__(self, error: SchemaRegistryError, *, may_help: bool, retry_after_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.may_help = may_help
        self.retry_after_s = retry_after_s


class _Conversation:
    """Requests to one registry; closed with the block.

    Args:
        base: the registry's URL, without secrets.
        headers: of every request.
        timeout_s: for one answer, from the request to its last byte.
    """

    def __init__(
        self, base: str, headers: Mapping[str, str], connections: Connections, timeout_s: float, clock: Clock
    ) -> None:
        self._base = base
        self._headers = headers
        self._connections = connections
        self._timeout_s = timeout_s
        self._clock = clock
        self._timers = Timers()
        self._back_off = BackOff(max_s=2.0)
        self._closed = threading.Event()
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="segreader-schemas")
        self._seen: dict[tuple[str, int], RegisteredVersion] = {}
        self.resolver = SchemaResolver(self._referred)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._pool.shutdown(cancel_futures=True)
        self._timers.close()
        self._connections.close()

    def each(self, ask: Callable[[_T], _U], of: Iterable[_T]) -> list[_U]:
        """The answers to one question of each, several at a time, in order."""
        return list(self._pool.map(ask, of))

    def subjects(self) -> tuple[str, ...]:
        """All subjects."""
        return tuple(sorted(self._list("/subjects?deleted=true", str)))

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject; none where there is no such subject."""
        try:
            return sorted(self._list(f"/subjects/{_quoted(subject)}/versions?deleted=true", int))
        except SchemaNotFoundError:
            return []

    def version(self, place: tuple[str, int]) -> RegisteredVersion | None:
        """One version of a subject; ``None`` if it is of a format that is not read here."""
        subject, version = place
        path = f"/subjects/{_quoted(subject)}/versions/{'latest' if version < 0 else version}?deleted=true"
        found = self._parsed(path, subject=subject)
        if found is not None:
            self._seen[place] = found
        return found

    def listed(self, place: tuple[str, int], *, skips_others: bool) -> RegisteredVersion | None:
        """One version out of a list; ``None`` if the registry lists what it does not give, as Apicurio what is deleted.

        Args:
            skips_others: whether ``None`` is given for one of another format, too, which is an error otherwise.
        """
        try:
            found = self.version(place)
        except SchemaNotFoundError:
            return None
        if found is None and not skips_others:
            raise SchemaRegistryError(
                "the schema is of another format", source=f"{place[0]} {place[1]}", expected=", ".join(_FORMATS)
            )
        return found

    def of_ids(self, ids: Sequence[str], subjects: Sequence[str] | None) -> dict[str, Schema]:
        """The schemas of these ids, as far as there are any."""
        asked = self.each(lambda id: self._of_id(id, subjects[0] if subjects else None), ids)
        return {id: self.resolver.schema(one) for id, one in zip(ids, asked, strict=True) if one is not None}

    def _of_id(self, id: str, subject: str | None) -> RegisteredVersion | None:
        of = f"&subject={_quoted(subject)}" if subject else ""
        if id.isdecimal() and len(id) < 20:
            path = f"/schemas/ids/{id}?deleted=true{of}"
        else:
            try:
                path = f"/schemas/guids/{uuid.UUID(id)}"
            except ValueError:
                return None
        try:
            # A schema by its id belongs to no subject here: it may to several.
            return self._parsed(path, subject=f"id {id}", version=0, id=0)
        except SchemaNotFoundError:
            return None

    def _parsed(self, path: str, **known: Any) -> RegisteredVersion | None:
        document = self._get(path)
        try:
            return RegisteredVersion.parse(document, **known)
        except SchemaRegistryError as error:
            raise error.located(source=self._shown(path)) from None

    def _referred(self, subject: str, version: int) -> RegisteredVersion:
        place = subject, version
        found = self._seen.get(place) or self.version(place)
        if found is None:
            raise SchemaRegistryError("a schema refers to one of another format", source=self._base)
        return found

    def _list(self, path: str, kind: type[_T]) -> list[_T]:
        found = self._get(path)
        if not isinstance(found, list) or not all(type(one) is kind for one in found):
            raise self._not_a_registry(path, "something else than a list of what was asked for")
        return found

    def _shown(self, path: str) -> str:
        return f"{self._base}{path.partition('?')[0]}"

    def _get(self, path: str) -> Any:
        """The JSON of one answer, after as many tries as may help."""
        failures = 0
        while True:
            try:
                status, body = self._follow(path)
                break
            except _TryFailed as failed:
                failures += 1
                wait = self._back_off.seconds(failures, failed.retry_after_s)
                is_last = not failed.may_help or failures == _TRIES
                if is_last or wait is None or self._clock.wait(self._closed, wait):
                    raise failed.error from None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise self._not_a_registry(path, "something else than JSON", status) from None

    def _not_a_registry(self, path: str, found: str, status: int | None = None) -> SchemaRegistryError:
        return SchemaRegistryError(
            "the answer is not that of a schema registry",
            source=self._shown(path),
            status=status,
            found=found,
            hint="Check whether the URL is that of its API: Apicurio's ends in /apis/ccompat/v7",
        )

    def _follow(self, path: str) -> tuple[int, bytes]:
        """The body of a good answer; a redirect is followed within the same host, for the secrets go with it.

        Raises:
            _TryFailed: with the error.
        """
        url = f"{self._base}{path}"
        for _ in range(_REDIRECTS + 1):
            status, headers, body = self._once(url, path)
            if status == 200:
                return status, body
            if status not in _MOVED:
                raise self._refusal(status, headers, body, path)
            there = urljoin(url, headers.get("Location", ""))
            if _origin(there) != _origin(self._base):
                break
            url = there
        error = SchemaRegistryError(
            "the registry redirects elsewhere",
            source=self._shown(path),
            status=status,
            found=redact(there)[:200],
            hint="Secrets are sent to no other host: give the URL of the registry that answers",
        )
        raise _TryFailed(error, may_help=False)

    def _once(self, url: str, path: str) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of one request."""
        exchange = Exchange()
        timer = self._timers.call_later(self._timeout_s, exchange.end)
        response: urllib3.BaseHTTPResponse | None = None
        is_whole = False
        try:
            response = self._connections.get(
                SignedUrl(url), self._headers, exchange, connect_s=_CONNECT_S, idle_s=self._timeout_s
            )
            limit = LARGEST_ANSWER if response.status == 200 else _LARGEST_ERROR
            body = self._body(exchange, limit, path)
            is_whole = True
            return response.status, response.headers, body
        except SegreaderError:
            raise
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            failed = transport_failure(error, exchange, self._shown(path))
            told = failed.error
            hint = (told.hint or "").replace("the store's", "the registry's")
            found = SchemaRegistryError(told.message, source=told.source, found=told.found, hint=hint or None)
            raise _TryFailed(found, may_help=failed.remedy is not Remedy.NONE) from None
        finally:
            timer.cancel()
            exchange.detach()
            if response is not None:
                response.release_conn() if is_whole else response.close()

    def _body(self, exchange: Exchange, limit: int, path: str) -> bytes:
        reader, buffer, body = exchange.reader, memoryview(bytearray(64 << 10)), bytearray()
        assert reader is not None
        while count := reader.read_some(buffer):
            body += buffer[:count]
            if len(body) > limit:
                error = SchemaRegistryError(
                    "the answer is too large", source=self._shown(path), expected=f"at most {limit} bytes"
                )
                raise _TryFailed(error, may_help=False)
        if reader.length:
            raise ConnectionError("the connection ended inside the body")
        return bytes(body)

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes, path: str) -> _TryFailed:
        """The error for an answer without schemas. Of its body nothing but the number is shown."""
        code = _error_code(body)
        found = f"status {status}" + (f", code {code}" if code is not None else "")

        def failed(
            kind: type[SchemaRegistryError], message: str, hint: str | None = None, *, may_help: bool = False
        ) -> _TryFailed:
            error = kind(message, source=self._shown(path), status=status, code=code, found=found, hint=hint)
            retry_after_s = parse_retry_after(headers.get("Retry-After"), self._clock.now())
            return _TryFailed(error, may_help=may_help, retry_after_s=retry_after_s)

        if status in (401, 403):
            has_user = "Authorization" in self._headers
            hint = "See user and password, token or certificate, and what they may read" if has_user else _NO_USER
            return failed(SchemaAccessError, "the registry refuses the request", hint)
        if status == 404 and code is not None:
            return failed(SchemaNotFoundError, "the registry has no such subject, version or schema")
        if status == 404:
            return _TryFailed(self._not_a_registry(path, found, status), may_help=False)
        if status in _RETRIED:
            message = "the registry asks for fewer requests" if status == 429 else "the registry failed to answer"
            return failed(SchemaRegistryError, message, "Every try ended so: ask again later", may_help=True)
        return failed(SchemaRegistryError, "the registry refuses the request")


_NO_USER: Final = "Give auth or token; from a command line, the variable SEGREADER_SCHEMA_REGISTRY_AUTH or _TOKEN"


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None


def _error_code(body: bytes) -> int | None:
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(body)
        if isinstance(document, dict) and type(document.get("error_code")) is int:
            code: int = document["error_code"]
            return code
    return None
