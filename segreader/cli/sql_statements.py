"""The statements of a text: where each ends, and of which kind it is, as DuckDB's own tokens and parser say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final, TextIO

from segreader.errors import OptionError
from segreader.values import dataclass

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DESCRIBES: Final = ("describe", "desc", "summarize")
_OF_EXPLAIN: Final = ("analyze", "format")


def not_text(source: str | None) -> OptionError:
    """The error for statements that are not UTF-8."""
    return OptionError("the statements are not UTF-8 text", source=source)


def require_text(text: str, source: str | None = None) -> str:
    """The text itself, unless Python has kept bytes in it that are not UTF-8.

    Raises:
        OptionError: it has.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise not_text(source) from None
    return text


def stdin() -> TextIO:
    """The stdin that statements come from.

    Raises:
        OptionError: it is closed.
    """
    if sys.stdin is None:
        raise OptionError("standard input is closed", hint="Give statements, a file or a pipe")
    return sys.stdin


class StatementKind(Enum):
    """What is done with a statement."""

    QUERY = "query"
    PIVOT = "pivot"
    """One that finds its columns itself: DuckDB makes several statements of it."""
    EXPLAIN = "explain"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement.

    Args:
        text: without its semicolon; of an EXPLAIN the query alone.
        prefix: of an EXPLAIN, the words before the query.
    """

    kind: StatementKind
    text: str
    prefix: str = ""

    @property
    def is_analysis(self) -> bool:
        """Whether it is an EXPLAIN that runs the query."""
        return any(token.text.lower() == "analyze" for token in tokens_of(self.prefix))

    @property
    def is_estimate(self) -> bool:
        """Whether it is an EXPLAIN that runs nothing: it says what the query would read."""
        return self.kind is StatementKind.EXPLAIN and not self.is_analysis


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a text, a number, a sign or a comment.

    Args:
        start, stop: its characters in the text, ``start <= at < stop``.
        kind: DuckDB's name for what it is.
    """

    text: str
    start: int
    stop: int
    kind: str

    @property
    def is_name(self) -> bool:
        """Whether it may name a table or a function."""
        return self.kind in ("identifier", "keyword")

    @property
    def name(self) -> str:
        """What it names, without quotes."""
        return self.text[1:-1].replace('""', '"') if self.text.startswith('"') else self.text


def tokens_of(text: str) -> list[Token]:
    """The tokens of any text, a statement or not; of one that breaks off, too."""
    import duckdb

    data = text.encode()  # DuckDB counts bytes
    found = [(start, kind) for start, kind in duckdb.tokenize(text)]
    tokens, at, characters = [], 0, 0
    for number, (start, kind) in enumerate(found):
        stop = found[number + 1][0] if number + 1 < len(found) else len(data)
        characters += len(data[at:start].decode())
        at = start
        shown = data[start:stop].decode().rstrip()
        tokens.append(Token(shown, characters, characters + len(shown), str(kind).rpartition(".")[2]))
    return tokens


def is_complete(text: str) -> bool:
    """Whether the last statement of a text ends in a semicolon, outside texts and comments."""
    tokens = [token for token in tokens_of(text) if token.kind != "comment"]
    return bool(tokens) and tokens[-1].text == ";"


def split(connection: DuckDBPyConnection, text: str) -> list[Statement]:
    """The statements of a text, in order.

    Raises:
        duckdb.Error: it is not SQL. OptionError: a statement is not a query.
    """
    parsed = connection.extract_statements("".join(_with_from(text)))
    return [_statement(connection, found.query, found.type.name) for found in parsed]


def _with_from(text: str) -> Iterator[str]:
    """The text with a ``from`` where DESCRIBE or SUMMARIZE has a function behind it: DuckDB takes a name or a query."""
    tokens = [token for token in tokens_of(text) if token.kind != "comment"]
    at = 0
    for word, name, sign in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if word.text.lower() in _DESCRIBES and name.is_name and name.kind == "identifier" and sign.text == "(":
            yield text[at : name.start] + "from "
            at = name.start
    yield text[at:]


def _statement(connection: DuckDBPyConnection, text: str, kind: str) -> Statement:
    text = _without_end(text)
    if kind == "MULTI" and text[:7].lower() == "explain":
        kind = "EXPLAIN"
    match kind:
        case "SELECT":
            return Statement(StatementKind.QUERY, text)
        case "EXPLAIN":
            prefix, query = _explained(text)
            [inner] = split(connection, query)
            found = Statement(StatementKind.EXPLAIN, query, prefix)
            if inner.kind is StatementKind.PIVOT and found.is_analysis:
                raise OptionError(
                    "a PIVOT that finds its columns is not analyzed", hint="Name them: PIVOT … ON … IN (…)"
                )
            return found
        case "MULTI" if _is_query(connection, text):
            return Statement(StatementKind.PIVOT, text)
    raise OptionError("only queries are run here", found=kind, expected="SELECT, FROM, PIVOT, DESCRIBE, EXPLAIN …")


def _is_query(connection: DuckDBPyConnection, text: str) -> bool:
    """Whether a statement of several parts only reads: then it may stand where a table does."""
    import duckdb

    try:
        return len(connection.extract_statements(f"select * from (\n{text}\n)")) == 1
    except duckdb.Error:
        return False


def _without_end(text: str) -> str:
    tokens = [token for token in tokens_of(text) if token.kind != "comment"]
    while tokens and tokens[-1].text == ";":
        text = text[: tokens.pop().start]
    return text.strip()


def _explained(text: str) -> tuple[str, str]:
    """The words of an EXPLAIN, and what it explains."""
    tokens = [token for token in tokens_of(text) if token.kind != "comment"]
    at = 1
    if tokens[at].text.lower() == "analyze":
        at += 1
    elif tokens[at].text == "(" and tokens[at + 1].text.lower() in _OF_EXPLAIN:
        at = next(number for number, token in enumerate(tokens) if token.text == ")") + 1
    start = tokens[at].start
    return text[:start].strip(), text[start:].strip()
