"""A command of segreader in a pseudo-terminal of a given size: what somebody sees, with and without its colours."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


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
    *arguments: object, columns: int = 100, lines: int = 40, environment: Mapping[str, str] | None = None
) -> Shown:
    """Run ``segreader`` where stdin, stdout and stderr are one terminal, which is at its end when it ends."""
    leave_out = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}
    given = {name: value for name, value in os.environ.items() if name not in leave_out}
    given |= {"TERM": "xterm-256color", **(environment or {})}
    command = [sys.executable, "-m", "segreader.cli.main", *map(str, arguments)]
    terminal, other_end = pty.openpty()
    fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    running = subprocess.Popen(
        command, stdin=other_end, stdout=other_end, stderr=other_end, env=given, start_new_session=True
    )
    os.close(other_end)
    written = bytearray()
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # how Linux ends the output of a terminal
            break
        if not piece:
            break
        written += piece
    os.close(terminal)
    return Shown(running.wait(), written.decode().replace("\r\n", "\n"))
