"""Tables for people: a line a row, numbers to the right, as wide as the terminal at most.

On a terminal text is cut (``…``), numbers and times never are: a column for which there is no room is left out, the
last one first, and the line below the table says which. What goes into a pipe or a file is not cut and has no colours.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import IO, Final, NamedTuple

from segreader.cli.output import printable
from segreader.format.rows import ENCODINGS
from segreader.values import dataclass

_GAP: Final = "  "
_LEAST_TEXT: Final = 12
"""Characters that a cut column keeps."""

_MOST_PADDING: Final = 60
"""Characters up to which text is padded in a pipe: one long value does not push the others out of sight."""

_PAGE_ROWS: Final = 200
"""Rows by which the widths of a table in a pipe are chosen, as they come."""

_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Marked(NamedTuple):
    """The text of a cell and its style: bold, dim, red, green, yellow or cyan."""

    text: str
    style: str


Cell = str | Marked


class Fit(Enum):
    """What a column holds, and so how it is fitted in."""

    NUMBER = "to the right, never cut"
    FIXED = "to the left, never cut"
    TEXT = "to the left, cut where there is no room"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column and its name."""

    name: str
    fit: Fit = Fit.TEXT


def number(name: str) -> TableColumn:
    """A column of numbers."""
    return TableColumn(name, Fit.NUMBER)


