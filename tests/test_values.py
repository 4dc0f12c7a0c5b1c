from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any, ClassVar

import pytest

from segreader import values


@values.dataclass(frozen=True, slots=True)
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


def _kinds(**how: bool) -> list[type[Any]]:
    """The same class twice: by ``dataclasses``, and by what takes its place."""

    def define(make: Any) -> type[Any]:
        class Value:
            count: ClassVar[int] = 1
            name: str
            size: int = 3
            tags: tuple[str, ...] = field(default_factory=tuple, compare=False)
            secret: str = field(default="s", repr=False)
            made: int = field(init=False, default=7)

            def shown(self) -> str:
                return f"{self.name}!"

        made: type[Any] = make(**how)(Value)
        return made

    return [define(dataclass), define(values.dataclass)]


_FORMS = [
    {"frozen": frozen, "slots": slots, "order": order, "kw_only": kw_only}
    for frozen in (False, True)
    for slots in (False, True)
    for order in (False, True)
    for kw_only in (False, True)
]


def _answers(kind: type[Any]) -> list[object]:
    """What a class of ``_kinds`` says of itself and of its values, and what it refuses."""
    one, same, other = kind(name="a"), kind(name="a", tags=("x",)), kind(name="a", size=4)
    acts = (
        lambda: hash(one) == hash(same),
        lambda: hash(kind(name="a", size=4)) == hash(("a", 4, "s", 7)),
        lambda: one < other <= other,
        lambda: one >= other or one > other,
        lambda: one < 3,
        lambda: setattr(one, "size", 5),
        lambda: delattr(one, "size"),
        lambda: kind("b", 1).name,
        lambda: kind(name="b", made=1).name,
        lambda: kind().name,
        lambda: repr(one)[repr(one).index("(") :],
    )
    answers: list[object] = [
        inspect.signature(kind),
        [(each.name, each.type, each.kw_only) for each in fields(kind)],
        kind.__match_args__,
        repr(same),
        one == same,
        one == other,
        one == 3,
        one.__eq__(3),
        asdict(other),
        repr(replace(other, name="b")),
        one.shown(),
        kind.__hash__ is None,
        hasattr(one, "__dict__"),
    ]
    for act in acts:
        try:
            answers.append(act())
        except (TypeError, AttributeError) as error:
            answers.append((type(error), str(error) if isinstance(error, FrozenInstanceError) else ""))
    return answers


@pytest.mark.parametrize("how", [*_FORMS, {"eq": False}, {"eq": False, "slots": True}, {"eq": False, "frozen": True}])
def test_a_class_does_what_one_of_dataclasses_does(how: dict[str, bool]) -> None:
    usual, quick = _kinds(**how)
    assert _answers(quick) == _answers(usual)


def test_methods_of_a_class_are_kept() -> None:
    @values.dataclass(frozen=True, slots=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return "of its own"

        def __hash__(self) -> int:
            return 3

        def __eq__(self, other: object) -> bool:
            return other == self.name

    assert (repr(Named("a")), hash(Named("a")), Named("a") == "a") == ("of its own", 3, True)


def test_a_value_that_holds_itself_can_be_shown() -> None:
    @values.dataclass(slots=True)
    class Holder:
        held: list[object]

    one = Holder([])
    one.held.append(one)
    assert repr(one).endswith("Holder(held=[...])")


def test_pickles_of_dataclasses_stay_readable() -> None:
    kept = pickle.dumps(Usual("a", 5, ["b"], is_new=True)).replace(b"Usual", b"Quick")
    assert pickle.loads(kept) == Quick("a", 5, ["b"], is_new=True)
    assert pickle.loads(pickle.dumps(Quick("a", 5, ["b"], is_new=True)).replace(b"Quick", b"Usual")) == Usual(
        "a", 5, ["b"], is_new=True
    )
