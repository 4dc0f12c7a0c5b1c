"""What a reader asks for, as values: which policy holds where something is amiss."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from segreader.errors import OptionError


class Policy(StrEnum):
    """What to do at damage, at a gap, or where a segment vanished: raise, or go on without it."""

    FAIL = "fail"
    SKIP = "skip"

    @classmethod
    def parse(cls, name: str, word: str) -> Self:
        """The policy of this word.

        Args:
            name: the option, for the message.

        Raises:
            OptionError: it is another word.
        """
        try:
            return cls(word)
        except ValueError:
            raise OptionError(f"unknown {name}", found=word, expected="fail or skip") from None
