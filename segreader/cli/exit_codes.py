"""How a run ends: its exit code, and the error text for people. The one place that decides both."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from enum import IntEnum

from segreader import errors
from segreader.cli.output import is_full


class ExitCode(IntEnum):
    """How a run ended. Source: docs/reference/cli.md."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    NOT_FOUND = 3
    STORAGE = 4
    DATA = 5
    INTERNAL = 70
    INTERRUPTED = 130
    PIPE_CLOSED = 141


# The first class that fits decides, so a subclass comes before its base. The third of each is the next step for an
# error that does not name one itself.
_MEANINGS: tuple[tuple[type[BaseException], ExitCode, str], ...] = (
    (errors.OptionError, ExitCode.USAGE, "See --help for what it may be"),
    (errors.PlanError, ExitCode.USAGE, "See --help for how to ask"),
    (errors.AmbiguousTopicError, ExitCode.USAGE, "Choose one with --topic-id"),
    (errors.ObjectNotFoundError, ExitCode.NOT_FOUND, "segreader ls shows what exists"),
    (errors.AccessDeniedError, ExitCode.NOT_FOUND, "Give this user the right to read it"),
    (errors.UnknownLayoutError, ExitCode.NOT_FOUND, "Give a directory that holds segments"),
    (errors.StorageError, ExitCode.STORAGE, "Try again; what was read before is not affected"),
    (errors.AuthenticationError, ExitCode.NOT_FOUND, "Check user, password, mechanism and certificates"),
    (errors.AuthorizationError, ExitCode.NOT_FOUND, "Have that right given to this user"),
    (errors.TruncatedLogError, ExitCode.DATA, "Plan again: what was read from there on is void"),
    (errors.ProtocolError, ExitCode.DATA, "Check whether it is a Kafka broker that answers there"),
    (errors.BrokerError, ExitCode.STORAGE, "Try again; what was read before is not affected"),
    (errors.SchemaNotFoundError, ExitCode.NOT_FOUND, "segreader schemas pull without a topic gets all there are"),
    (errors.SchemaAccessError, ExitCode.NOT_FOUND, "Check user and password, token and certificates"),
    (errors.SchemaRegistryError, ExitCode.STORAGE, "Try again; or read with a file that segreader schemas pull saved"),
    (errors.CatalogError, ExitCode.DATA, "Give a location that holds more of the partition's files"),
    (errors.FormatError, ExitCode.DATA, "Look at the place with segreader dump, or read another copy"),
    (errors.ConcurrentWriteError, ExitCode.USAGE, "Run it again with --continue"),
    (errors.SegreaderError, ExitCode.DATA, "Run with --debug for the details"),
    (FileNotFoundError, ExitCode.NOT_FOUND, "Check the path"),
    (PermissionError, ExitCode.NOT_FOUND, "Give this user the right to it"),
    (IsADirectoryError, ExitCode.USAGE, "Name a file"),
    (OSError, ExitCode.STORAGE, "Try again"),
)


def exit_code(error: BaseException) -> ExitCode:
    """The exit code for an error; ``INTERNAL`` for one that is not raised on purpose."""
    return next((code for kind, code, _ in _MEANINGS if isinstance(error, kind)), ExitCode.INTERNAL)


def describe(error: BaseException) -> str:
    """The text for stderr: the error in one paragraph that ends with the next step."""
    for kind, _, next_step in _MEANINGS:
        if isinstance(error, kind):
            hint = getattr(error, "hint", None)
            if is_full(error):
                next_step = "Make room there, or write to another place"
            return str(error) if hint else f"{_text(error)}. {next_step}"
    return (
        f"internal error: {type(error).__name__}: {error}. This is a defect of segreader: "
        "run it again with --debug and report what it prints"
    )


def _text(error: BaseException) -> str:
    """The error as segreader writes its own: of the system's, the file before what is wrong, without a number."""
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str):
        return f"{error.filename}: {error.strerror}"
    return str(error)


def drop_stdout() -> None:
    """Discard what is still buffered after the reader closed the pipe: the interpreter would complain at its exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
