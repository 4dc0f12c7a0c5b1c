"""The plugin's settings in the broker's own properties file: the prefix of its keys, its key ring, and its storage
backend as a location with storage options of segreader.

Source: ``RemoteStorageManagerConfig``, ``S3StorageConfig``, ``GcsStorageConfig``, ``AzureBlobStorageConfig`` and
``FileSystemStorageConfig`` of the plugin (1.1); ``remote.log.storage.manager.impl.prefix`` (KIP-405);
``java.util.Properties.load`` (Java 21).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from segreader.errors import OptionError
from segreader.storage.signed_url import Secret
from segreader.values import dataclass

Value = str | Secret
Options = dict[str, str | bool | Secret]

SECRETS: Final = frozenset(
    (
        "aws.access.key.id",
        "aws.secret.access.key",
        "aws.session.token",
        "gcs.credentials.json",
        "azure.account.key",
        "azure.sas.token",
        "azure.connection.string",
    )
)
"""Names of settings that are never shown."""

_AWS_KEYS = {"key": "aws.access.key.id", "secret": "aws.secret.access.key", "token": "aws.session.token"}
_ANONYMOUS = "AnonymousCredentialsProvider"
_PREFIX_NAME = "remote.log.storage.manager.impl.prefix"
_PREFIX = "rsm.config."
_STORAGE = "storage."
_TELLING = (_STORAGE, "chunk.", "key.prefix", "encryption.", "custom.metadata.", "segment.format")
_KEY_FILE = re.compile(r"encryption\.key\.pairs\.(?P<id>.+)\.private\.key\.file", re.DOTALL)
_LARGEST_FILE = 1 << 20
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_NAME_AND_VALUE = re.compile(
    r"(?P<name>(?:[^\\=: \t\f]|\\.)*) [ \t\f]* (?:[=:][ \t\f]*)? (?P<value>.*)", re.VERBOSE | re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class RsmConfig:
    """What a reader needs of the plugin's settings. A pickle of it holds no secret.

    Args:
        key_prefix: what the names of all objects begin with, as it is: no ``/`` is added.
        key_files: private key files by the ids of their pairs.
        storage: the settings below ``storage.``, where the bucket is and with what it is read.
        source: the file that all this was read from; paths in it are relative to its directory.
    """

    key_prefix: str = ""
    key_files: Mapping[str, Path] = field(default_factory=dict)
    storage: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    source: Path | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RsmConfig:
        """The settings in a properties file: a broker's, where they begin with ``rsm.config.`` or another
        prefix that the broker sets, or one that has them alone.

        Raises:
            OptionError: the file cannot be read, has none of the plugin's settings, or takes one from elsewhere.
        """
        source = Path(path).absolute()
        values = _of_plugin(read_properties(source))
        if not any(name.startswith(_TELLING) for name in values):
            raise OptionError(
                "the properties file has no settings of the plugin",
                source=str(source),
                expected="names such as rsm.config.storage.backend.class, with or without rsm.config.",
            )
        key_prefix, storage = "", dict[str, str | Secret]()
        for name, value in values.items():
            if name == "key.prefix":
                key_prefix = _literal(name, value, source)
            elif name.startswith(_STORAGE):
                short = name.removeprefix(_STORAGE)
                storage[short] = Secret(value) if short in SECRETS else value
        return cls(key_prefix, _key_files(values, source), storage, source)

    def location(self) -> tuple[str, dict[str, str | bool | Secret]]:
        """The location of the plugin's objects, without credentials, and the storage options to read them.

        Raises:
            OptionError: the backend is missing or unknown, or a setting that it needs is.
        """
        try:
            for name, value in self.storage.items():
                _literal(_STORAGE + name, value.reveal() if isinstance(value, Secret) else value, self.source)
            directory = self.source.parent if self.source else Path()
            return find_location(self.storage, directory, self.key_prefix.rpartition("/")[0])
        except OptionError as error:
            error.located(source=str(self.source) if self.source else None)
            raise


def _of_plugin(values: Mapping[str, str]) -> dict[str, str]:
    """The plugin's settings without the prefix that they have in a broker's file."""
    prefix = values.get(_PREFIX_NAME, _PREFIX).strip()
    named = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
    return {name: value.strip() for name, value in (named or values).items() if value.strip()}


def _key_files(values: Mapping[str, str], source: Path) -> dict[str, Path]:
    return {
        match["id"]: source.parent / _literal(name, value, source)
        for name, value in values.items()
        if (match := _KEY_FILE.fullmatch(name))
    }


def _literal(name: str, value: str, source: Path | None) -> str:
    """A value that is in the file itself, not in one of the broker's configuration providers."""
    if value.startswith("${") and value.endswith("}"):
        raise OptionError(
            f"{name} comes from a configuration provider, which only the broker has",
            source=str(source) if source else None,
            hint="Write the value into a copy of the properties file",
        )
    return value


def find_location(settings: Mapping[str, Value], directory: Path, prefix: str) -> tuple[str, Options]:
    """Location and storage options of the backend that the settings name.

    Args:
        settings: by their names below ``storage.``.
        directory: that relative paths in them start from.
        prefix: directory in the bucket, without ``/`` at its ends; empty for all of it.

    Raises:
        OptionError: the backend is missing or unknown, or a setting that it needs is.
    """
    backend = _need(settings, "backend.class")
    match backend.rpartition(".")[2]:
        case "S3Storage":
            return _below(f"s3://{_need(settings, 's3.bucket.name')}", prefix), _s3_options(settings, directory)
        case "GcsStorage":
            return _below(f"gs://{_need(settings, 'gcs.bucket.name')}", prefix), _gcs_options(settings, directory)
        case "AzureBlobStorage":
            return _below(f"az://{_need(settings, 'azure.container.name')}", prefix), _azure_options(settings)
        case "FileSystemStorage":
            return _below(str(directory / _need(settings, "root")), prefix), {}
    raise OptionError(
        "storage.backend.class is not known here",
        found=backend,
        expected="S3Storage, GcsStorage, AzureBlobStorage or FileSystemStorage of the plugin",
        hint="Give the location itself",
    )


