"""Print results: rows as JSON or in tables on stdout, everything else on stderr; bytes as text."""

from __future__ import annotations

import errno
import io
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click

from segreader.errors import OptionError, shown_count
from segreader.format.rows import ENCODINGS

if TYPE_CHECKING:
    from rich.console import Console


Row = Mapping[str, Any]
_F = TypeVar("_F", bound=Callable[..., Any])
_Row = TypeVar("_Row", bound=Row)

_WIDTH_OF_A_PIPE = 160


def output_option(*formats: str) -> Callable[[_F], _F]:
    """The option ``-o``: one of ``formats``; without it a table on a terminal, and ndjson in a pipe.

    ``jsonl`` is taken for ``ndjson``.
    """

    def default(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
        if value == "jsonl":
            return "ndjson"
        is_file = bool(context.params.get("output_file"))
        return value or ("table" if is_terminal() and not is_file else "ndjson")

    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice([*formats, "jsonl"] if "ndjson" in formats else formats),
        callback=default,
        help="How to print. Default: table on a terminal, ndjson (one JSON object a line; jsonl is another name of it) "
        "in a pipe.",
    )


_BINARY = ("parquet", "arrow")

output_file_option = click.option(
    "--output-file",
    type=click.Path(dir_okay=False),
    is_eager=True,
    metavar="FILE",
    help="Write to FILE instead of stdout.",
)


def require_place(form: str, output_file: str | None, *, has_encoding: bool) -> None:
    """Refuse a binary format on a terminal, or with an encoding, which has no effect on it.

    Raises:
        click.UsageError: it says which.
    """
    if form not in _BINARY:
        return
    if has_encoding:
        raise click.UsageError(f"An encoding has no effect with {form}, which keeps bytes as bytes. Leave it out")
    if output_file is None and is_terminal():
        raise click.UsageError(f"{form} is not for a terminal. Name an --output-file, or redirect stdout")


def debug_option(command: _F) -> _F:
    """The option ``--debug``, which every command and the program itself take."""

    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        context.meta["segreader.debug"] = context.meta.get("segreader.debug", False) or value

    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=remember, help="Show the traceback of an error."
    )(command)


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def stdout() -> IO[bytes]:
    """Stdout for bytes. JSON is UTF-8, whatever the locale says."""
    return sys.stdout.buffer


class _ClosedOutput(io.RawIOBase):
    """Stands for a closed stdout: every write to it is an error."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not data:
            return 0
        raise OptionError("standard output is closed", hint="Redirect it to a file, or to /dev/null")


def replace_closed_stdout() -> None:
    """Make each write to a closed stdout an error: Python has no stream for it."""
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(_ClosedOutput(), "utf-8", write_through=True)


_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: BaseException) -> bool:
    """Whether an error says that there is no room for more."""
    return isinstance(error, OSError) and error.errno in _FULL


@contextmanager
def named_output(path: str | None) -> Iterator[None]:
    """Add the name of the output to an error that it is full: the system gives none.

    Args:
        path: of the file that is written; ``None``: stdout.
    """
    try:
        yield
    except OSError as error:
        if is_full(error) and error.filename is None:
            error.filename = "standard output" if path is None else path
        raise


@contextmanager
def ignored_stderr() -> Iterator[None]:
    """Continue if stderr cannot be written to."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


def say(message: str) -> None:
    """Tell the person at the terminal; never part of the result. If stderr is full or closed, this does nothing."""
    with ignored_stderr():
        click.echo(message, err=True)


def shown_time(timestamp_ms: int | None, timespec: str = "milliseconds") -> str:
    """A time as every command spells it, ``2026-11-01T00:00:00.000Z``, which options take, too.

    The number where the calendar does not reach, nothing for none.

    Args:
        timespec: ``seconds`` where milliseconds say nothing, as in the range of a topic.
    """
    from datetime import UTC, datetime, timedelta

    if timestamp_ms is None:
        return ""
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


def shown_number(value: int | None) -> str:
    """A number for people; nothing for none."""
    return "" if value is None else str(value)


def shown_size(size: int) -> str:
    """A size in bytes for people, in binary units."""
    number, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{size} B" if unit == "B" else f"{number:.1f} {unit}"


