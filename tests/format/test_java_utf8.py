"""What OpenJDK 17 printed for ``new String(bytes, UTF_8)``, as UTF-16 big-endian."""

from __future__ import annotations

import pytest

from segreader.format.batch import decode_java_utf8

PRINTED = [
    ("eda080", "fffd"),
    ("f0808080", "fffdfffdfffdfffd"),
    ("e282", "fffd"),
    ("c080", "fffdfffd"),
    ("dfc2e0a08fefff", "fffdfffd080ffffdfffd"),
    ("f09ff4c00090", "fffdfffdfffd0000fffd"),
    ("ed41a0ff", "fffd0041fffdfffd"),
    ("f49ff841f1", "fffdfffdfffd0041fffd"),
    ("f390f8eeeef5f3df", "fffdfffdfffdfffdfffdfffdfffd"),
    ("c1a07ff8909f", "fffdfffd007ffffdfffdfffd"),
    ("414141f1ed", "004100410041fffdfffd"),
    ("dfc2efef8fe1", "fffdfffdfffdfffdfffd"),
    ("c0f1f1c0f59f80c1", "fffdfffdfffdfffdfffdfffdfffdfffd"),
    ("f8c0efc2f39f00", "fffdfffdfffdfffdfffd0000"),
    ("f57ff0c0", "fffd007ffffdfffd"),
    ("efdf9fed", "fffd07dffffd"),
    ("8feeeea0", "fffdfffdfffd"),
    ("00", "0000"),
    ("c1eded00c2f5f5df", "fffdfffdfffd0000fffdfffdfffdfffd"),
    ("7fee", "007ffffd"),
    ("9ff3", "fffdfffd"),
    ("c2e1c18ff8eea0f0", "fffdfffdfffdfffdfffdfffdfffd"),
    ("9fdf00f8f4", "fffdfffd0000fffdfffd"),
    ("f4f1e0", "fffdfffdfffd"),
]


@pytest.mark.parametrize(("data", "text"), PRINTED)
def test_broken_utf8_becomes_what_java_makes_of_it(data: str, text: str) -> None:
    assert decode_java_utf8(bytes.fromhex(data)).encode("utf-16-be").hex() == text


@pytest.mark.parametrize("text", ["", "plain", "ключ", "鍵", "🐻", "\x00\x7f\x80\u07ff\u0800\uffff\U0010ffff"])
def test_valid_utf8_is_itself(text: str) -> None:
    assert decode_java_utf8(text.encode()) == text
