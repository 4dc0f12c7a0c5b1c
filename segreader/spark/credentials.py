"""Who gives credentials: a name in the options, resolved where bytes are read. Values never travel.

Spark shows options in its UI and its event log, in clear, so no option can hold a secret. The name of a provider can:

- ``default``: what the cloud's own client finds in the process that reads: an identity of the machine or the pod,
  variables, files.
- ``env:PREFIX``: the variables ``PREFIX_KEY``, ``PREFIX_SECRET``, ``PREFIX_ACCOUNT_KEY`` …: the storage option after
  the prefix. Each process that reads must have them.
- ``module:callable``: called with the location, it returns storage options: a mapping, names as in
  ``docs/reference/options.md``. It is asked again when the store refuses what it gave before.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from typing import Any

from segreader.errors import OptionError
from segreader.spark.option_names import is_reference
from segreader.storage.options import NAMES, StorageOptions, kind_of, only_for, override, parse_values
from segreader.storage.signed_url import Secret

_FORM = re.compile(r"default|env:[A-Za-z_][A-Za-z0-9_]*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def parse_provider(text: str, option: str = "credentials") -> str:
    """The name of a provider, as the option ``credentials`` gives it.

    Args:
        option: which option gives it, for messages.

    Raises:
        OptionError: not a name; the text is not shown, it may be a secret.
    """
    name = text.strip()
    if not _FORM.fullmatch(name) or len(name) > 200:
        raise OptionError(
            f"{option} is not the name of a provider",
            expected="default, env:PREFIX or module:callable",
            hint="It is a name, never a value: Spark shows options in its UI and event log in clear",
        )
    return name


def can_renew(provider: str) -> bool:
    """Whether asking the provider again may give other credentials."""
    return provider != "default" and not provider.startswith("env:")


def resolve_storage(
    provider: str, location: str, settings: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> Mapping[str, object]:
    """Storage options of a location in this process: the provider's credentials and the settings of the read.

    Of several locations each is given what its kind of store can have.

    Args:
        provider: its name.
        location: what they are for.
        settings: ``storage.*`` of the read; they weigh more than what the provider says.
        environ: variables; those of this process by default.

    Raises:
        OptionError: the provider is not there, or gives no storage options.
    """
    kind = kind_of(location)
    variables = os.environ if environ is None else environ
    try:
        own = only_for(kind, parse_values({name: _looked_up(name, text, variables) for name, text in settings.items()}))
    except OptionError as error:
        raise error.located(source="storage.*") from None
    if provider == "default":
        return own
    if provider.startswith("env:"):
        given: Mapping[str, object] = _of_environment(provider.removeprefix("env:"), variables)
    else:
        given = _called(provider, location)
    try:
        return override(own, only_for(kind, parse_values(given)))
    except OptionError as error:
        raise error.located(source=f"credentials={provider}") from None


def _looked_up(name: str, text: str, environ: Mapping[str, str]) -> object:
    if not is_reference(text):
        return text
    variable = text.strip().removeprefix("env:")
    if not environ.get(variable):
        raise OptionError(
            f"{name}=env:{variable} finds no variable in this process",
            hint="Executors get variables by spark.executorEnv.NAME; the driver needs them, too: it lists",
        )
    return Secret(environ[variable])


def _of_environment(prefix: str, environ: Mapping[str, str]) -> dict[str, object]:
    begin = f"{prefix.rstrip('_')}_"
    found: dict[str, object] = {}
    for variable, value in environ.items():
        if variable.startswith(begin) and value and (name := variable.removeprefix(begin).lower()) in NAMES:
            found[name] = value
    if not found:
        raise OptionError(
            f"credentials=env:{prefix} finds no variable in this process",
            expected=f"{begin}KEY and {begin}SECRET, or {begin}ACCOUNT_KEY, and so on",
            hint="Executors get variables by spark.executorEnv.NAME; the driver needs them, too: it lists",
        )
    return found


def call_provider(provider: str, location: str, option: str = "credentials") -> object:
    """What a provider of the form ``module:callable`` gives for a location.

    Args:
        option: which option names it, for messages.

    Raises:
        OptionError: it cannot be imported, or fails; what it says is not told.
    """
    module, _, path = provider.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in path.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"{option}={provider} cannot be imported: {type(error).__name__}",
            hint="The module must be importable on the driver and on every executor",
        ) from None
    try:
        given: object = target(location)
    except Exception as error:
        raise OptionError(f"{option}={provider} failed: {type(error).__name__}") from None  # its text may tell all
    return given


def _called(provider: str, location: str) -> Mapping[str, object]:
    given = call_provider(provider, location)
    if isinstance(given, StorageOptions):
        return {name: getattr(given, name) for name in StorageOptions.__slots__ if getattr(given, name) is not None}
    if not isinstance(given, Mapping):
        raise OptionError(
            f"credentials={provider} gives no storage options", found=type(given).__name__, expected="a mapping"
        )
    return given