def fixed(name: str) -> TableColumn:
    """A column of times or words that are of no use when they are cut."""
    return TableColumn(name, Fit.FIXED)


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a table goes.

    Args:
        file: what it is written to.
        width: characters of a line; ``None`` where nothing is cut.
        height: lines of a screenful; ``None`` where there are no screens.
        has_colour: whether styles are shown.
    """

    file: IO[str]
    width: int | None = None
    height: int | None = None
    has_colour: bool = False

    @classmethod
    def of(cls, file: IO[str] | None = None) -> Screen:
        """The screen behind a text file, by default stdout: ``COLUMNS``, ``LINES``, ``NO_COLOR`` and ``TERM`` count."""
        text = sys.stdout if file is None else file
        if not text.isatty():
            return cls(text)
        size = shutil.get_terminal_size()
        has_colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(text, max(20, size.columns), max(5, size.lines), has_colour)

    def styled(self, text: str, style: str) -> str:
        """Text in a style, where styles are shown."""
        return f"\033[{_CODES[style]}m{text}\033[0m" if self.has_colour and style and text else text

    def line(self, text: str, style: str = "") -> None:
        """Write one line as it is: a remark, which may be longer than the screen is wide."""
        self.file.write(self.styled(text, style) + "\n")


def print_table(
    columns: Sequence[TableColumn],
    rows: Iterable[Sequence[Cell]],
    *,
    total: Sequence[Cell] = (),
    screen: Screen | None = None,
) -> None:
    """Print a table whose rows are all known, without the columns in which no row says anything.

    Args:
        total: the last line, which may be shorter than the others.
    """
    screen = screen or Screen.of()
    lines = [[_plain(cell) for cell in row] for row in rows]
    ends = [_plain(cell) for cell in total] + [Marked("", "")] * (len(columns) - len(total))
    used = [at for at in range(len(columns)) if any(line[at].text for line in lines)] or list(range(len(columns)))
    shown, widths = _chosen([columns[at] for at in used], _widths(columns, used, [*lines, ends]), screen.width)
    kept = used[: len(shown)]
    writer = _Lines(shown, widths, screen)
    writer.head()
    for line in lines:
        if len(kept) == len(used) or any(line[at].text for at in kept):
            writer.row([line[at] for at in kept])
    if total:
        writer.row([Marked(ends[at].text, "bold") for at in kept])
    if len(kept) < len(used):
        left_out = ", ".join(columns[at].name for at in used[len(kept) :])
        screen.line(f"no room for: {left_out}", "dim")


def _widths(columns: Sequence[TableColumn], used: Sequence[int], lines: Sequence[Sequence[Marked]]) -> list[int]:
    return [max(cells(columns[at].name), *(cells(line[at].text) for line in lines)) for at in used]


class StreamedTable:
    """A table whose rows come bit by bit: a head for each screenful, and columns that stay where they are.

    Widths are chosen by the first rows. A column of numbers may still become wider, none becomes narrower.

    Args:
        indent: characters before each line, for what belongs to the lines of another table.
    """

    def __init__(self, columns: Sequence[TableColumn], screen: Screen | None = None, *, indent: int = 0) -> None:
        self._columns, self._indent = list(columns), indent
        self._screen = screen or Screen.of()
        self._shown = len(self._columns)
        self._widths: list[int] = []
        self._left = 0
        """Rows until the next head."""

    @property
    def longest(self) -> int | None:
        """Characters of a cell that can be of use; ``None`` where nothing is cut."""
        return self._screen.width

    def add(self, rows: Iterable[Sequence[Cell]]) -> None:
        """Print some more rows."""
        held: list[list[Marked]] = []
        for row in rows:
            held.append([_plain(cell) for cell in row])
            if len(held) >= (self._left or self._page):
                self._print(held)
                held = []
        if held:
            self._print(held)

    def passed(self, rows: int) -> None:
        """So many lines of other tables were printed: the head leaves the screen so much sooner."""
        self._left = max(0, self._left - rows)

    @property
    def _room(self) -> int | None:
        return None if self._screen.width is None else self._screen.width - self._indent

    @property
    def _page(self) -> int:
        return _PAGE_ROWS if self._screen.height is None else self._screen.height - 2

    def _print(self, rows: Sequence[Sequence[Marked]]) -> None:
        is_first = not self._widths
        found = _widths(self._columns, range(len(self._columns)), rows)
        if is_first:
            self._choose(found)
        else:
            grows = [column.fit is not Fit.TEXT for column in self._columns]
            self._widths = [
                max(old, new) if may else old for old, new, may in zip(self._widths, found, grows, strict=False)
            ]
            if self._room is not None:
                _shrink(self._columns[: self._shown], self._widths, self._room)
        writer = _Lines(self._columns[: self._shown], self._widths, self._screen, self._indent)
        if not self._left:
            if is_first or self._screen.height is not None:
                writer.head()
            self._left = self._page
        for row in rows:
            writer.row(row[: self._shown])
        self._left = max(0, self._left - len(rows))

    def _choose(self, found: list[int]) -> None:
        width = self._room
        if width is None:
            limits = [
                _MOST_PADDING if column.fit is Fit.TEXT else size
                for column, size in zip(self._columns, found, strict=True)
            ]
            self._widths = [min(size, limit) for size, limit in zip(found, limits, strict=True)]
            return
        shown, self._widths = _chosen(self._columns, found, width)
        self._shown = len(shown)
        if self._shown < len(self._columns):
            left_out = ", ".join(column.name for column in self._columns[self._shown :])
            self._screen.line(f"no room for: {left_out}", "dim")
        soft = [at for at, column in enumerate(shown) if column.fit is Fit.TEXT]
        spare = width - sum(self._widths) - len(_GAP) * (len(self._widths) - 1)
        for at in soft:  # later rows may need what these do not
            more = min(spare, max(0, _LEAST_TEXT - self._widths[at]))
            self._widths[at] += more
            spare -= more
        if soft:
            self._widths[max(soft, key=lambda at: self._widths[at])] += spare


class _Lines:
    """Writes rows in columns of given widths."""

    def __init__(self, columns: Sequence[TableColumn], widths: Sequence[int], screen: Screen, indent: int = 0) -> None:
        self._columns, self._widths, self._screen, self._indent = columns, widths, screen, indent

    def head(self) -> None:
        self.row([Marked(column.name, "dim") for column in self._columns])

    def row(self, row: Sequence[Marked]) -> None:
        parts, blank = [], " " * self._indent
        room = None if self._screen.width is None else self._screen.width - self._indent
        for column, width, cell in zip(self._columns, self._widths, row, strict=True):
            text = cell.text
            if room is not None:
                if room <= 0:  # a number has become so wide that it pushes the last columns out
                    break
                text = cut(text, min(width, room))
                room -= width + len(_GAP)
            padding = " " * (width - cells(text))
            before = blank + (padding if column.fit is Fit.NUMBER else "")
            if text:
                parts.append(before + self._screen.styled(text, cell.style))
                blank = ("" if column.fit is Fit.NUMBER else padding) + _GAP
            else:
                blank += " " * width + _GAP
        self._screen.file.write("".join(parts) + "\n")


def _chosen(
    columns: Sequence[TableColumn], found: Sequence[int], width: int | None
) -> tuple[list[TableColumn], list[int]]:
    """The columns for which there is room, and their widths."""
    if width is None:
        return list(columns), list(found)
    for count in range(len(columns), 0, -1):
        widths = list(found[:count])
        if _shrink(columns[:count], widths, width):
            break
    return list(columns[:count]), widths


def _shrink(columns: Sequence[TableColumn], widths: list[int], width: int) -> bool:
    """Make columns of text narrower, the widest one first, until all fit; whether they do."""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    soft = [at for at, column in enumerate(columns) if column.fit is Fit.TEXT and widths[at] > _LEAST_TEXT]
    while excess > 0 and soft:
        widest = max(soft, key=lambda at: widths[at])
        next_one = max([widths[at] for at in soft if widths[at] < widths[widest]], default=_LEAST_TEXT)
        step = min(excess, widths[widest] - next_one)
        widths[widest] -= step
        excess -= step
        soft = [at for at in soft if widths[at] > _LEAST_TEXT]
    if excess > 0 and len(widths) == 1:
        widths[0] = width
        return True
    return excess <= 0


def _plain(cell: Cell) -> Marked:
    return cell if isinstance(cell, Marked) else Marked(cell, "")


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """A text of at most so many columns, with ``…`` where something is left out."""
    if cells(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + "…"
    kept, room = [], width - 1
    for one in text:
        room -= cells(one)
        if room < 0:
            break
        kept.append(one)
    return "".join(kept) + "…"


_LOOKS_LIKE_MORE: Final = re.compile(r'NULL|0x[0-9a-f]*|".*|\s.*|.*\s', re.DOTALL)
"""Text that is quoted, because it would look like NULL, an empty text or bytes."""


def text_cell(text: str | None, longest: int | None = None) -> Cell:
    """Text as a cell: ``NULL`` where there is none, ``""`` where it is empty, and in quotes where it looks like that.

    Args:
        longest: characters that can be of use; all by default.
    """
    if text is None:
        return Marked("NULL", "dim")
    if not text:
        return Marked('""', "dim")
    if not _LOOKS_LIKE_MORE.fullmatch(text):
        return printable(text, longest)
    return printable(json.dumps(text if longest is None else text[:longest], ensure_ascii=False), longest)


def bytes_cell(data: bytes | None, encoding: str = "auto", longest: int | None = None) -> Cell:
    """Bytes as a cell: as ``text_cell`` where they are text, else in hexadecimal, as in ``0x00ff``.

    Args:
        encoding: a name of ``ENCODINGS``; ``auto`` decides by the bytes.
        longest: as there.
    """
    if not data:
        return text_cell(None if data is None else "", longest)
    text, used = ENCODINGS[encoding](data)
    if encoding != "auto":
        return printable(text, longest)
    if used != "base64":
        return text_cell(text, longest)
    shown = data if longest is None else data[: longest // 2 + 1]
    return printable(f"0x{shown.hex()}", longest)


_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_MOST_SHOWN: Final = 100_000
"""Numbers of a column have at most so many units, or the next larger unit is taken."""


@dataclass(frozen=True, slots=True)
class ByteUnit:
    """The one unit of a column of bytes, ``1024 ** power`` of them."""

    power: int = 0

    @classmethod
    def of(cls, sizes: Iterable[float | None]) -> ByteUnit:
        """The largest unit in which the smallest size is not lost, unless the largest one would be unreadable."""
        known = [size for size in sizes if size]
        smallest, largest = min(known, default=0), max(known, default=0)
        power = 0
        while power + 1 < len(_UNITS):
            following = 1024 ** (power + 1)
            is_kept = smallest >= following / 10 and largest >= following
            if not is_kept and largest < _MOST_SHOWN * 1024**power:
                break
            power += 1
        return cls(power)

    @property
    def name(self) -> str:
        """As in ``KiB``."""
        return _UNITS[self.power]

    def text(self, size: float | None) -> str:
        """So many bytes in this unit; nothing for ``None``."""
        if size is None:
            return ""
        amount = size / 1024**self.power
        if not self.power:
            return f"{amount:,.0f}"
        return "<0.1" if 0 < amount < 0.05 else f"{amount:,.1f}"


def print_facts(facts: Iterable[tuple[str, str]], screen: Screen | None = None) -> None:
    """Print names and their values, a line each."""
    screen, lines = screen or Screen.of(), list(facts)
    width = max((cells(name) for name, _ in lines), default=0)
    for name, value in lines:
        blank = " " * (width - cells(name))
        screen.file.write(f"{screen.styled(name, 'dim')}{blank}{_GAP}{value}".rstrip() + "\n")
