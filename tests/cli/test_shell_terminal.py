"""``segreader shell`` at a terminal: a prompt that completes and remembers, and queries that an interrupt ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from corpus import CORPUS

REMOTE = CORPUS / "tv2" / "remote"
PROMPT = "segreader>"
_ESCAPES = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[=>]|\][^\x07]*\x07)")
_SLOWEST_S = 90.0
_SLOW = "select count(*) from {0} a, {0} b where a.value < b.value;".format("(select value from multi, range(100000))")


class Terminal:
    """A shell that a person sits at.

    Args:
        at: what it is opened over.
        state: the directory of its history.
    """

    def __init__(self, at: Path, state: Path, *options: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        # A session of its own whose terminal this is, so that Ctrl-C reaches it as from a keyboard.
        program = "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        program += "from segreader.cli.main import main; sys.exit(main())"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "shell", str(at), *options],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(state), "COLUMNS": "120"},
        )
        os.close(slave)
        self.seen = ""
        """What stands on the screen since the last ``type``, without its colours and moves."""

    def type(self, text: str) -> None:
        """Press keys."""
        self.seen = ""
        os.write(self._master, text.encode())

    def until(self, is_there: Callable[[str], bool]) -> str:
        """Read until something is on the screen; returns all that is."""
        deadline = time.monotonic() + _SLOWEST_S
        while not is_there(self.seen):
            assert time.monotonic() < deadline, self.seen
            if not select.select([self._master], [], [], 0.1)[0]:
                continue
            try:
                found = os.read(self._master, 1 << 16)
            except OSError:  # it has closed its terminal
                break
            if b"\x1b[6n" in found:  # it asks where the cursor is
                os.write(self._master, b"\x1b[1;1R")
            self.seen += _ESCAPES.sub(b"", found).decode(errors="replace")
        assert is_there(self.seen), self.seen
        return self.seen

    def asks(self, text: str, answer: str) -> str:
        """Type a statement; returns the screen when the answer is there and it prompts again."""
        self.type(f"{text}\r")
        return self.until(lambda seen: PROMPT in seen.rpartition(answer)[2] if answer in seen else False)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    terminals: list[Terminal] = []

    def begin(at: Path = REMOTE, *options: str) -> Terminal:
        terminals.append(Terminal(at, tmp_path / "state", *options))
        terminals[-1].until(lambda seen: PROMPT in seen)
        return terminals[-1]

    yield begin
    for one in terminals:
        one.close()


def test_a_topic_is_completed_and_a_statement_goes_over_lines(opened: Callable[..., Terminal]) -> None:
    terminal = opened()
    terminal.type("select count(*) as records from mul\t")
    terminal.until(lambda seen: "ti" in seen.partition("mul")[2])
    terminal.type("\r")
    terminal.until(lambda seen: "...>" in seen)
    shown = terminal.asks("where partition = 1;", "1 row, ")
    assert "3021" in shown
    assert re.search(r"1 row, [0-9.]+ s, read 440 kB", shown)


def test_an_interrupt_ends_the_query_and_not_the_shell(opened: Callable[..., Terminal]) -> None:
    terminal = opened()
    terminal.type(f"{_SLOW}\r")
    terminal.until(lambda seen: "━" in seen)  # the bar of a query that runs
    terminal.type("\x03")
    terminal.until(lambda seen: "interrupted" in seen and PROMPT in seen.rpartition("interrupted")[2])
    assert "42" in terminal.asks("select 6 * 7 as answer;", "1 row, ")
    terminal.type("select 1 -- forgotten\x03")
    terminal.until(lambda seen: PROMPT in seen)
    assert "43" in terminal.asks("select 43 as answer;", "1 row, ")


def test_an_error_is_one_line_and_the_shell_goes_on(opened: Callable[..., Terminal]) -> None:
    terminal = opened()
    shown = terminal.asks("select valu from multi;", "Candidate bindings")
    assert (
        'error: Binder Error: Referenced column "valu" not found in FROM clause. Candidate bindings: "value"' in shown
    )
    assert "Did you mean .topics?" in terminal.asks(".tpics", "Did you mean")
    assert "42" in terminal.asks("select 6 * 7 as answer;", "1 row, ")


def test_statements_are_remembered_for_their_owner_alone_and_no_secrets(
    opened: Callable[..., Terminal], tmp_path: Path
) -> None:
    terminal = opened()
    terminal.asks("select 41 as remembered;", "1 row, ")
    terminal.asks("select 'token=hunter2' as secret;", "1 row, ")
    terminal.type("\x04")
    assert terminal.process.wait(_SLOWEST_S) == 0
    history = tmp_path / "state" / "segreader" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert stat.S_IMODE(history.parent.stat().st_mode) == 0o700
    assert "select 41 as remembered;" in history.read_text()
    assert "hunter2" not in history.read_text()
    again = opened()
    again.type("\x1b[A")  # up
    assert "select 41 as remembered;" in again.until(lambda seen: "remembered" in seen)


def test_quit_leaves_with_the_code_of_what_was_found(opened: Callable[..., Terminal]) -> None:
    terminal = opened()
    terminal.type(".quit\r")
    assert terminal.process.wait(_SLOWEST_S) == 0


def test_a_closed_terminal_ends_the_shell(opened: Callable[..., Terminal]) -> None:
    terminal = opened()
    terminal.process.send_signal(signal.SIGHUP)
    assert terminal.process.wait(_SLOWEST_S) != 0
