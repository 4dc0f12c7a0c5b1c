"""Completion: what a shell is offered for a command line, how long it waits, and what is kept of a listing."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from held_bodies import until

from segreader.cli import completing
from segreader.cli.main import cli, main
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.stores import MemoryStore

HUSH = "hush-77a9"
PROGRAM = Path(sys.executable).with_name("segreader")

Offer = Callable[[str], list[str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place ``prod`` with the topics ``orders`` (0 and 1), ``order-lines`` and ``clicks``, and a cache of its own."""
    tiered = tmp_path / "tiered"
    for topic, partition in (("orders", 0), ("orders", 1), ("order-lines", 0), ("clicks", 0)):
        write_local_tiered(tiered, topic, [SegmentBuilder(0).batch([b"a"])], partition=partition)
    (tmp_path / "segreader.toml").write_text(f'[prod]\nlocation = "{tiered}"\n[play]\nlocation = "s3://play/tiered"\n')
    monkeypatch.setenv("SEGREADER_CONFIG", str(tmp_path / "segreader.toml"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SEGREADER_AT", raising=False)
    monkeypatch.setattr(completing, "SECONDS", 60.0)
    return tmp_path


@pytest.fixture
def offered(home: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """What bash is offered for a line up to the cursor, in this process; what it completes itself by its kind."""

    def asked(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", "0")  # and as it was afterwards
        completer = completing._SHELLS["bash"](cli, {}, "segreader", completing.VARIABLE)
        lines = completer.complete().splitlines()
        return [text.removeprefix("plain,") for text in lines]

    return asked


def kept(home: Path) -> list[Path]:
    return sorted((home / "cache" / "segreader").glob("*"))


def test_commands_and_options_are_offered(offered: Offer) -> None:
    assert offered("segreader of") == ["offsets"]
    assert {"places", "plan"} == set(offered("segreader pl"))
    assert offered("segreader schemas pu") == ["pull"]
    assert offered("segreader cat --isol") == ["--isolation"]
    assert offered("segreader cat --isolation ") == ["read_committed", "read_uncommitted"]


def test_places_and_directories_are_offered_as_locations(offered: Offer) -> None:
    assert offered("segreader ls ") == ["prod", "play", "dir,"]
    assert offered("segreader ls pr") == ["prod", "dir,pr"]
    assert offered("segreader inspect /va") == ["file,/va"]


def test_topics_and_partitions_of_a_place_are_offered(offered: Offer) -> None:
    assert offered("segreader ls prod:") == ["prod:clicks", "prod:order-lines", "prod:orders"]
    assert offered("segreader cat prod:orders/") == ["prod:orders/0", "prod:orders/1"]
    assert offered("segreader cat prod or") == ["order-lines", "orders"]
    assert offered("segreader cat prod orders/1") == ["orders/1"]
    assert offered("segreader cat prod --topic cl") == ["clicks"]
    assert offered("segreader cat prod --topic=cl") == ["clicks"]
    assert offered("segreader cat prod orders --partition ") == ["0", "1"]
    assert offered("segreader cat prod --topic clicks --partition ") == ["0"]


def test_topics_of_a_directory_are_offered(offered: Offer, home: Path) -> None:
    assert offered(f"segreader cat {home / 'tiered'} cl") == ["clicks"]


def test_topics_of_segreader_at_are_offered_where_a_location_may_be(
    offered: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGREADER_AT", "prod")
    assert offered("segreader cat ord") == ["order-lines", "orders", "dir,ord"]
    assert offered("segreader cat --topic cl") == ["clicks"]


def test_options_of_the_jobs_are_offered(offered: Offer) -> None:
    assert offered("segreader backfill --output-l") == ["--output-layout"]
    assert offered("segreader backfill --to ") == ["parquet", "iceberg", "delta"]
    assert sorted(offered("segreader backfill verify --tar")) == ["--target", "--target-credentials", "--target-option"]


@pytest.mark.parametrize(
    "line",
    [
        "segreader ls none:",
        "segreader cat /no/such/place or",
        "segreader cat @urls.txt or",
        "segreader cat https://host/a or",
        "segreader cat kafka://b:9092 or",
    ],
)
def test_where_nothing_is_known_nothing_is_offered(offered: Offer, line: str) -> None:
    assert [one for one in offered(line) if not one.startswith("dir,")] == []


def test_a_listing_is_kept_for_a_minute_for_its_owner_alone(
    offered: Offer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert offered("segreader cat prod cl") == ["clicks"]
    (file,) = kept(home)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert json.loads(file.read_text()) == {"clicks": [0], "order-lines": [0], "orders": [0, 1]}

    shutil.rmtree(home / "tiered")
    assert offered("segreader cat prod cl") == ["clicks"]
    os.utime(file, (time.time() - 61, time.time() - 61))
    assert offered("segreader cat prod cl") == []


def test_a_listing_that_is_no_listing_is_made_again(offered: Offer, home: Path) -> None:
    offered("segreader cat prod cl")
    (file,) = kept(home)
    for text in ("", "[]", '{"orders": 3}', '{"orders": ["x"]}', "\0"):
        file.write_text(text)
        assert offered("segreader cat prod cl") == ["clicks"], text


def test_listings_of_yesterday_are_removed(offered: Offer, home: Path) -> None:
    old = home / "cache" / "segreader" / "topics-old.json"
    old.parent.mkdir(parents=True)
    old.write_text("{}")
    os.utime(old, (time.time() - 90_000, time.time() - 90_000))

    offered("segreader cat prod cl")
    assert old not in kept(home)
    assert len(kept(home)) == 1


def test_no_secret_is_kept(offered: Offer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def opened(location: str, *, storage_options: object, **_: object) -> tuple[MemoryStore, str]:
        seen.append(storage_options)
        return MemoryStore({}), ""

    monkeypatch.setattr("segreader.stored.source.open_store", opened)
    monkeypatch.setenv("HUSH", HUSH)
    (home / "segreader.toml").write_text(
        '[prod]\nlocation = "s3://logs"\nstorage_options = {key = "AK", secret = "env:HUSH"}\n'
    )
    offered("segreader cat prod cl")
    offered(f"segreader cat s3://other --storage-option key=AK --storage-option secret={HUSH} cl")
    assert len(seen) == 2
    for path in (home / "cache").rglob("*"):
        assert HUSH not in path.name
        assert path.is_dir() or HUSH not in path.read_text()


def test_no_command_of_a_place_is_run(offered: Offer, home: Path) -> None:
    (home / "segreader.toml").write_text(
        f'[prod]\nlocation = "s3://logs"\nstorage_options.token = "cmd:touch {home}/made"\n'
    )
    assert offered("segreader cat prod cl") == []
    assert not (home / "made").exists()
    assert kept(home) == []


def test_a_store_that_does_not_answer_is_waited_for_once_a_minute(
    offered: Offer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def opened(location: str, **_: object) -> tuple[MemoryStore, str]:
        asked.append(location)
        time.sleep(30)
        return MemoryStore({}), ""

    monkeypatch.setattr("segreader.stored.source.open_store", opened)
    monkeypatch.setattr(completing, "SECONDS", 0.05)
    assert offered("segreader cat play cl") == []
    assert until(lambda: bool(asked))  # a busy machine may begin to ask when nobody waits any more
    assert offered("segreader cat play cl") == []
    assert asked == ["s3://play/tiered"]


ASKED = {
    "bash": {"COMP_WORDS": "segreader cat prod:orders/"},
    "zsh": {"COMP_WORDS": "segreader cat prod:orders/", "COMP_CWORD": "2"},
    "fish": {"COMP_WORDS": "segreader cat prod:orders/", "COMP_CWORD": "prod:orders/"},
}
ANSWERS = {
    "bash": "plain,prod:orders/0\nplain,prod:orders/1\n",
    "zsh": "plain\nprod:orders/0\n_\nplain\nprod:orders/1\n_\n",
    "fish": "plain,prod:orders/0\nplain,prod:orders/1\n",
}


@pytest.mark.parametrize("shell", completing.SHELLS)
def test_a_shell_asks_the_program_by_variables(home: Path, offered: Offer, shell: str) -> None:
    offered("segreader cat prod ")  # a listing is kept: no time is part of this
    done = subprocess.run(
        [PROGRAM],
        env={**os.environ, completing.VARIABLE: f"{shell}_complete", **ASKED[shell]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.replace("\\:", ":"), done.stderr) == (0, ANSWERS[shell], "")


def test_a_mistake_in_the_file_of_places_offers_nothing_and_prints_nothing(home: Path) -> None:
    (home / "segreader.toml").write_text("[prod\n")
    variables = {completing.VARIABLE: "bash_complete", "COMP_WORDS": "segreader ls pr"}
    done = subprocess.run([PROGRAM], env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", completing.SHELLS)
def test_the_script_of_each_shell_asks_the_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert f"{completing.VARIABLE}={shell}_complete" in text
    assert issubclass(completing._SHELLS[shell], ShellComplete)
    binary = shutil.which(shell)
    if binary is not None:
        done = subprocess.run([binary, "-n"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


class Terminal:
    """A bash at a pseudo-terminal, to which one types."""

    def __init__(self, home: Path) -> None:
        (home / "bashrc").write_text('PS1="$ "\nbind "set bell-style none"\neval "$(segreader completion bash)"\n')
        path = f"{PROGRAM.parent}:{os.environ['PATH']}"
        self._end, other = pty.openpty()
        self._bash = subprocess.Popen(  # no fork: this process may have threads
            ["bash", "--noprofile", "--rcfile", str(home / "bashrc"), "-i"],
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=home,
            env={**os.environ, "PATH": path, "TERM": "dumb", "COLUMNS": "200"},
            start_new_session=True,
        )
        os.close(other)
        self._line = ""
        self.types("", until="$ ")

    def types(self, text: str, until: str) -> None:
        """Type, and wait until what is shown of the line has a text."""
        os.write(self._end, text.encode())
        limit = time.monotonic() + 120
        while until not in self._line:
            assert time.monotonic() < limit, f"{self._line!r} has no {until!r}"
            if select.select([self._end], [], [], 1)[0]:
                self._line += os.read(self._end, 4096).decode()

    def clears(self) -> None:
        """Begin a line anew."""
        self._line = ""
        self.types("\x15\x0c", until="$ ")

    def close(self) -> None:
        self._bash.kill()
        self._bash.wait()
        os.close(self._end)


@pytest.fixture
def terminal(home: Path, offered: Offer) -> Iterator[Terminal]:
    if shutil.which("bash") is None:
        pytest.skip("no bash on this machine")
    offered("segreader cat prod ")  # a listing is kept: no time is part of this
    made = Terminal(home)
    try:
        yield made
    finally:
        made.close()


def test_bash_completes_what_is_typed(terminal: Terminal) -> None:
    terminal.types("segreader offs\t", until="$ segreader offsets ")
    terminal.types("pr\t", until="$ segreader offsets prod ")
    terminal.types("ord\t", until="$ segreader offsets prod order")
    terminal.types("s/1\t", until="$ segreader offsets prod orders/1 ")
    terminal.clears()
    terminal.types("segreader cat prod:cl\t", until="$ segreader cat prod:clicks ")
    terminal.types("--isolation read_u\t", until="$ segreader cat prod:clicks --isolation read_uncommitted ")
    terminal.clears()
    terminal.types("segreader cat prod:orders/\t\t", until="orders/0  orders/1")
