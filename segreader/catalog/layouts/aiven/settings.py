"""The plugin's settings in the broker's own properties file: the prefix of its keys, its key ring, where its bucket is.

Source: ``RemoteStorageManagerConfig`` of the plugin (1.1); ``remote.log.storage.manager.impl.prefix`` (KIP-405).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from segreader.catalog.layouts.aiven.backends import SECRETS, find_location
from segreader.catalog.layouts.aiven.properties import read_properties
from segreader.errors import OptionError
from segreader.storage.signed_url import Secret

_PREFIX_NAME = "remote.log.storage.manager.impl.prefix"
_PREFIX = "rsm.config."
_STORAGE = "storage."
_TELLING = (_STORAGE, "chunk.", "key.prefix", "encryption.", "custom.metadata.", "segment.format")
_KEY_FILE = re.compile(r"encryption\.key\.pairs\.(?P<id>.+)\.private\.key\.file", re.DOTALL)


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
        """The settings in a properties file: a broker's, where they begin with ``rsm.config.`` or what the broker says
        instead, or one that has them alone.

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
        """Where the plugin's objects lie, without credentials, and the storage options to read them.

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
    """The plugin's settings without what stands before them in a broker's file."""
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
    """A value that stands in the file itself, not in one of the broker's configuration providers."""
    if value.startswith("${") and value.endswith("}"):
        raise OptionError(
            f"{name} comes from a configuration provider, which only the broker has",
            source=str(source) if source else None,
            hint="Write the value into a copy of the properties file",
        )
    return value
