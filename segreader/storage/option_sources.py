"""Where storage options come from, and which source wins: what is given, then the environment, then files.

What none of them sets is left to the cloud's own library, which reads its own variables and files.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from segreader.errors import OptionError
from segreader.storage.options import StorageOptions, kind_of, only_for, override, parse_values
from segreader.storage.signed_url import Secret

ENVIRONMENT = "SEGREADER_STORAGE_"
_LARGEST_FILE = 1 << 20


def parse_storage_option(text: str, environ: Mapping[str, str] | None = None) -> tuple[str, Secret]:
    """Name and value of ``name=value``, ``name=@file`` or ``name=env:VARIABLE``.

    Only the last two keep a secret out of the process list and the shell's history.

    Raises:
        OptionError: there is no ``=``, no such file or no such variable.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise OptionError("a storage option has the form name=value, name=@file or name=env:VARIABLE")
    return name.strip(), Secret(_fetch(name.strip(), value, os.environ if environ is None else environ, Path()))


def parse_storage_options(texts: Iterable[str], environ: Mapping[str, str] | None = None) -> dict[str, Secret]:
    """The options of a command line; a later one of the same name wins."""
    return dict(parse_storage_option(text, environ) for text in texts)


def revealed(given: Mapping[str, object]) -> dict[str, object]:
    """The same options with secrets as text, for a filesystem whose options are not known here."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in given.items()}


def find_storage_options(
    location: str,
    given: Mapping[str, object] | StorageOptions | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    files: Iterable[Path] | None = None,
) -> StorageOptions:
    """The options of one location, from all sources.

    Args:
        location: whose kind decides which options mean something, and which tables of the files are for it.
        given: by flag or argument: weighs most, and must be for this kind of location.
        environ: variables ``SEGREADER_STORAGE_<NAME>``; this process's by default.
        files: weightiest first; ``segreader.toml`` here and ``~/.config/segreader/config.toml`` by default.

    Raises:
        OptionError: an option is unknown, or its value is none; the file or variable is named.
    """
    if isinstance(given, StorageOptions):
        return given
    environ = os.environ if environ is None else environ
    kind = kind_of(location)
    values = parse_values(given or {}, kind)
    values = override(values, only_for(kind, _read_environment(environ)))
    for file in config_files(environ) if files is None else files:
        for table in _read_tables(file, location, environ):
            values = override(values, only_for(kind, table))
    return StorageOptions(**values)


def config_files(environ: Mapping[str, str]) -> list[Path]:
    """The files that are read if they are there, weightiest first."""
    home = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config"
    return [Path("segreader.toml"), Path(home) / "segreader" / "config.toml"]


def _fetch(name: str, value: str, environ: Mapping[str, str], directory: Path) -> str:
    """A value, or what it points to."""
    shown = name if name.replace("_", "").isalpha() else "a storage option"
    if value.startswith("@"):
        try:
            with (directory / value[1:]).expanduser().open(encoding="utf-8") as file:
                return file.read(_LARGEST_FILE).strip()
        except (OSError, ValueError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text file"
            raise OptionError(f"the file that {shown} names cannot be read", found=reason) from None
    if value.startswith("env:"):
        variable = value.removeprefix("env:")
        if variable not in environ:
            raise OptionError(
                f"the variable that {shown} names is not set", found=variable if variable.isidentifier() else None
            )
        return environ[variable]
    return value


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, value in sorted(environ.items()):
        if variable.startswith(ENVIRONMENT) and value:
            try:
                parsed = parse_values({variable.removeprefix(ENVIRONMENT).lower(): value})
            except OptionError as error:
                raise error.located(source=f"the variable {variable}") from None
            if any(values.get(name, one) != one for name, one in parsed.items()):
                raise OptionError("two variables set one storage option", found=variable)
            values |= parsed
    return values


def _read_tables(file: Path, location: str, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """What a file says of a location, weightiest first: tables of longer locations before those of shorter ones."""
    try:
        with file.open("rb") as stream:
            storage = tomllib.loads(stream.read(_LARGEST_FILE).decode()).get("storage", {})
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OptionError("the configuration file cannot be read", source=str(file), found=error.strerror) from None
    except ValueError:  # its text would quote the line
        raise OptionError("the configuration file is no TOML", source=str(file)) from None
    if not isinstance(storage, dict):
        raise OptionError("[storage] is no table", source=str(file))
    tables = {name: table for name, table in storage.items() if "://" in name or name.startswith("/")}
    general = {name: value for name, value in storage.items() if name not in tables}
    found = []
    for name in sorted((name for name in tables if _is_below(location, name)), key=len, reverse=True):
        found.append(_parse_table(file, tables[name], environ))
    return [*found, _parse_table(file, general, environ)]


def _is_below(location: str, place: str) -> bool:
    place = place.rstrip("/")
    return location.rstrip("/") == place or location.startswith(f"{place}/")


def _parse_table(file: Path, table: object, environ: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise OptionError("a location in [storage] has no table of options", source=str(file))
    try:
        return parse_values(
            {
                name: _fetch(name, value, environ, file.parent) if isinstance(value, str) else value
                for name, value in table.items()
            }
        )
    except OptionError as error:
        raise error.located(source=str(file)) from None
