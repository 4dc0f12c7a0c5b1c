"""Completion of a command line for bash, zsh and fish: commands, options, places, topics and partitions.

A shell asks the program itself, by click's variables. Topics are those of a listing of the location typed so far, which
is kept for a minute, and given up after two seconds. Nothing here prints an error: it would be in the line one types.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

if TYPE_CHECKING:
    from segreader.segment import TopicIdPartition

VARIABLE: Final = "_SEGREADER_COMPLETE"
"""Set by the scripts: ``bash_complete`` and so on."""

SECONDS: Final = 2.0
"""How long a shell may wait for topics."""

KEPT_S: Final = 60.0
"""How long a listing is good for."""

_FORGOTTEN_S = 24 * 60 * 60.0
_MOST = 1000
_AT = "SEGREADER_AT"
_CATALOG = ("layout", "rsm_config", "metadata", "segments_from", "log_directory", "leader_epochs")

Topics = dict[str, list[int]]
"""Topics by name, each with the numbers of its partitions."""

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' line kind value typed before=""
    line="${COMP_LINE:0:COMP_POINT}"
    typed="${line##*[[:space:]]}"
    # Where a colon ends a word, bash puts only what follows it into the line.
    [[ $typed == *:* && $COMP_WORDBREAKS == *:* ]] && before="${typed%%:*}:"
    COMPREPLY=()
    for line in $(COMP_WORDS="$line" %(complete_var)s=bash_complete "$1" 2>/dev/null); do
        kind="${line%%%%,*}" value="${line#*,}"
        case $kind in
            dir) compopt -o filenames -o plusdirs ;;
            file) compopt -o filenames -o default ;;
            plain) COMPREPLY+=("${value#"$before"}") ;;
        esac
    done
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Answers(ShellComplete):
    """What click does, for values of options that need the location before them, and for commands that are jobs."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """What may stand in the place of the word that is typed."""
        if args[:1] == ["backfill"]:
            self.cli, args = _job(self.cli, args[1:])
        if args and args[-1].startswith("--") and "=" not in args[-1] and "--" not in args:
            # An option that lacks its value ends click's look at a line, before it comes to arguments.
            *args, option = args
            incomplete = f"{option}={incomplete}"
        return super().get_completions(args, incomplete)


def _job(cli: click.Command, args: list[str]) -> tuple[click.Command, list[str]]:
    """The command of a job, which lives beside this library, and the arguments that are left to it."""
    import importlib

    assert isinstance(cli, click.Group)
    backfill: Any = cli.get_command(click.Context(cli), "backfill")
    _, module, rest = backfill.choose(args)
    command = getattr(importlib.import_module(module), module.rpartition(".")[2])
    assert isinstance(command, click.Command)
    return command, list(rest)


class _Zsh(_Answers, ZshComplete):
    """Click's script."""


class _Fish(_Answers, FishComplete):
    """Click's script."""


class _Bash(_Answers, BashComplete):
    """Click's, for names with colons in them; the script gives it the line up to the cursor."""

    source_template = _BASH

    def source(self) -> str:
        """The script; click's own looks for the version of a bash first."""
        return self.source_template % self.source_vars()

    def complete(self) -> str:
        """The answer; that a word is complete is said by the blank behind it."""
        line = os.environ["COMP_WORDS"]
        count = len(split_arg_string(line))
        os.environ["COMP_CWORD"] = str(count if line[-1:].isspace() else count - 1)
        return super().complete()


_SHELLS: Final[Mapping[str, type[ShellComplete]]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}
SHELLS: Final = tuple(_SHELLS)


def script(cli: click.Command, shell: str) -> str:
    """The script that has a shell ask the program.

    Args:
        shell: one of ``SHELLS``.
    """
    return _SHELLS[shell](cli, {}, "segreader", VARIABLE).source()


def complete(cli: click.Command, instruction: str) -> int:
    """Answer a shell that asks, by variables, what may follow on a command line. Returns the exit code."""
    shell, _, asked = instruction.partition("_")
    if shell not in _SHELLS or asked != "complete":
        return 1
    with suppress(OSError):  # what libraries print would be in the line that is typed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with suppress(Exception):
        sys.stdout.write(f"{_SHELLS[shell](cli, {}, 'segreader', VARIABLE).complete()}\n")
        sys.stdout.flush()
    os._exit(0)  # a listing that still waits for a store ends here


def _within(seconds: float, work: Callable[[], Topics]) -> Topics:
    """What the work gives; nothing where it fails or takes longer."""
    found: list[Topics] = []

    def run() -> None:
        with suppress(Exception):
            found.append(work())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else {}


