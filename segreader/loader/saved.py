"""The saved states of loaders: JSON objects with their kind and version.

A later version of this library reads what an earlier one wrote. Fields that are not known are passed over, so that
versions with more of them can be gone back from; a higher number of the version says that this would be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from segreader.errors import PositionFormatError, PositionVersionError
from segreader.plan.codec import WrongValueError, check_rows, check_text, check_whole_number
from segreader.plan.log import LogEnd

VERSION: Final = 1

_T = TypeVar("_T")


def write_saved(kind: str, fields: Mapping[str, Any], version: int = VERSION) -> str:
    """The JSON of these fields; what is ``None`` is left out."""
    told = {name: value for name, value in fields.items() if value is not None}
    return json.dumps({"kind": kind, "version": version, **told}, separators=(",", ":"))


def save_log_end(end: LogEnd | None) -> dict[str, int | None]:
    """The fields of a log's end, as far as it is known."""
    return {} if end is None else {"log_end": end.offset, "log_end_epoch": end.leader_epoch}


def saved_log_end(fields: SavedFields) -> LogEnd | None:
    """The end that ``save_log_end`` gave; ``None`` in what earlier versions saved."""
    offset = fields.integer_or_none("log_end")
    return None if offset is None else LogEnd(offset, fields.integer_or_none("log_end_epoch", bits=31))


class SavedFields:
    """The fields of a saved object, each asked for by its type.

    Args:
        kind: what it must be.
        text: its JSON.
        newest: the highest version that is read.

    Raises:
        PositionFormatError: it is not of that kind. The text is not shown: it may be anything.
        PositionVersionError: a newer version wrote it.
    """

    def __init__(self, kind: str, text: str | bytes, newest: int = VERSION) -> None:
        self.kind = kind
        try:
            document = json.loads(text, object_pairs_hook=self._fields)
        except PositionFormatError:
            raise
        except (TypeError, ValueError, RecursionError):
            raise self._wrong("it is no JSON", f"{type(text).__name__} of {_length(text)}") from None
        if not isinstance(document, dict):
            raise self._wrong("it is no JSON object", type(document).__name__)
        if document.get("kind") != kind:
            named = document.get("kind")
            raise self._wrong("it is something else", named[:40] if isinstance(named, str) else "no kind")
        version = document.get("version")
        if type(version) is not int or version < 1:
            raise self._wrong("it has no version", type(version).__name__)
        if version > newest:
            raise PositionVersionError(
                f"a saved {kind} was written by a newer version of segreader",
                found=f"version {version}",
                expected=f"version {newest} or below",
                hint="Update segreader here as where it was saved; nothing was changed",
            )
        self._document: dict[str, Any] = document

    @classmethod
    def of(cls, kind: str, document: Mapping[str, Any]) -> SavedFields:
        """The fields of an object inside of one that was checked."""
        fields = cls.__new__(cls)
        fields.kind, fields._document = kind, dict(document)
        return fields

    def integer(self, name: str, bits: int = 63) -> int:
        """A whole number of so many bits; not below zero."""
        return self._checked(check_whole_number, name, bits)

    def integer_or_none(self, name: str, bits: int = 63) -> int | None:
        """The same, or ``None`` where it is left out."""
        return None if self._document.get(name) is None else self.integer(name, bits)

    def text(self, name: str) -> str:
        """A text."""
        return self._checked(check_text, name)

    def text_or_none(self, name: str) -> str | None:
        """The same, or ``None`` where it is left out."""
        return None if self._document.get(name) is None else self.text(name)

    def rows_or_none(self, name: str, width: int) -> list[list[int]] | None:
        """Rows of so many whole numbers, or ``None`` where they are left out."""
        return None if self._document.get(name) is None else self._checked(check_rows, name, width)

    def objects(self, name: str) -> Sequence[Mapping[str, Any]]:
        """A list of JSON objects."""
        value = self._document.get(name)
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self._wrong(f"{name} is no list of objects", type(value).__name__)
        return value

    def mapping(self) -> dict[str, Any]:
        """Everything but kind and version."""
        return {name: value for name, value in self._document.items() if name not in ("kind", "version")}

    def wrong(self, error: Exception) -> PositionFormatError:
        """The error where the fields together are impossible."""
        return self._wrong("its values are impossible", str(error)[:200])

    def wrong_value(self, error: WrongValueError) -> PositionFormatError:
        """The error where a field alone is."""
        return self._wrong(error.what, error.found)

    def _fields(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """An object of the text; two fields of one name are refused."""
        fields = dict(pairs)
        if len(fields) < len(pairs):
            raise self._wrong("a field is in it twice", f"{len(pairs)} fields of {len(fields)} names")
        return fields

    def _checked(self, check: Callable[..., _T], name: str, *more: int) -> _T:
        try:
            return check(name, self._document.get(name), *more)
        except WrongValueError as error:
            raise self.wrong_value(error) from None

    def _wrong(self, what: str, found: str) -> PositionFormatError:
        return PositionFormatError(
            f"not a saved {self.kind}: {what}",
            found=found,
            expected=f'{{"kind":"{self.kind}","version":{VERSION},…}}',
            hint="Give the text that to_json() or state() gave, unchanged",
        )


def _length(text: object) -> str:
    return f"{len(text)} characters" if isinstance(text, str | bytes) else "another type"
