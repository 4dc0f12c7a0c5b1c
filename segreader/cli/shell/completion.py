"""What may be typed next: commands, topics, columns and fields, as the text before the cursor has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from segreader.values import dataclass

COMMANDS: Final[Mapping[str, str]] = {
    ".topics": "list the topics, with partitions, segments and bytes",
    ".schema": "[TOPIC]  show the columns of a topic, or of all",
    ".plan": "QUERY  show what a query would read and cost, without reading",
    ".mode": "table|ndjson|json|csv  choose how rows are printed",
    ".timer": "on|off  print rows, seconds and bytes after each statement",
    ".export": "FILE QUERY  write rows to FILE.parquet, .arrow, .csv, .json or .ndjson",
    ".help": "show this",
    ".quit": "leave; Ctrl-D does, too",
}
"""The commands of the shell, and what each does."""

MODES: Final = ("table", "ndjson", "json", "csv")
KEYWORDS: Final = (
    *("select", "from", "where", "group by", "order by", "limit", "having", "join", "using", "union all", "with"),
    *("distinct", "between", "case", "when", "count(*)", "sum(", "min(", "max(", "avg(", "describe", "explain"),
    *("show tables", "pivot", "summarize", "interval", "date_trunc('", "desc", "is not null"),
)
_BEFORE: Final = r'(?:(?:"[^"]*"|[\w$-]+)\.)*'
_WORD: Final = re.compile(_BEFORE + r'(?:"[^"]*"|[\w$-]+)?$')
_QUOTED_WORD: Final = re.compile(_BEFORE + r'"[^"]*$')
_OF_TABLE: Final = re.compile(r"(?i)\b(?:from|join|pivot|describe|summarize|table)\s+$")
_TABLES: Final = re.compile(
    r'(?i)\b(?:from|join|pivot|describe|summarize|table|,)\s+("[^"]+"|[\w$]+)(?:\s+(?:as\s+)?("[^"]+"|\w+))?'
)
_FILE_AND_QUERY: Final = re.compile(r"""\s*("[^"]+"|'[^']+'|\S+)(?:\s+(.*))?""", re.DOTALL)
_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)
_WORDS_OF_SQL: Final = frozenset(("offset", "order", "user", "group", "table", "select", "from", "where", "all"))


@dataclass(frozen=True, slots=True)
class Proposal:
    """One text that may stand in place of the word before the cursor."""

    text: str
    replaces: int
    """So many characters before the cursor."""


def proposals(before: str, topics: Sequence[str], columns: Callable[[str], Sequence[str]]) -> list[Proposal]:
    """What may be typed behind a text.

    Args:
        before: the text before the cursor, all lines of it.
        topics: that there are.
        columns: gives those of a topic, with the fields of typed ones: ``value.customer.id``.
    """
    if before.lstrip().startswith("."):
        command, blank, rest = before.lstrip().partition(" ")
        if not blank:
            return _matching(command, COMMANDS)
        match command:
            case ".schema":
                return _matching(rest.lstrip(), [quoted_name(one) for one in topics])
            case ".mode":
                return _matching(rest.lstrip(), MODES)
            case ".timer":
                return _matching(rest.lstrip(), ("on", "off"))
            case ".plan":
                return proposals(rest, topics, columns)
            case ".export" if (query := file_and_query(rest)[1]) is not None:
                return proposals(query, topics, columns)
        return []
    match = (_QUOTED_WORD if before.count('"') % 2 else _WORD).search(before)
    word = "" if match is None else match[0]
    rest = before[: len(before) - len(word)]
    if rest.count("'") % 2:
        return []
    if _OF_TABLE.search(rest):
        return _matching(word, [quoted_name(one) for one in topics])
    named = _tables_in(before, topics)
    found: list[str] = []
    table, dot, _ = word.partition(".")
    if dot and (topic := named.get(table.strip('"').lower())) is not None:
        return _matching(word, [f"{table}.{quoted_path(one)}" for one in columns(topic)])
    for topic in dict.fromkeys(named.values()):
        found += [quoted_path(one) for one in columns(topic)]
    if not named and topics and word:
        found += [quoted_name(one) for one in columns(topics[0]) if "." not in one]  # these every topic has
    if not dot:
        found += KEYWORDS if word or not rest.strip() else ()
        found += [quoted_name(one) for one in topics] if word else ()
    return _matching(word, found)


def file_and_query(text: str) -> tuple[str, str | None]:
    """What ``.export`` is given: a file, in quotes where its name has spaces, and behind it perhaps a query."""
    match = _FILE_AND_QUERY.fullmatch(text)
    if match is None:
        return "", None
    file, query = match.groups()
    return file[1:-1] if file[0] in "'\"" and file[-1] == file[0] else file, query


def _tables_in(text: str, topics: Sequence[str]) -> dict[str, str]:
    """The topics that a statement names, by the names and aliases that it gives them."""
    by_name = {one.lower(): one for one in topics}
    found = {}
    for name, alias in _TABLES.findall(text):
        topic = by_name.get(name.strip('"').lower())
        if topic is not None:
            found[topic.lower()] = topic
            if alias:
                found[alias.strip('"').lower()] = topic
    return found


def _matching(word: str, choices: Sequence[str] | Mapping[str, str]) -> list[Proposal]:
    """The choices that begin as a word does, in any case, with or without its quotes."""
    typed = word.lower().replace('"', "")
    found = [one for one in choices if one.lower().replace('"', "").startswith(typed)]
    return [Proposal(one, len(word)) for one in dict.fromkeys(found)]


def quoted_name(name: str) -> str:
    """A name as it is typed in SQL: in double quotes where it needs them."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS_OF_SQL else '"' + name.replace('"', '""') + '"'


def quoted_path(path: str) -> str:
    """The same for a column, or a field in one."""
    return ".".join(quoted_name(one) for one in path.split("."))