def locations(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Places, topics of a place that is typed, and directories; topics, too, where ``SEGREADER_AT`` has some."""
    from segreader.places import place_named, places

    name, colon, rest = incomplete.partition(":")
    if colon and not rest.startswith("/") and place_named(name) is not None:
        return _offered(_listed(ctx, name), rest, begin=f"{name}:")
    found = [CompletionItem(one.name, help=one.shown or None) for one in places() if one.name.startswith(incomplete)]
    if (at := os.environ.get(_AT)) and _is_argument(ctx):
        found += _offered(_listed(ctx, at), incomplete)
    return [*found, CompletionItem(incomplete, type="file" if ctx.command.name == "inspect" else "dir")]


def topics_and_partitions(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Topics of the location, and partitions of a topic that a slash follows."""
    return _offered(_listed(ctx, ctx.params.get("location")), incomplete)


def topics(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Topics of the location."""
    return [CompletionItem(name) for name in _listed(ctx, _location(ctx)) if name.startswith(incomplete)]


def partitions(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Partitions of the topic that is named so far, or of all topics of the location."""
    listed = _listed(ctx, _location(ctx))
    named = ctx.params.get("topic") or ctx.params.get("topic_argument")
    numbers = listed.get(named, []) if named else sorted({one for some in listed.values() for one in some})
    return [CompletionItem(str(one)) for one in numbers if str(one).startswith(incomplete)]


def files(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Files, as the shell knows them."""
    return [CompletionItem(incomplete, type="file")]


def _is_argument(ctx: click.Context) -> bool:
    """Whether the location is an argument of the command: a topic may be in its place."""
    return any(isinstance(one, click.Argument) and one.name == "location" for one in ctx.command.params)


def _location(ctx: click.Context) -> str | None:
    return ctx.params.get("location") or os.environ.get(_AT)


def _offered(listed: Topics, incomplete: str, begin: str = "") -> list[CompletionItem]:
    """Topics; or partitions, where a topic and a slash are typed."""
    topic, slash, number = incomplete.rpartition("/")
    if slash:
        numbers = [one for one in listed.get(topic, ()) if str(one).startswith(number)]
        return [CompletionItem(f"{begin}{topic}/{one}") for one in numbers[:_MOST]]
    names = [name for name in listed if name.startswith(incomplete)]
    return [CompletionItem(f"{begin}{name}") for name in names[:_MOST]]


def _listed(ctx: click.Context, text: str | None) -> Topics:
    """The topics at a location, a place or ``@FILE``; none where they cannot be had without asking somebody."""
    from segreader.places import SecretReference, place_named
    from segreader.storage.options import Kind, kind_of

    if text is None:
        return {}
    named = place_named(text)
    place = None if named is None else named[0]
    location = text if place is None else place.location
    if location is None or location.startswith(("@", "-")) or kind_of(location) in (Kind.HTTP, Kind.OTHER):
        return {}
    known = {name: ctx.params.get(name) or getattr(place, name, None) for name in _CATALOG}
    texts = tuple(ctx.params.get("storage_options") or ())
    kept = None if texts else _KeptListing.of(location, known)
    if kept is not None and (found := kept.read()) is not None:
        return found
    secrets = () if place is None else place.storage_options.values()
    if any(isinstance(one, SecretReference) and one.kind == "cmd" for one in secrets):
        return {}  # a command may ask for a password
    from segreader.catalog.listing import Wanted
    from segreader.storage.options import parse_storage_options
    from segreader.stored.source import Catalog, open_source

    def ask() -> Topics:
        """Topics and partitions, of which no segment is listed."""
        topics: dict[str, set[int]] = {}

        def note(partition: TopicIdPartition) -> bool:
            topics.setdefault(partition.topic, set()).add(partition.partition)
            return False

        given: Mapping[str, object] = parse_storage_options(texts)
        options = given if place is None else place.options(given)
        source = open_source(location, storage_options=options, catalog=Catalog(**known))
        for _ in source.logs(Wanted(None, None, None), note):
            pass
        source.store.close()
        return {name: sorted(topics[name]) for name in sorted(topics)}

    listed = _within(SECONDS, ask)
    if kept is not None:
        kept.write(listed)  # a store that does not answer is not asked again for a minute
    return listed


class _KeptListing:
    """A listing in a file of the user's own, which names topics and nothing of how they were found."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @classmethod
    def of(cls, location: str, known: Mapping[str, str | None]) -> _KeptListing:
        """That of a location as it is found: its name is a hash."""
        import hashlib

        if "://" not in location:
            location = os.path.abspath(location)
        name = hashlib.sha256(json.dumps([location, *(known[one] for one in _CATALOG)]).encode()).hexdigest()[:24]
        root = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or Path.home()) / ".cache"
        return cls(Path(root) / "segreader" / f"topics-{name}.json")

    def read(self) -> Topics | None:
        """The listing, if it is there and new."""
        try:
            age = time.time() - self._file.stat().st_mtime
            if not 0 <= age <= KEPT_S:
                return None
            found = json.loads(self._file.read_text())
            return {str(name): [int(one) for one in numbers] for name, numbers in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return None

    def write(self, listed: Topics) -> None:
        """Keep a listing, and remove those of yesterday; nothing where that cannot be done."""
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = self._file.with_name(f"{self._file.name}.{os.getpid()}")
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(listed, file)
            new.replace(self._file)
            for old in self._file.parent.glob("topics-*"):
                if time.time() - old.stat().st_mtime > _FORGOTTEN_S:
                    old.unlink()


OFFERS: Final = {
    "locations": locations,
    "topics_and_partitions": topics_and_partitions,
    "topics": topics,
    "partitions": partitions,
    "files": files,
}
"""What is offered for a parameter, by the name that it gives."""
