"""Frozen values of which a plan has hundreds of thousands: made fast, and seldom looked at by Python's collector."""

from __future__ import annotations

import gc
from dataclasses import MISSING, fields
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
_THRESHOLDS: Final = (500_000, 50, 10)


def collect_seldom() -> None:
    """Have this process look for cycles seldom, and never among what it has imported; call it once, at its start.

    Values that live on are looked at again and again: a fifth of the time of planning 100,000 segments, and none of
    them is part of a cycle. How often is a setting of the whole process, so programs choose it, never a library.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def quick_init(cls: type[_T]) -> type[_T]:
    """Give a frozen dataclass with slots an ``__init__`` that takes half the time; use it above ``@dataclass``.

    That of ``dataclasses`` looks up ``object.__setattr__`` for every field. This one calls what sets the slots. It has
    the same signature and defaults, and calls ``__post_init__`` as well.
    """
    known: dict[str, Any] = {"_missing": MISSING}
    parameters, lines, is_by_name = ["self"], [], False
    for one in fields(cls):  # type: ignore[arg-type]  # a dataclass, as it says
        parameter, value = one.name, one.name
        if one.kw_only and not is_by_name:
            is_by_name = True
            parameters.append("*")
        if one.default is not MISSING:
            known[f"_default_{one.name}"] = one.default
            parameter += f"=_default_{one.name}"
        elif one.default_factory is not MISSING:
            known[f"_make_{one.name}"] = one.default_factory
            parameter += "=_missing"
            value = f"_make_{one.name}() if {one.name} is _missing else {one.name}"
        known[f"_set_{one.name}"] = vars(cls)[one.name].__set__
        parameters.append(parameter)
        lines.append(f"    _set_{one.name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    exec("\n".join([f"def __init__({', '.join(parameters)}):", *lines]), known)
    init = known["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__wrapped__ = vars(cls)["__init__"]  # for its signature
    cls.__init__ = init  # type: ignore[method-assign]
    return cls