def _s3_options(settings: Mapping[str, Value], directory: Path) -> Options:
    options: Options = {}
    for name, setting in (("region", "s3.region"), ("endpoint_url", "s3.endpoint.url")):
        if setting in settings:
            options[name] = settings[setting]
    if "s3.path.style.access.enabled" in settings:
        options["addressing_style"] = "path" if _is_true(settings, "s3.path.style.access.enabled") else "virtual"
    if "aws.certificate.check.enabled" in settings and not _is_true(settings, "aws.certificate.check.enabled"):
        options["verify"] = False
    keys = settings
    if "aws.access.key.id" not in settings and "aws.credentials.file" in settings:
        keys = _credentials(directory / _need(settings, "aws.credentials.file"))
    options.update({name: keys[setting] for name, setting in _AWS_KEYS.items() if setting in keys})
    if _text(settings, "aws.credentials.provider.class").endswith(_ANONYMOUS):
        options["anon"] = True
    return options


def _credentials(file: Path) -> dict[str, Value]:
    """The keys in a file of their own, where they may be named as in the broker's."""
    values = read_properties(file)
    names = {setting: (f"rsm.config.storage.{setting}", setting) for setting in _AWS_KEYS.values()}
    return {
        setting: Secret(values[name].strip())
        for setting, spellings in names.items()
        for name in spellings[::-1]
        if values.get(name, "").strip()
    }


def _gcs_options(settings: Mapping[str, Value], directory: Path) -> Options:
    options: Options = {}
    if "gcs.credentials.json" in settings:
        options["service_account_key"] = settings["gcs.credentials.json"]
    elif "gcs.credentials.path" in settings:
        options["service_account_file"] = str(directory / _need(settings, "gcs.credentials.path"))
    elif "gcs.credentials.default" in settings and not _is_true(settings, "gcs.credentials.default"):
        options["anon"] = True
    if "gcs.endpoint.url" in settings:
        options["endpoint_url"] = settings["gcs.endpoint.url"]
    return options


def _azure_options(settings: Mapping[str, Value]) -> Options:
    if "azure.connection.string" in settings:
        return {"connection_string": settings["azure.connection.string"]}
    account = _need(settings, "azure.account.name")
    key, token = settings.get("azure.account.key"), settings.get("azure.sas.token")
    endpoint = _text(settings, "azure.endpoint.url")
    if endpoint and (key is not None or token is not None):
        # Only a connection string names an endpoint of any form.
        secret = f"AccountKey={_text(settings, 'azure.account.key')}"
        if key is None:
            secret = f"SharedAccessSignature={_text(settings, 'azure.sas.token').removeprefix('?')}"
        protocol = urlsplit(endpoint).scheme or "https"
        text = f"DefaultEndpointsProtocol={protocol};AccountName={account};{secret};BlobEndpoint={endpoint}"
        return {"connection_string": Secret(text)}
    options: Options = {"account_name": account}
    if endpoint:
        options["account_host"] = urlsplit(endpoint).netloc
    if key is not None:
        options["account_key"] = key
    elif token is not None:
        options["sas_token"] = token
    return options


def _text(settings: Mapping[str, Value], name: str) -> str:
    value = settings.get(name, "")
    return value.reveal() if isinstance(value, Secret) else value


def _need(settings: Mapping[str, Value], name: str) -> str:
    if not (value := _text(settings, name)):
        raise OptionError(f"storage.{name} is missing", hint="Set it, or give the location itself")
    return value


def _is_true(settings: Mapping[str, Value], name: str) -> bool:
    text = _text(settings, name).lower()
    if text not in ("true", "false"):
        raise OptionError(f"storage.{name} is neither true nor false")
    return text == "true"


def _below(place: str, prefix: str) -> str:
    return f"{place.rstrip('/')}/{prefix}" if prefix else place


def read_properties(path: Path) -> dict[str, str]:
    """Names and values of a properties file; of a name that comes twice the last value.

    Raises:
        OptionError: the file cannot be read, is longer than 1 MiB, or has a damaged escape. No value is shown.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise OptionError("the properties file cannot be read", source=str(path), found=error.strerror) from None
    if len(data) > _LARGEST_FILE:
        raise OptionError("this is not a properties file", source=str(path), found=f"more than {_LARGEST_FILE} bytes")
    try:
        return parse_properties(data.decode("latin-1"))
    except OptionError as error:
        error.located(source=str(path))
        raise


def parse_properties(text: str) -> dict[str, str]:
    """Names and values in the text of a properties file.

    Raises:
        OptionError: a ``\\u`` without four hexadecimal digits after it.
    """
    values = {}
    pending = ""
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = pending + natural.lstrip(_BLANKS)
        if not pending and line[:1] in ("", "#", "!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        pending = ""
        name, value = _split(line, number)
        values[name] = value
    if pending:
        name, value = _split(pending, number)
        values[name] = value
    return values


def _split(line: str, number: int) -> tuple[str, str]:
    match = _NAME_AND_VALUE.fullmatch(line)
    if match is None:
        return line, ""
    return _unescaped(match["name"], number), _unescaped(match["value"], number)


def _unescaped(text: str, number: int) -> str:
    def plain(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        if escape[2] == "u":
            raise OptionError(f"line {number} of the properties file has \\u without four digits")
        return _CONTROLS.get(escape[2], escape[2])

    return _ESCAPE.sub(plain, text)
