"""The page in a real browser: it is drawn, light and dark, wide and narrow."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from pathlib import Path

import pytest

from docs.make_pictures import browser, make_bucket, photograph
from segreader.report.model import read_report
from segreader.report.page import page_of
from segreader.stored.source import LocationSource

pytestmark = pytest.mark.skipif(browser() is None, reason="no browser here: chromium, or the one that $CHROME names")

Colour = tuple[int, ...]


def rows_of(png: Path) -> list[list[Colour]]:
    """The pixels of a PNG of 8 bits a channel."""
    data, at, packed = png.read_bytes(), 8, b""
    width, height, depth, kind = struct.unpack_from(">IIBB", data, 16)
    channels = {2: 3, 6: 4}[kind]
    assert depth == 8
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += size + 12
    raw, stride = zlib.decompress(packed), width * channels
    rows, before = [], bytearray(stride)
    for number in range(height):
        begin = number * (stride + 1)
        row = _unfiltered(raw[begin], bytearray(raw[begin + 1 : begin + 1 + stride]), before, channels)
        rows.append([tuple(row[x : x + 3]) for x in range(0, stride, channels)])
        before = row
    return rows


def _unfiltered(kind: int, row: bytearray, above: bytearray, channels: int) -> bytearray:
    for x in range(len(row)):
        left = row[x - channels] if x >= channels else 0
        corner = above[x - channels] if x >= channels else 0
        row[x] = (row[x] + (0, left, above[x], (left + above[x]) // 2, _paeth(left, above[x], corner))[kind]) & 255
    return row


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda one: abs(guess - one))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lanes of a bucket, at the top of a page."""
    place = tmp_path_factory.mktemp("bucket")
    make_bucket(place / "tiered")
    text = page_of(read_report(LocationSource(str(place / "tiered")), now_ms=1_763_856_000_000))
    head, lanes = text[: text.index("<header>")], text[text.index('<section id="lanes">') :]
    (place / "lanes.html").write_text(head + lanes)
    return place / "lanes.html"


def test_lanes_are_blue_and_what_is_lost_is_red_on_paper_of_the_readers_choice(page: Path, tmp_path: Path) -> None:
    papers = {}
    for is_dark in (False, True):
        photograph(page, tmp_path / "shot.png", 500, 900, is_dark=is_dark)
        seen = Counter(colour for row in rows_of(tmp_path / "shot.png") for colour in row)
        [(papers[is_dark], _)] = seen.most_common(1)
        live, bad = ((0x5B, 0x9B, 0xDC), (0xFF, 0x82, 0x78)) if is_dark else ((0x2F, 0x6F, 0xB3), (0xB4, 0x23, 0x18))
        assert seen[live] > 10_000
        assert seen[bad] > 100

    assert papers == {False: (255, 255, 255), True: (0x14, 0x17, 0x1B)}


def test_a_narrow_window_cuts_nothing_off_at_the_right(page: Path, tmp_path: Path) -> None:
    photograph(page, tmp_path / "shot.png", 500, 900)
    edges = {row[-1] for row in rows_of(tmp_path / "shot.png")}

    assert edges == {(255, 255, 255)}