def shown_partitions(rows: Iterable[tuple[str, str | None]]) -> list[str]:
    """Names of partitions, each with its topic id where two have one name.

    Args:
        rows: such as ``orders-0``, and the topic id.
    """
    named = list(rows)
    counts = Counter(name for name, _ in named)
    return [name if counts[name] == 1 or topic_id is None else f"{name} {topic_id}" for name, topic_id in named]


def console(file: IO[str] | None = None) -> Console:
    """A rich console on a file, by default stdout."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            """Rich would leave with exit code 1; the program has one place for that."""
            raise BrokenPipeError

    text = sys.stdout if file is None else file
    return Piped(file=text, width=None if text.isatty() else _WIDTH_OF_A_PIPE, highlight=False, markup=False)


def json_line(row: Row) -> str:
    """One row as compact JSON, without a line end."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def write_json_rows(rows: Iterable[Row], form: str) -> None:
    """Print rows as they come: ``ndjson`` has one a line, ``json`` is an array of the same lines."""
    with json_rows(stdout(), form) as write:
        end = JSON_ENDS[form]
        for row in rows:
            write(json_line(row).encode(errors="backslashreplace") + end)  # a name of a file may be no text


def print_rows(rows: Iterable[_Row], form: str, print_table: Callable[[list[_Row]], None]) -> None:
    """Print rows as JSON, as they come, or as the table that ``print_table`` makes of all of them."""
    if form == "table":
        print_table(list(rows))
    else:
        write_json_rows(rows, form)


JSON_ENDS = {"ndjson": b"\n", "json": b",\n"}
"""What each row ends with, which ``json_rows`` is given; of the last row in an array it leaves that out."""


@contextmanager
def json_rows(file: IO[bytes], form: str) -> Iterator[Callable[[bytes], object]]:
    """What takes the text of some rows, each with its end. An array is closed even when an error ends the rows: what
    came before stays JSON.
    """
    if form == "ndjson":
        yield file.write
        return
    end, lead = JSON_ENDS[form], b"[\n"

    def write(rows: bytes) -> None:
        nonlocal lead
        if rows:
            file.write(lead)
            file.write(memoryview(rows)[: -len(end)])
            lead = end

    try:
        yield write
    except BrokenPipeError:
        raise
    except BaseException:
        file.write(b"[]\n" if lead == b"[\n" else b"\n]\n")
        raise
    file.write(b"[]\n" if lead == b"[\n" else b"\n]\n")


def encoding_options(command: _F) -> _F:
    """The options ``--key-encoding`` and ``--value-encoding``."""
    for name, what in (("value", "values and header values"), ("key", "keys")):
        command = click.option(
            f"--{name}-encoding",
            type=click.Choice(list(ENCODINGS)),
            show_default="auto",
            help=f"How {what} become text. auto: UTF-8 where they are printable text, else base64 with a field "
            f"that says so. utf8: what is not UTF-8 becomes U+FFFD.",
        )(command)
    return command


def printable(text: str, width: int | None = 60) -> str:
    """Text that is safe and short enough for a table: what is not printable is escaped, what is too long is cut.

    Args:
        width: characters; ``None`` where nothing is cut.
    """
    given = text if width is None else text[: width + 1]
    shown = given if given.isprintable() else "".join(map(_escaped, given))
    return shown if width is None or len(shown) <= width else shown[: width - 1] + "…"


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


if TYPE_CHECKING:
    from rich.progress import Progress, Task

Look = Callable[[], tuple[int, int, int | None]]
"""Bytes read so far, bytes in all, and records so far where they are counted."""

PATIENCE_S = 2.0
"""Reads shorter than this show nothing."""

_WINDOW_S = 10.0
"""The seconds whose speed counts."""

_STALLED_S = 3.0
"""Without progress for this many seconds, no time left is shown."""


