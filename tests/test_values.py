from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from segreader.values import quick_init


@quick_init
@dataclass(frozen=True, slots=True)
class Quick:
    name: str
    size: int = 3
    tags: list[str] = field(default_factory=list)
    is_new: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("a size below 0")


@dataclass(frozen=True, slots=True)
class Usual:
    name: str
    size: int = 3
    tags: list[str] = field(default_factory=list)
    is_new: bool = field(default=False, kw_only=True)


def test_it_takes_what_the_init_of_dataclasses_takes() -> None:
    assert inspect.signature(Quick) == inspect.signature(Usual)
    for arguments, named in [(("a",), {}), (("a", 4, ["b"]), {"is_new": True}), ((), {"name": "a", "tags": ["c"]})]:
        quick, usual = Quick(*arguments, **named), Usual(*arguments, **named)  # type: ignore[arg-type]
        assert repr(quick)[len("Quick") :] == repr(usual)[len("Usual") :]


@pytest.mark.parametrize(("arguments", "named"), [((), {}), (("a", 1, [], True), {}), (("a",), {"other": 1})])
def test_it_refuses_what_the_init_of_dataclasses_refuses(arguments: tuple[object, ...], named: dict[str, int]) -> None:
    for kind in (Quick, Usual):
        with pytest.raises(TypeError):
            kind(*arguments, **named)  # type: ignore[arg-type]


def test_a_default_is_made_anew_for_each_value() -> None:
    one, two = Quick("a"), Quick("a")
    one.tags.append("b")
    assert two.tags == []


def test_values_are_checked_frozen_replaced_and_pickled_as_before() -> None:
    one = Quick("a", 5, is_new=True)
    with pytest.raises(ValueError, match="below 0"):
        Quick("a", -1)
    with pytest.raises(ValueError, match="below 0"):
        replace(one, size=-1)
    with pytest.raises(FrozenInstanceError):
        one.size = 4  # type: ignore[misc]
    assert replace(one, size=6) == Quick("a", 6, is_new=True)
    assert pickle.loads(pickle.dumps(one)) == one
