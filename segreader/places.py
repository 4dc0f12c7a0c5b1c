"""Places by name: a section of ``~/.config/segreader.toml`` for each bucket, and how ``prod:orders/3`` is read.

A place saves repeating on every command line where segments are, which options their store takes, and which brokers
and schemas belong to them. Secrets are named by reference and read when a store or a client needs them.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from functools import wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from segreader.errors import ObjectNotFoundError, OptionError
from segreader.storage.options import NAMES, Kind, canonical_name, kind_of, override, parse_values
from segreader.storage.signed_url import Secret, redact
from segreader.values import dataclass

FILE_VARIABLE: Final = "SEGREADER_CONFIG"
COMMAND_S: Final = 30.0
"""Seconds that the command of a secret may take."""

_KAFKA = "kafka://"
_LARGEST_FILE = 1 << 20
_LONGEST_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLACE = re.compile(r"(?P<name>[A-Za-z0-9_-]{1,64})(?::(?P<topic>[^/:]+(?:/[0-9]{1,10})?))?")
_TOPIC = re.compile(r"(?P<topic>[^/]+?)(?:/(?P<partition>[0-9]{1,10}))?")
_SECRET_NAME = re.compile(
    r"(?i)(?:password|passwd|secret|token|jaas\.config|credentials?|(?:^|[._-])(?:key|sas|auth))$"
)
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is: ``env:NAME``, ``@FILE`` or ``cmd:COMMAND LINE``. It is read when it is asked for.

    Args:
        kind: ``env``, ``file`` or ``cmd``.
        text: the variable, the file's path, or the command line, which is shown by its program alone.
        wanted_by: file, section and key, for errors.
    """

    kind: str
    text: str = field(repr=False)
    wanted_by: str = ""

    def __str__(self) -> str:
        if self.kind == "cmd":
            return f"cmd:{self.text.split(maxsplit=1)[0]} …"
        return f"@{self.text}" if self.kind == "file" else f"env:{self.text}"

    def read(self, environ: Mapping[str, str] | None = None) -> Secret:
        """The secret itself, without blanks around it.

        Raises:
            OptionError: there is no such variable or file, or the command fails, says nothing or takes too long. What
                it printed is in no error.
        """
        if self.kind == "env":
            text = (os.environ if environ is None else environ).get(self.text)
            if text is None:
                raise self._failed("the variable is not set", f"Set {self.text}, or name another source")
        elif self.kind == "file":
            text = self._of_file()
        else:
            text = self._of_command()
        if not text.strip():
            raise self._failed("the secret is empty", "Look at what it names")
        return Secret(text.strip())

    def _of_file(self) -> str:
        try:
            with open(self.text, encoding="utf-8") as file:
                return file.read(_LARGEST_FILE)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise self._failed(f"the file cannot be read: {reason}", "Name a file with the secret alone") from None

    def _of_command(self) -> str:
        import shlex
        import subprocess

        hint = "Run it by itself to see why: what it prints is shown nowhere here"
        try:
            ended = subprocess.run(
                shlex.split(self.text),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._failed(f"the command did not end in {COMMAND_S:g} s", hint) from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "its quotes do not match"
            raise self._failed(f"the command cannot be run: {reason}", hint) from None
        if ended.returncode:
            raise self._failed(f"the command ended with {ended.returncode}", hint)
        try:
            return ended.stdout[:_LARGEST_FILE].decode()
        except UnicodeDecodeError:
            raise self._failed("the command printed something that is not text", hint) from None

    def _failed(self, what: str, hint: str) -> OptionError:
        return OptionError(what, source=self.wanted_by or None, found=str(self), hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One section of the file: where topics are, and what reading them takes. It shows and pickles no secret.

    Args:
        name: of the section.
        location: directory, bucket or ``kafka://…``; ``None`` where ``rsm_config`` or brokers say it.
        rsm_config, metadata, segments_from, log_directory, leader_epochs, layout: as of ``segreader.scan``.
        storage_options: by segreader's own names; secrets as references.
        bootstrap_servers, broker_options: as of ``segreader.scan``; secrets as references.
        schemas: a file of schemas that decode keys and values. schema_registry: or a registry's URL.
        source: the file, for errors.
    """

    name: str
    location: str | None = None
    rsm_config: str | None = None
    metadata: str | None = None
    segments_from: str | None = None
    log_directory: str | None = None
    leader_epochs: str | None = None
    layout: str | None = None
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    bootstrap_servers: str | None = None
    broker_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    schemas: str | None = None
    schema_registry: str | None = None
    source: str = ""

    def options(self, given: Mapping[str, object] | None = None) -> dict[str, object]:
        """The storage options of the place under those that are given, with their secrets read.

        Credentials are one thing: where some are given, none of the place's are read.

        Raises:
            OptionError: a secret cannot be read.
        """
        named = {_canonical(name): one for name, one in (given or {}).items()}
        return _read(override(named, self.storage_options))

    def client_options(self, given: Mapping[str, object] | None = None) -> dict[str, object]:
        """The same for settings of the Kafka client."""
        return _read({**self.broker_options, **(given or {})})

    def storage_texts(self, given: Iterable[str] = ()) -> dict[str, str]:
        """The storage options as text, for other processes, which look up ``env:VARIABLE`` themselves.

        Args:
            given: names of options that are given beside the place, and left out; with credentials, so are its own.

        Raises:
            OptionError: a secret is in a file or comes of a command: others do not have it.
        """
        named = dict.fromkeys(map(_canonical, given), "")
        return _texts({name: one for name, one in override(named, self.storage_options).items() if name not in named})

    def broker_texts(self, given: Iterable[str] = ()) -> dict[str, str]:
        """The same for settings of the Kafka client."""
        named = {name.lower() for name in given}
        return _texts({name: one for name, one in self.broker_options.items() if name.lower() not in named})

    def arguments(self, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Arguments of ``segreader.scan``: those that are given, over what the place says.

        Raises:
            OptionError: a secret cannot be read.
        """
        given = given or {}
        own = {name: getattr(self, name) for name in ("location", *_FILES, *_WORDS, "bootstrap_servers")}
        found = {name: one for name, one in own.items() if one is not None and given.get(name) is None}
        if options := self.options(given.get("storage_options")):
            found["storage_options"] = options
        # Brokers that are named elsewhere are shown no password of this place's.
        own_brokers = given.get("bootstrap_servers") is None
        if own_brokers and (options := self.client_options(given.get("broker_options"))):
            found["broker_options"] = options
        return {**given, **found}

    @property
    def servers(self) -> str | None:
        """The brokers: ``bootstrap_servers``, or those of a location that is ``kafka://…``."""
        named = (self.location or "").partition("://")[2].rstrip("/")
        return named if self.is_cluster else self.bootstrap_servers

    @property
    def is_cluster(self) -> bool:
        """Whether the location is brokers, not a store."""
        return self.location is not None and self.location.lower().startswith(_KAFKA)

    @property
    def shown(self) -> str:
        """Where it is, for people: the location, the file that names it, or brokers."""
        return redact(self.location or self.rsm_config or self.bootstrap_servers or "")


def _canonical(name: str) -> str:
    return NAMES.get(name.strip().lower().replace("-", "_"), name)


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, one in options.items():
        if isinstance(one, SecretReference) and one.kind != "env":
            raise OptionError(
                "other processes cannot have this secret",
                source=one.wanted_by,
                found=str(one),
                expected="env:VARIABLE, which each process looks up",
                hint="Or leave it out, and name what gives credentials (credentials, --credentials)",
            )
        found[name] = ",".join(map(str, one)) if isinstance(one, list) else str(one)
    return found


def _read(options: Mapping[str, object]) -> dict[str, object]:
    return {name: one.read() if isinstance(one, SecretReference) else one for name, one in options.items()}


_FILES: Final = ("rsm_config", "metadata", "log_directory", "leader_epochs")
_WORDS: Final = ("layout", "segments_from")
_KEYS: Final = tuple(one.name for one in fields(Place) if one.name not in ("name", "source"))


def config_file(environ: Mapping[str, str] | None = None) -> Path:
    """The file of places: ``SEGREADER_CONFIG``, else ``segreader.toml`` in ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    environ = os.environ if environ is None else environ
    if named := environ.get(FILE_VARIABLE):
        return Path(named).expanduser()
    return (
        Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config") / "segreader.toml"
    )


def place_named(text: str, environ: Mapping[str, str] | None = None) -> tuple[Place, str | None] | None:
    """The place that ``prod`` names, and the rest of ``prod:orders`` or ``prod:orders/3``; ``None`` if it names none.

    A section makes a place, whatever directory has its name: ``./prod`` is the directory.

    Raises:
        OptionError: the file is not what it should be; it names the file, the section and the key.
    """
    match = _PLACE.fullmatch(text)
    if match is None:
        return None
    sections, file = _sections(environ)
    if match["name"] not in sections:
        return None
    return _place(match["name"], sections[match["name"]], file), match["topic"]


def find_place(text: str) -> tuple[Place, str | None] | None:
    """As ``place_named``, for a location that somebody typed.

    Raises:
        ObjectNotFoundError: it is neither a place nor a directory, and nearly the name of a place.
    """
    found = place_named(text)
    if found is None and not os.path.exists(text) and (near := near_name(text)) is not None:
        raise ObjectNotFoundError(
            "no such place or directory", source=text, hint=f"Did you mean {near}? segreader places lists them"
        )
    return found


def places(environ: Mapping[str, str] | None = None) -> list[Place]:
    """Every place of the file, in its order.

    Raises:
        OptionError: as ``place_named``, of any section.
    """
    sections, file = _sections(environ)
    return [_place(name, table, file) for name, table in sections.items()]


def near_name(text: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The name of a place that ``prdo`` or ``prdo:orders`` may have meant; ``None`` if it is like none."""
    match = _PLACE.fullmatch(text)
    near = [] if match is None else difflib.get_close_matches(match["name"], _sections(environ)[0], 1)
    return near[0] if near else None


def at_places(
    function: Callable[_P, _T], also: Callable[[Place, dict[str, Any]], dict[str, Any]] | None = None
) -> Callable[_P, _T]:
    """A function that takes a location and other arguments of ``segreader.scan``, which then takes places by name, too.

    Args:
        also: is given the place and the arguments made of it, and returns those that are used.
    """

    @wraps(function)
    def at(*positional: Any, **given: Any) -> Any:
        if len(positional) > 1:  # a place would drop it, and Python's own message does not say what to do
            raise TypeError(
                f"{function.__name__} takes one argument by position, the location: "
                "give the others by name, such as topic='orders'"
            )
        location = positional[0] if positional else given.get("location")
        text = os.fspath(location) if isinstance(location, str | os.PathLike) else None
        found = find_place(text) if isinstance(text, str) else None
        if found is None:
            return function(*positional, **given)
        place, rest = found
        made = place.arguments(with_topic(rest, given | {"location": None}))
        by_name: Callable[..., _T] = function
        return by_name(**(made if also is None else also(place, made)))

    return at


def with_topic(rest: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``segreader.scan`` with the topic and the partition that follow a place's name.

    Raises:
        OptionError: they are named twice.
    """
    if rest is None:
        return dict(given)
    match = _TOPIC.fullmatch(rest)
    assert match is not None
    found: dict[str, Any] = {"topic": match["topic"]}
    if match["partition"] is not None:
        found["partitions"] = (int(match["partition"]),)
    for name in found:
        if given.get(name) is not None:
            raise OptionError(f"{name} is named twice", found=f"{rest} behind a place's name", hint="Leave one out")
    return {**given, **found}


def _sections(environ: Mapping[str, str] | None) -> tuple[dict[str, Any], Path]:
    file = config_file(environ)
    source = str(file)
    try:
        with file.open("rb") as stream:
            import tomllib

            found = tomllib.loads(stream.read(_LARGEST_FILE).decode())
    except FileNotFoundError:
        if (os.environ if environ is None else environ).get(FILE_VARIABLE):
            raise OptionError(f"the file that {FILE_VARIABLE} names is not there", source=source) from None
        return {}, file
    except OSError as error:
        raise OptionError("the file of places cannot be read", source=source, found=error.strerror) from None
    except ValueError as error:
        where = re.search(r"\(at ([^)]*)\)", str(error))  # the rest would quote the line
        raise OptionError("the file of places is not TOML", source=source, found=where and where[1]) from None
    for name, table in found.items():
        if not isinstance(table, dict):
            raise OptionError(
                f"{name[:_LONGEST_NAME]!r} is in no section", source=source, hint="Begin the section of a place: [prod]"
            )
        if not _NAME.fullmatch(name):
            raise OptionError(
                "not a place's name",
                source=source,
                found=f"[{name[:_LONGEST_NAME]}]",
                expected="letters, digits, _ and -",
            )
    return found, file


def _place(name: str, table: Mapping[str, object], file: Path) -> Place:
    source = f"{file} [{name}]"
    for key in table:
        if key not in _KEYS:
            near = difflib.get_close_matches(key[:_LONGEST_NAME], _KEYS, 1)
            raise OptionError(
                f"unknown key {key[:_LONGEST_NAME]!r}",
                source=source,
                expected=None if near else ", ".join(_KEYS),
                hint=f"Did you mean {near[0]}?" if near else None,
            )
    made: dict[str, Any] = {}
    for key, value in table.items():
        if key == "storage_options":
            made[key] = _storage_options(source, value, _kind(table), file.parent)
        elif key == "broker_options":
            made[key] = _broker_options(source, value, file.parent)
        else:
            made[key] = _text(source, key, value)
            if key in (*_FILES, "location", "schemas"):
                made[key] = _path(made[key], file.parent)
    if {"schemas", "schema_registry"} <= made.keys():
        raise OptionError(
            "schemas and schema_registry both say where schemas come from", source=source, hint="Keep one"
        )
    if not {"location", "rsm_config", "bootstrap_servers"} & made.keys():
        raise OptionError("the place has no location", source=source, hint='Write location = "s3://bucket/prefix"')
    if (
        "broker_options" in made
        and "bootstrap_servers" not in made
        and not made.get("location", "").lower().startswith(_KAFKA)
    ):
        raise OptionError(
            "broker_options are of no brokers", source=source, hint='Write bootstrap_servers = "host:9092"'
        )
    return Place(name=name, source=str(file), **made)


def _kind(table: Mapping[str, object]) -> Kind | None:
    location = table.get("location")
    return kind_of(location) if isinstance(location, str) else None


def _text(source: str, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise OptionError(f"{key} is not text, or is empty", source=source, found=type(value).__name__)
    if redact(value) != value or (key == "bootstrap_servers" and "@" in value):
        raise OptionError(
            f"{key} holds a credential, which no file of places may",
            source=source,
            hint="Leave it out of the URL: storage_options and broker_options take secrets by reference",
        )
    return value.strip()


def _path(text: str, directory: Path) -> str:
    """A path from the file's directory; URLs as they are."""
    if "://" in text or text.startswith("file:"):
        return text
    return os.path.normpath(directory.absolute() / Path(text).expanduser())


def _storage_options(source: str, value: object, kind: Kind | None, directory: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, one in _table(source, "storage_options", value):
        where = f"{source} storage_options.{name[:_LONGEST_NAME]}"
        is_known = kind is not Kind.OTHER
        try:
            known = canonical_name(name) if is_known else name
            reference = _reference(where, one, directory)
            if reference is None and is_known:
                [parsed] = parse_values({name: one}, None).values()
                # The id of an S3 access key is a name, though it is hidden elsewhere.
                if isinstance(parsed, Secret) and known != "key":
                    raise _in_clear(name)
            elif reference is None and _SECRET_NAME.search(name):
                raise _in_clear(name)
            elif isinstance(one, Mapping):
                raise OptionError("a table in place of a value", hint="Write each option by its own name")
        except OptionError as error:
            raise error.located(source=where) from None
        if known in found:
            raise OptionError(f"the storage option {known} is given twice", source=where)
        found[known] = reference or one
    return found


def _broker_options(source: str, value: object, directory: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, one in _flat(_table(source, "broker_options", value)):
        where = f"{source} broker_options.{name[:_LONGEST_NAME]}"
        reference = _reference(where, one, directory)
        if reference is None and _SECRET_NAME.search(name):
            raise _in_clear(name).located(source=where)
        if reference is None and not isinstance(one, str | int | float):
            raise OptionError("not text, a number or a truth value", source=where, found=type(one).__name__)
        found[name] = reference or one
    return found


def _flat(table: Iterable[tuple[str, object]], prefix: str = "") -> list[tuple[str, object]]:
    """TOML reads ``sasl.password`` without quotes as a table in a table."""
    found: list[tuple[str, object]] = []
    for key, value in table:
        found += _flat(value.items(), f"{prefix}{key}.") if isinstance(value, Mapping) else [(prefix + key, value)]
    return found


def _table(source: str, key: str, value: object) -> Iterable[tuple[str, object]]:
    if not isinstance(value, Mapping):
        raise OptionError(
            f"{key} is not a table", source=source, found=type(value).__name__, hint=f'Write {key} = {{name = "value"}}'
        )
    return value.items()


def _reference(where: str, value: object, directory: Path) -> SecretReference | None:
    if not isinstance(value, str):
        return None
    for prefix, kind in (("env:", "env"), ("@", "file"), ("cmd:", "cmd")):
        if value.startswith(prefix):
            text = value.removeprefix(prefix).strip()
            if not text:
                raise OptionError(f"nothing follows {prefix}", source=where)
            return SecretReference(kind, _path(text, directory) if kind == "file" else text, where)
    return None


def _in_clear(name: str) -> OptionError:
    return OptionError(
        "a secret in plain text",
        expected=f'{name} = "env:VARIABLE", "@FILE" or "cmd:COMMAND"',
        hint="Put it elsewhere, and change it if others could read this file",
    )