@contextmanager
def progress(
    look: Look, *, limit: int | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Gives a function to call now and then while something is read; it draws a bar where stderr is a terminal.

    The bar appears after two seconds, and is at its end when the context is left.

    Args:
        look: returns the progress of the read.
        limit: so many records end the read.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda: None
        return
    began, bar = clock(), _Bar(look, limit, clock)

    def tick() -> None:
        if clock() - began >= PATIENCE_S:
            bar.show()

    is_whole = False
    try:
        yield tick
        is_whole = True
    finally:
        bar.end(is_whole)


class Pace:
    """How fast an amount grows, by the last ten seconds. Seconds in which nothing comes count, too.

    Args:
        clock: gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque([(clock(), 0)])

    def see(self, amount: int) -> None:
        """So much there is now."""
        if amount == self._seen[-1][1]:
            return
        now = self._clock()
        self._seen.append((now, amount))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        """The speed."""
        (began, first), (_, last) = self._seen[0], self._seen[-1]
        return (last - first) / max(self._clock() - began, 0.001)

    @property
    def idle_s(self) -> float:
        """For how long nothing has come."""
        return self._clock() - self._seen[-1][0]

    def left(self, whole: int) -> str:
        """The time left as text; without progress, for how long there was none; empty at the end."""
        rest = whole - self._seen[-1][1]
        if rest <= 0:
            return ""
        if self.idle_s >= _STALLED_S or not self.per_second:
            return f"nothing new for {shown_duration(self.idle_s)}"
        seconds = rest / self.per_second
        return f"{shown_duration(seconds)} left" if seconds >= 1 else ""


def shown_duration(seconds: float) -> str:
    """A time span for people, such as ``3 min 20 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class _Bar:
    """One bar over one read, drawn only once it is shown."""

    def __init__(self, look: Look, limit: int | None, clock: Callable[[], float]) -> None:
        self._look, self._limit, self._clock = look, limit, clock
        self._bytes, self._steps = Pace(clock), Pace(clock)
        self._began = clock()
        self._at: tuple[int, int, int | None] = (0, 0, None)
        self._is_over = False
        self._drawn: tuple[Progress, Any] | None = None

    def show(self) -> None:
        """Draw the bar at the current progress."""
        self._at = done, whole, records = self._look()
        self._bytes.see(done)
        self._steps.see(done if self._limit is None else min(records or 0, self._limit))
        if self._drawn is None:
            self._drawn = self._begin()
        drawn, task = self._drawn
        if self._limit is None:
            drawn.update(task, completed=min(done, whole), total=whole)
        else:
            drawn.update(task, completed=min(records or 0, self._limit), total=self._limit)

    def end(self, is_whole: bool) -> None:
        """Leave the last state on the terminal: a full bar where everything was read."""
        if self._drawn is None:
            return
        self.show()
        self._is_over = True
        drawn, task = self._drawn
        if is_whole:
            drawn.update(task, completed=1, total=1)
        drawn.stop()

    def text(self) -> str:
        """The text beside the bar now."""
        done, whole, records = self._at
        parts = [f"{shown_size(done)} of {shown_size(whole)}" if self._limit is None else shown_size(done)]
        parts.append(f"{self._bytes.per_second / (1 << 20):,.1f} MiB/s")
        if records is not None:
            parts.append(
                shown_count(records, "record")
                if self._limit is None
                else f"{records:,} of {shown_count(self._limit, 'record')}"
            )
        if self._is_over:
            parts.append(f"in {shown_duration(self._clock() - self._began)}")
        else:
            parts.append(self._steps.left(whole if self._limit is None else self._limit))
        return "  ".join(filter(None, parts))

    def _begin(self) -> tuple[Progress, Any]:
        from rich.progress import BarColumn, Progress, ProgressColumn
        from rich.table import Column
        from rich.text import Text

        bar = self

        class StandingColumn(ProgressColumn):
            """The text of the bar, made anew each time it is drawn: time passes also where nothing comes."""

            def render(self, task: Task) -> Text:
                return Text(bar.text(), no_wrap=True, overflow="ellipsis")

        drawn = Progress(
            BarColumn(bar_width=20),
            StandingColumn(Column(no_wrap=True, overflow="ellipsis")),
            console=console(sys.stderr),
            refresh_per_second=4,
        )
        drawn.start()
        return drawn, drawn.add_task("read", total=None)
