"""Values, of which a read imports a hundred kinds and a plan has hundreds of thousands: defined fast, made fast, and
seldom looked at by Python's collector.
"""

from __future__ import annotations

import dataclasses
import gc
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from functools import partial
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final

_dataclass: Final = dataclasses.dataclass
_FACTORY: Final = vars(dataclasses).get("_HAS_DEFAULT_FACTORY", MISSING)
"""What a signature shows in place of a default that is made."""

_ORDERS: Final = (operator.lt, operator.le, operator.gt, operator.ge)
_THRESHOLDS: Final = (500_000, 50, 10)


def collect_seldom() -> None:
    """Have this process look for cycles seldom, and never among what it has imported; call it once, at its start.

    Values that live on are looked at again and again: a fifth of the time of planning 100,000 segments, and none of
    them is part of a cycle. How often is a setting of the whole process, so programs choose it, never a library.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, order=False, eq=True, kw_only=False):
        """As ``dataclasses.dataclass``, made in a quarter of the time: a read imports a hundred of these.

        That of ``dataclasses`` compiles up to ten functions for each class. Here only ``__init__`` is compiled, and it
        sets slots by what they are, not by ``object.__setattr__``: values are made in half the time, too.
        """
        if cls is None:
            return partial(dataclass, frozen=frozen, slots=slots, order=order, eq=eq, kw_only=kw_only)
        own = vars(cls)
        is_hashed = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
        if cls.__doc__ is None:
            cls.__doc__ = f"{cls.__name__}()"  # else its signature is made for that
        cls = _dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
        known = fields(cls)
        made = {"__init__": _init(cls, known, frozen), "__repr__": _repr(known)}
        names = tuple(one.name for one in known if one.compare)
        key = _key(names)
        if eq:
            made["__eq__"] = _comparison(operator.eq, key)
            if not is_hashed:
                made["__hash__"] = (lambda self: hash(key(self))) if frozen else None
        if order:
            made |= {f"__{one.__name__}__": _comparison(one, key) for one in _ORDERS}
        if frozen:
            made |= _frozen(cls, frozenset(one.name for one in known))
            if slots:
                made |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in made.items():
            if name not in vars(cls) or name == "__hash__":
                if method is not None:
                    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
                setattr(cls, name, method)
        return cls


def _init(cls: type, known: Sequence[Field[Any]], frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_missing": _FACTORY}
    parameters: list[str] = []
    by_name: list[str] = []
    lines: list[str] = []
    annotations: dict[str, Any] = {}
    own = vars(cls)
    for one in known:
        name = one.name
        parameter = value = name
        if one.default is not MISSING:
            names[f"_default_{name}"] = one.default
            parameter += f"=_default_{name}"
        elif one.default_factory is not MISSING:
            names[f"_make_{name}"] = one.default_factory
            parameter += "=_missing"
            value = f"_make_{name}() if {name} is _missing else {name}" if one.init else f"_make_{name}()"
        if one.init:
            annotations[name] = one.type
            (by_name if one.kw_only else parameters).append(parameter)
        elif one.default is not MISSING:
            value = f"_default_{name}"
        elif one.default_factory is MISSING:
            continue
        if not frozen:
            lines.append(f" self.{name}={value}")
        elif isinstance(own.get(name), MemberDescriptorType):
            names[f"_set_{name}"] = own[name].__set__
            lines.append(f" _set_{name}(self,{value})")
        else:
            names["_set"] = object.__setattr__
            lines.append(f" _set(self,{name!r},{value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    listed = ",".join(["self", *parameters, *(["*", *by_name] if by_name else [])])
    exec("\n".join([f"def __init__({listed}):", *(lines or [" pass"])]), names)
    init: Callable[..., None] = names["__init__"]
    init.__annotations__.update(annotations, **{"return": None})
    return init


def _key(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What makes values equal."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    if not names:
        return lambda value: ()
    only = operator.attrgetter(*names)
    return lambda value: (only(value),)


def _repr(known: Sequence[Field[Any]]) -> Callable[[Any], str]:
    names = [one.name for one in known if one.repr]

    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return recursive_repr("...")(__repr__)


def _comparison(compare: Callable[[Any, Any], bool], key: Callable[[Any], object]) -> Callable[[Any, object], bool]:
    def compared(self: Any, other: object) -> bool:
        return compare(key(self), key(other)) if other.__class__ is self.__class__ else NotImplemented

    return compared


def _frozen(cls: Any, names: Collection[str]) -> dict[str, Callable[..., None]]:
    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for one, value in zip(fields(self), state, strict=False):
        object.__setattr__(self, one.name, value)
