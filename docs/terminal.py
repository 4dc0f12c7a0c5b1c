"""A command of segreader in a pseudo-terminal: what somebody sees of it, and a picture of that."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_FONTS: Final = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True)
class Shown:
    """What a command wrote to its terminal.

    Args:
        code: its exit code.
        raw: with the codes of colours.
    """

    code: int
    raw: str

    @property
    def text(self) -> str:
        """Without the codes of colours."""
        return _STYLE.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        """Each line without spaces at its end."""
        return [line.rstrip() for line in self.text.splitlines()]


def in_terminal(
    *arguments: object,
    columns: int = 100,
    lines: int = 40,
    environment: Mapping[str, str] | None = None,
    place: Path | None = None,
    piped: str | None = None,
) -> Shown:
    """Run ``segreader`` where stdin, stdout and stderr are one terminal, which is at its end when it ends.

    Args:
        columns, lines: of the terminal.
        environment: variables besides those of this process; of colours and sizes only these count.
        place: the directory to run it in; that of this process by default.
        piped: what stdin gives in place of the terminal.
    """
    leave_out = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}
    given = {name: value for name, value in os.environ.items() if name not in leave_out}
    given |= {"TERM": "xterm-256color", **(environment or {})}
    command = [sys.executable, "-m", "segreader.cli.main", *map(str, arguments)]
    terminal, other_end = pty.openpty()
    fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    running = subprocess.Popen(
        command,
        stdin=other_end if piped is None else subprocess.PIPE,
        stdout=other_end,
        stderr=other_end,
        env=given,
        start_new_session=True,
        cwd=place,
    )
    os.close(other_end)
    if running.stdin is not None:
        with running.stdin:
            running.stdin.write((piped or "").encode())
    written = bytearray()
    try:
        while piece := os.read(terminal, 1 << 16):
            written += piece
    except OSError:  # how Linux ends the output of a terminal
        pass
    os.close(terminal)
    return Shown(running.wait(), written.decode().replace("\r\n", "\n"))


def picture_of(commands: Mapping[str, Shown], columns: int, name: str, prompt: str = "$") -> str:
    """An SVG of a terminal in which commands were typed one after another: one file, no font or image from elsewhere.

    Args:
        commands: what was typed, and what came.
        columns: of the terminal.
        name: of the picture, which its parts are named by: the same commands give the same picture.
        prompt: before each.
    """
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for typed, shown in commands.items():
        console.print(Text.assemble((f"{prompt} ", "bold green"), typed), soft_wrap=True)
        console.print(Text.from_ansi(shown.raw), end="")
    theme = TerminalTheme(
        (24, 26, 31),
        (215, 218, 224),
        [
            (46, 52, 64),
            (229, 100, 100),
            (120, 190, 110),
            (226, 180, 90),
            (97, 150, 230),
            (190, 120, 220),
            (80, 190, 200),
            (215, 218, 224),
        ],
    )
    made = console.export_svg(title="", theme=theme, unique_id=name)
    made = re.sub(r"@font-face \{.*?\}\s*", "", made, flags=re.DOTALL)
    made = re.sub(r"<!--.*?-->\s*", "", made, flags=re.DOTALL)
    made = re.sub(r"font-family: [^;]*;", f"font-family: {_FONTS};", made)
    return "\n".join(line.rstrip() for line in made.splitlines()) + "\n"
