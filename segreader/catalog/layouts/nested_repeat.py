"""Regular expressions that backtrack without bound: a repetition inside a repetition."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""\\. | \[\^?\]?(?:\\.|[^\]\\])*\] | (?P<open>\((?:\?(?:>|P<\w+>|[aiLmsux-]*:|<?[=!]))?)
    | (?P<close>\)) | (?P<repeat>(?:[*+]|\{\d*,\})[?+]?) | .""",
    re.VERBOSE | re.DOTALL,
)


def find_nested_repeat(text: str) -> str | None:
    """The first group of a valid expression that is repeated without bound and holds such a repetition.

    Atomic groups and possessive repetitions do not backtrack, and do not count.
    """
    open_groups: list[tuple[int, bool]] = []
    holds = [False]
    closed: tuple[int, bool] | None = None
    for token in _TOKEN.finditer(text):
        repeat = token["repeat"]
        if repeat is not None and not repeat.endswith("+", 1):
            if closed is not None and closed[1]:
                return text[closed[0] : token.end()]
            holds[-1] = True
        closed = None
        if token["open"] is not None:
            open_groups.append((token.start(), token["open"] == "(?>"))
            holds.append(False)
        elif token["close"] is not None and open_groups:
            start, is_atomic = open_groups.pop()
            inner = holds.pop() and not is_atomic
            closed = (start, inner)
            holds[-1] = holds[-1] or inner
    return None
