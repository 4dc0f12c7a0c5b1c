"""Makes the pictures of the documentation: what a program or a terminal shows of a bucket that is built for it.

python -m docs.make_pictures           # all of them
python -m docs.make_pictures report    # one

The report is photographed by a browser without a window: chromium, google-chrome, or the one that $CHROME names.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from docs.terminal import Shown, in_terminal, picture_of
from segreader.format.compression import Codec
from segreader.plan.cost import parse_prices
from segreader.report.model import read_report
from segreader.report.page import page_of
from segreader.stored.source import LocationSource
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, local_tiered_files, write_files
from segreader.testing.records import ProducerRecord

IMAGES: Final = Path(__file__).parent / "images"
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_BEGIN_MS: Final = 1_761_955_200_000
_WORDS: Final = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "indigo", "joker", "maple")


def browser() -> str | None:
    """The browser that takes pictures; ``None`` where there is none."""
    named = os.environ.get("CHROME")
    return named or next((path for name in _BROWSERS if (path := shutil.which(name)) is not None), None)


def photograph(page: Path, picture: Path, width: int, height: int, *, is_dark: bool = False) -> None:
    """Write what a browser shows of a page as PNG.

    Args:
        width, height: of its window, in pixels.
        is_dark: as for someone who prefers dark pages.

    Raises:
        RuntimeError: there is no browser, or it took no picture.
    """
    program = browser()
    if program is None:
        raise RuntimeError("no browser here: install chromium, or name one in $CHROME")
    with TemporaryDirectory() as home:
        done = subprocess.run(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--blink-settings=preferredColorScheme=" + ("0" if is_dark else "1"),
                f"--user-data-dir={home}",
                f"--window-size={width},{height}",
                f"--screenshot={picture}",
                page.resolve().as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
    if done.returncode or not picture.exists():
        raise RuntimeError(f"{program} took no picture: {done.stderr[-500:]}")


def make_bucket(root: Path) -> None:
    """A bucket with three weeks of three topics, in which a log was lost, a branch discarded and a file forgotten."""
    dice = random.Random(20)
    for partition in range(3):
        segments = _grown(SegmentBuilder(), dice, days=21, records=60, phase=partition)
        files = local_tiered_files("orders", segments, partition=partition)
        if partition == 1:
            [lost] = (name for name in files if f"{segments[12].base_offset:020}-" in name and name.endswith(".log"))
            del files[lost]
        if partition == 2:
            directory = next(iter(files)).partition("/")[0]
            files[f"{directory}/notes.txt"] = b"looked at by hand\n"
        write_files(root, files)
    kept = _grown(SegmentBuilder(), dice, days=9, records=25)
    lost_branch = _grown(kept[-1].roll().new_leader(1), dice, days=3, records=25, begin=9)
    alive = _grown(kept[-1].roll().new_leader(2), dice, days=12, records=25, begin=9)
    write_files(root, local_tiered_files("payments", [*kept, *alive]))
    write_files(root, _uploaded_again(local_tiered_files("payments", lost_branch)))
    write_files(root, local_tiered_files("audit", _grown(SegmentBuilder(), dice, days=18, records=4, begin=3)))


def _uploaded_again(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same segments with other ids: each leader that uploads from an offset gives its own."""
    named = ((*name.rpartition("/"), data) for name, data in files.items())
    return {
        f"{directory}/{file[:21]}{kafka_uuid('again', file[:20])}{file[43:]}": data
        for directory, _, file, data in named
    }


def _grown(
    first: SegmentBuilder, dice: random.Random, *, days: int, records: int, begin: int = 0, phase: int = 0
) -> list[SegmentBuilder]:
    """A segment a day: every hour a batch."""
    segments = [first]
    for day in range(begin, begin + days):
        if day > begin:
            segments.append(segments[-1].roll())
        for hour in range(24):
            time_ms = _BEGIN_MS + day * _DAY_MS + hour * _HOUR_MS + phase * 7 * _HOUR_MS
            count = dice.randrange(records // 2, records)
            values = (" ".join(dice.choices(_WORDS, k=12)).encode() for _ in range(count))
            some = [
                ProducerRecord(value, b"%d" % dice.randrange(1000), timestamp_ms=time_ms + 60_000 * number)
                for number, value in enumerate(values)
            ]
            segments[-1].batch(some, codec=Codec.ZSTD)
    return segments


def report_picture(picture: Path, *, is_dark: bool = False) -> None:
    """The report of ``make_bucket``'s bucket, with findings, totals, topics and lanes."""
    prices = parse_prices({"gib_month": "0.023", "get_per_1000": "0.0004", "gib_out": "0.09", "currency": "USD"})
    with TemporaryDirectory() as place:
        bucket = Path(place) / "tiered"
        make_bucket(bucket)
        made = read_report(LocationSource(str(bucket)), prices=prices, now_ms=_BEGIN_MS + 22 * _DAY_MS)
        page = Path(place) / "report.html"
        page.write_text(page_of(made).replace(str(bucket), "s3://logs/tiered"))
        photograph(page, picture, 1200, 1830, is_dark=is_dark)


def _terminal_picture(*commands: str, columns: int = 120) -> Callable[[Path], None]:
    """What makes a picture of a terminal in which commands are typed in ``make_bucket``'s directory."""

    def make(picture: Path) -> None:
        with TemporaryDirectory() as place:
            make_bucket(Path(place) / "tiered")
            shown = {
                typed: in_terminal(*shlex.split(typed)[1:], columns=columns, place=Path(place)) for typed in commands
            }
        picture.write_text(picture_of(shown, columns, picture.stem))

    return make


def _shell_picture(*typed: str, columns: int = 100) -> Callable[[Path], None]:
    """What makes a picture of the shell over ``make_bucket``'s topics, in which statements and commands are typed."""

    def make(picture: Path) -> None:
        with TemporaryDirectory() as place:
            make_bucket(Path(place) / "tiered")
            shown = {one: _in_shell(one.replace("      ...> ", ""), columns, Path(place)) for one in typed}
        picture.write_text(picture_of(shown, columns, picture.stem, prompt="segreader>"))

    return make


def _in_shell(typed: str, columns: int, place: Path) -> Shown:
    """What the shell prints for something that is typed, with the same time on every machine."""
    shown = in_terminal("shell", "tiered", columns=columns, place=place, piped=typed)
    return Shown(shown.code, re.sub(r", [0-9.]+ s, read", ", 0.1 s, read", shown.raw))


PICTURES: Final[Mapping[str, Callable[[Path], None]]] = {
    "report.png": report_picture,
    "ls.svg": _terminal_picture("segreader ls tiered --sort growth", "segreader ls tiered orders"),
    "plan.svg": _terminal_picture(
        "segreader plan tiered payments --price get_per_1000=0.0004 --price gib_out=0.09 --price currency=USD",
        columns=110,
    ),
    "shell.svg": _shell_picture(
        "select date_trunc('day', timestamp) as day, count(*) as records\n"
        "      ...> from audit group by 1 order by 2 desc, 1 limit 3;",
        ".topics",
        '.plan select value from audit where "offset" >= 900',
    ),
    "verify.svg": _terminal_picture("segreader verify tiered", columns=110),
}
"""Each picture's file in docs/images, and what makes it."""


def main(arguments: list[str]) -> int:
    """Make the pictures whose names begin with one of the arguments; all of them without any."""
    chosen = [name for name in PICTURES if not arguments or name.startswith(tuple(arguments))]
    for name in chosen:
        PICTURES[name](IMAGES / name)
        print(f"docs/images/{name}: {(IMAGES / name).stat().st_size:,} bytes")
    return 0 if chosen else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
