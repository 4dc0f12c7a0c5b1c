"""Findings: what is wrong with an object, collected by checks, and reported by `segreader verify` and by every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from segreader.errors import (
    CorruptBatchError,
    DecryptionError,
    FormatError,
    ManifestError,
    ObjectNotFoundError,
    SegreaderError,
    UnsupportedCodecError,
    UnsupportedMagicError,
    shown_count,
)
from segreader.evidence.rules import RULES, Code, Severity
from segreader.plan.request import Policy
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.values import dataclass

MOST_OF_A_SEGMENT: Final = 20
"""Findings of one code about one segment; more of them say nothing new."""

MOST_NAMED: Final = 3
"""Objects of one partition that a plan names where many have defects of one kind."""

_LATELY: Final = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, or that is worth knowing.

    Args:
        code: which kind; stable.
        object: its URL, without a query string; of a partition or topic the place where it was looked for.
        position: byte in the object that it is about.
        offset: the record, batch or segment it is about.
        explanation: what was found here, and what was expected.
        partition: whose object; ``None`` for the whole location.
    """

    code: Code
    object: str
    explanation: str
    position: int | None = None
    offset: int | None = None
    partition: TopicIdPartition | None = None

    @property
    def severity(self) -> Severity:
        """How grave it is: the same for all findings of a code."""
        return RULES[self.code].severity

    @property
    def action(self) -> str:
        """What to do."""
        return RULES[self.code].action

    def as_row(self) -> dict[str, Any]:
        """An object for JSON, with every field, also that which is ``None``."""
        of = self.partition
        return {
            "code": self.code.value,
            "severity": self.severity.value,
            "topic": None if of is None else of.topic,
            "partition": None if of is None else of.partition,
            "topic_id": None if of is None else of.topic_id,
            "object": self.object,
            "position": self.position,
            "offset": self.offset,
            "explanation": self.explanation,
            "action": self.action,
        }


class Findings:
    """Collects what is found about one subject; of very many of one code only the first ones.

    Args:
        store: knows how to show the names of objects.
        partition: whose objects they are.
        most: findings of one code to keep; those behind are counted.
    """

    def __init__(self, store: ObjectStore, partition: TopicIdPartition | None = None, *, most: int = 1000) -> None:
        self._store, self._partition, self._most = store, partition, most
        self._found: list[Finding] = []
        self._counts: Counter[Code] = Counter()

    @property
    def codes(self) -> frozenset[Code]:
        """Every code that was found."""
        return frozenset(self._counts)

    def add(
        self, code: Code, name: str, explanation: str, *, position: int | None = None, offset: int | None = None
    ) -> None:
        """Note a finding about the object ``name``."""
        self.put(Finding(code, self._store.url(name), explanation, position, offset, self._partition))

    def add_error(self, error: SegreaderError, name: str, *, code: Code | None = None) -> None:
        """Note an error, under the code that its class calls for; about ``name``, unless it names an object itself."""
        text = error.message if error.found is None else f"{error.message}; found {error.found}"
        if error.expected is not None:
            text += f", expected {error.expected}"
        offset = error.offset if error.offset is not None else error.base_offset
        source = error.source or self._store.url(name)
        self.put(Finding(code or code_of(error), source, text, error.position, offset, self._partition))

    def put(self, finding: Finding) -> None:
        """Note a finding."""
        if any(_is_same(finding, one) for one in self._found[-_LATELY:]):
            return
        self._counts[finding.code] += 1
        if self._counts[finding.code] <= self._most:
            self._found.append(finding)

    def take(self, known: frozenset[Code] = frozenset()) -> list[Finding]:
        """The findings, without those that only follow from others.

        Args:
            known: codes that were found about the same subject before.
        """
        found = known | self.codes
        hidden = {code for cause in found for code in RULES[cause].hides}
        left = [one for one in self._found if one.code not in hidden]
        for code, count in self._counts.items():
            if count > self._most and code not in hidden:
                last = next(one for one in reversed(left) if one.code is code)
                text = f"and {count - self._most} more of this kind"
                left.append(Finding(code, last.object, text, None, None, self._partition))
        return left

    def settle(self, on_corrupt: Policy) -> list[str]:
        """What a plan says of the errors and warnings that were found: its notes.

        Args:
            on_corrupt: ``fail`` raises for the first one on which records depend (``Rule.raises``); ``skip`` notes all.
        """
        notes = []
        for finding in self.take():
            if finding.severity is Severity.INFO:
                continue
            if on_corrupt is Policy.FAIL and RULES[finding.code].raises is not None:
                raise to_error(finding)
            notes.append(str(to_error(finding)))
        return notes


class NotedApart(Findings):
    """Collects what one thread finds, for the ``Findings`` of another: everything, in order."""

    def put(self, finding: Finding) -> None:
        """Note a finding."""
        self._found.append(finding)

    def release(self) -> list[Finding]:
        """The findings since the last call."""
        found, self._found = self._found, []
        return found


def notes_of_many(found: Sequence[Findings]) -> list[str]:
    """What a plan says of defects that take no records away: of the first objects, and how many more there are."""
    notes = [note for one in found[:MOST_NAMED] for note in one.settle(Policy.SKIP)]
    if len(found) > MOST_NAMED:
        more = shown_count(len(found) - MOST_NAMED, "more object here has", "more objects here have")
        notes.append(f"{more} such defects: segreader verify names them")
    return notes


def to_error(finding: Finding) -> SegreaderError:
    """The finding as an error with the same object, position, offset and next step."""
    rule = RULES[finding.code]
    return (rule.raises or SegreaderError)(
        rule.meaning,
        source=finding.object,
        position=finding.position,
        offset=finding.offset,
        found=finding.explanation.removeprefix("found "),
        hint=finding.action.removesuffix("."),
    )


def _is_same(one: Finding, other: Finding) -> bool:
    """Whether two findings say the same; a key that is not at hand is missing for all objects of a segment."""
    if one.code is other.code is Code.UNDECRYPTABLE:
        return one.explanation == other.explanation
    return one == other


def code_of(error: SegreaderError) -> Code:
    """The code for an error that ended a look at an object."""
    match error:
        case DecryptionError():
            return Code.UNDECRYPTABLE
        case ManifestError():
            return Code.BAD_MANIFEST
        case ObjectNotFoundError():
            return Code.VANISHED
        case UnsupportedMagicError():
            return Code.UNSUPPORTED_MAGIC
        case UnsupportedCodecError():
            return Code.UNSUPPORTED_CODEC
        case CorruptBatchError():
            return Code.BROKEN_BATCH
        case FormatError():
            return Code.UNDECODABLE_RECORDS
        case _:
            return Code.UNREADABLE_OBJECT
