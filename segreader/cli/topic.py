"""The argument TOPIC: a topic, or one partition of it."""

from __future__ import annotations

import re

from segreader.errors import OptionError

_TOPIC = re.compile(r"([^/]+)(?:/([0-9]{1,10}))?")
_LARGEST_PARTITION = (1 << 31) - 1


def parse_topic(text: str | None) -> tuple[str | None, int | None]:
    """The topic and the partition that ``orders`` or ``orders/3`` names; ``None`` for what is not said.

    A topic's name has no slash.

    Raises:
        OptionError: it is something else.
    """
    if text is None:
        return None, None
    match = _TOPIC.fullmatch(text)
    partition = int(match[2]) if match and match[2] else None
    if match is None or (partition is not None and partition > _LARGEST_PARTITION):
        shown = repr(text if len(text) <= 300 else text[:300] + "…")
        raise OptionError("not a topic", found=shown, expected="a topic's name, or name/partition as in orders/3")
    return match[1], partition
