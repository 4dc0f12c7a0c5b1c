"""CRC-32C is the package's, however it is loaded."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.format.batch import crc32c


@given(st.binary(max_size=300), st.integers(0, 300))
def test_a_checksum_is_that_of_the_package_whole_or_continued(data: bytes, cut: int) -> None:
    assert crc32c(data) == package.crc32c(data) == crc32c(memoryview(data)[cut:], crc32c(data[:cut]))


def test_the_check_value_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("hidden", ["crc32c", "crc32c._crc32c"])
def test_where_the_extension_is_not_found_the_package_is_imported(hidden: str) -> None:
    code = f"""
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def hiding(name, *more):
    return None if name == {hidden!r} and 'crc32c' not in sys.modules else find(name, *more)
PathFinder.find_spec = hiding
class Finder:
    def find_spec(name, path=None, target=None):
        return find(name, path, target)
sys.meta_path.append(Finder)
from segreader.format.batch import crc32c
print('crc32c' in sys.modules, hex(crc32c(b'123456789')))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "True 0xe3069283\n"
