from __future__ import annotations

import pickle
import re
import tomllib
from pathlib import Path

import pytest

from segreader import errors
from segreader.errors import (
    PACKAGES,
    CorruptBatchError,
    ObjectNotFoundError,
    SegreaderError,
    install_hint,
    shown_count,
)

ROOT = Path(__file__).parent.parent

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, SegreaderError)]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_survives_pickling_with_its_fields(kind: type[SegreaderError]) -> None:
    error = kind("broken", source="a.log", position=7, base_offset=3, found="x", expected="y", hint="Do z")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (str(back), vars(back)) == (str(error), vars(error))
    assert str(pickle.loads(pickle.dumps(kind()))) == ""


def test_the_text_says_what_where_and_what_to_do() -> None:
    error = CorruptBatchError(
        "the CRC is wrong", source="a.log", position=81920, base_offset=4711, found="9f", expected="11", hint="Fetch it"
    )
    assert str(error) == "a.log: the CRC is wrong; found 9f, expected 11 (byte 81920, base offset 4711). Fetch it"


def test_a_number_of_things_is_said_as_people_say_it() -> None:
    assert [shown_count(number, "record") for number in (0, 1, 1200)] == ["0 records", "1 record", "1,200 records"]
    assert [shown_count(number, "entry is", "entries are") for number in (1, 2)] == ["1 entry is", "2 entries are"]


def test_a_layer_that_knows_more_fills_in_only_what_is_missing() -> None:
    error = CorruptBatchError("cut", position=5, source="inner")
    assert error.located(position_shift=100, source="outer", base_offset=9) is error
    assert (error.source, error.position, error.base_offset) == ("inner", 105, 9)


def test_people_can_catch_the_built_in_kinds() -> None:
    assert issubclass(ObjectNotFoundError, FileNotFoundError)
    assert issubclass(errors.AccessDeniedError, PermissionError)
    assert issubclass(errors.FormatError, ValueError)
    with pytest.raises(FileNotFoundError, match="gone"):
        raise ObjectNotFoundError("gone")


def test_a_hint_names_the_packages_of_an_extra_as_the_project_has_them() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra: list(packages) for extra, packages in PACKAGES.items()} == {
        extra: extras[extra] for extra in PACKAGES
    }
    assert install_hint("spark") == "pip install 'pyspark>=4.0,<5' 'pandas>=2.2,<3'"


def test_no_text_of_the_code_installs_the_package_from_an_index_that_does_not_have_it() -> None:
    by_name = re.compile(r"segreader\[[a-z]|(pip|pipx|uv) (tool )?install [^\n\"]*\bsegreader\b|uvx segreader")
    files = [file for folder in ("segreader", "spark_jobs", "pyspark_segreader") for file in (ROOT / folder).rglob("*")]
    texts = [file for file in files if file.suffix in (".py", ".pyx", ".md")]
    assert [str(file) for file in texts if by_name.search(file.read_text())] == []
