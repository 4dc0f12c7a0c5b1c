"""The tables of a query: each ``topic(…)`` in it, and each topic that it names, becomes a view of DuckDB.

DuckDB's own parser finds them: a query goes out as JSON, has other tables put in, and comes back as SQL. A PIVOT that
looks for its columns itself does not go out: its tables are found among the tokens of its text.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from segreader.cli.options import parse_location, parse_topic
from segreader.cli.sql_statements import Token, tokens_of
from segreader.errors import OptionError
from segreader.plan.request import DEFAULT_COLUMNS
from segreader.scans import scan
from segreader.tables.dataset import TopicDataset, open_dataset
from segreader.typed.decoding import Side
from segreader.typed.reader_schema import learn, learn_sides, learn_subjects, plan_decoding
from segreader.typed.types import Type, ValueKind
from segreader.values import dataclass

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FUNCTION: Final = "topic"
_ALL_TABLES: Final = ("tables", "__show_tables_expanded")
"""What DuckDB shows for SHOW TABLES, and for SHOW ALL TABLES and a DESCRIBE of nothing."""
_BARE_OFFSET: Final = re.compile(r"""(?<!["'.\w])offset(?!["'\w])""", re.IGNORECASE)
_PROPOSAL: Final = re.compile(r"(Candidate|Did you mean).*")
_NOT_IN_SQL: Final = frozenset(("location", "urls", "renew", "storage_options", "broker_options", "topic", "kernel"))
_DECODES: Final = ("utf8", "blob")
_ARGUMENTS: Final = tuple(
    name
    for name, one in signature(scan).parameters.items()
    if one.kind is Parameter.KEYWORD_ONLY and name not in _NOT_IN_SQL
)


@dataclass(frozen=True, slots=True)
class TopicsAt:
    """Where topics are that a query names as tables.

    Args:
        arguments: of ``segreader.scan``: the location, and what else reading there takes.
        names: lists the topics.
        sizes: lists them with what is known of each, such as ``partitions``, ``segments`` and ``size`` in bytes.
        schemas: of their keys and values: a file, or a registry's URL.
    """

    arguments: Mapping[str, Any] = field(repr=False)
    names: Callable[[], Sequence[str]]
    sizes: Callable[[], Sequence[tuple[str, Mapping[str, Any]]]]
    schemas: str | None = None


@dataclass(frozen=True, slots=True)
class MadeTable:
    """A topic that queries of one connection have asked for.

    Args:
        source: the name that the dataset has in DuckDB. view: that of the view over it, which is ``query``.
        name: the topic's.
    """

    source: str
    view: str
    query: str
    name: str
    dataset: TopicDataset


class QueryTables:
    """Parses queries of one connection, and makes the tables that they name.

    Args:
        storage_options, broker_options: of every location.
        at: where the topics are that are named without a location.
    """

    def __init__(
        self,
        connection: DuckDBPyConnection,
        storage_options: Mapping[str, object],
        broker_options: Mapping[str, object],
        at: TopicsAt | None = None,
    ) -> None:
        self._connection = connection
        self._storage_options, self._broker_options, self._at = storage_options, broker_options, at
        self._made: dict[str, MadeTable] = {}
        self._paths: dict[str, set[tuple[str, ...]] | None] = {}
        self._known_paths: dict[str, Sequence[str]] = {}
        self.used: list[MadeTable] = []
        """The tables of the query that was prepared last, each once."""

    @property
    def made(self) -> list[MadeTable]:
        """Every table that was asked for up to now."""
        return list(self._made.values())

    @property
    def datasets(self) -> list[TopicDataset]:
        """What is read by them."""
        return [one.dataset for one in self.made]

    @property
    def are_typed(self) -> bool:
        """Whether the columns of topics may differ: their keys and values are decoded by schemas."""
        return self._at is not None and self._at.schemas is not None

    @cached_property
    def names(self) -> Sequence[str]:
        """The topics that are tables by their names; listed once.

        Raises:
            as ``segreader.scan``: there is no such location, or its layout is unknown.
        """
        return [] if self._at is None else sorted(self._at.names())

    def sizes(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The topics that are tables, with what is known of each; raises as ``names``."""
        return [] if self._at is None else self._at.sizes()

    def paths_of(self, topic: str) -> Sequence[str]:
        """The columns of a topic, and behind them the fields of typed keys and values: ``value.customer.id``.

        Raises:
            SegreaderError: its schemas cannot be had.
        """
        if topic not in self._known_paths:
            sides = {}
            if self._at is not None and self._at.schemas is not None:
                sides = learn_subjects(self._at.schemas, topic)
            types = {side: plan_decoding(known, Side(side), topic).type for side, known in sides.items()}
            fields = [path for side, kind in types.items() for path in _fields_of(kind, side)]
            self._known_paths[topic] = [*DEFAULT_COLUMNS, *fields]
        return self._known_paths[topic]

    def topic_named(self, name: str) -> str | None:
        """The topic that a name of SQL means, in any case where that is one; a partition may be behind it."""
        if name in self.names:
            return name
        same = [one for one in self.names if one.lower() == name.lower()]
        if len(same) == 1:
            return same[0]
        topic, slash, partition = name.rpartition("/")
        found = self.topic_named(topic) if slash and partition.isdecimal() else None
        return None if found is None else f"{found}/{partition}"

    def prepare(self, query: str) -> str:
        """The query with a view in place of each ``topic(…)``.

        Raises:
            OptionError: it is not a query, or a ``topic(…)`` in it is none.
        """
        self.used = []
        parsed = self._parsed(query)
        self._paths = _paths_of_sides(parsed)
        return self._text(self._replaced(parsed, Counter(), frozenset()))

    def prepare_pivot(self, query: str) -> str:
        """The text of a PIVOT with a view in place of each ``topic(…)`` and each topic's name; all else as it was.

        Raises:
            OptionError: a ``topic(…)`` in it is none.
        """
        self.used, self._paths = [], dict.fromkeys(side.value for side in Side)
        tokens = tokens_of(query)
        made, at = "", 0
        for number, token in enumerate(tokens):
            if token.start < at or not token.is_name:
                continue
            if token.name.lower() == _FUNCTION and number + 1 < len(tokens) and tokens[number + 1].text == "(":
                stop = _end_of_call(tokens, number + 1)
                [statement] = self._parsed(f"select * from {query[token.start : stop]}")["statements"]
                view = self._topic_called(statement["node"]["from_table"]).view
                made += query[at : token.start] + quoted(view)
                at = stop
            elif self._at is not None and (topic := self.topic_named(token.name)) is not None:
                # A column may have the name of a topic: so the name stays, and DuckDB finds out what it means.
                table = f"select * from {quoted(self._topic_at(topic).view)}"
                self._connection.execute(f"create or replace temp view {quoted(token.name)} as {table}")
        return made + query[at:]

    def _parsed(self, query: str) -> dict[str, Any]:
        parsed = self._parse(query)
        if parsed.get("error"):
            message = str(parsed.get("error_message"))
            raise OptionError(message, hint=hint_for(message, query, self))
        return parsed

    def _parse(self, query: str) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self._one("select json_serialize_sql(?)", query))
        return parsed

    def _text(self, parsed: Any) -> str:
        return str(self._one("select json_deserialize_sql(?)", json.dumps(parsed)))

    def _one(self, query: str, *parameters: str) -> Any:
        """The one value that a query gives."""
        [[value]] = self._connection.execute(query, list(parameters)).fetchall()
        return value

    def _replaced(self, node: Any, named: Counter[str], hidden: frozenset[str]) -> Any:
        """The tree of a query with other tables in it.

        Args:
            named: counts names in a FROM, where each is one table's.
            hidden: names of the query's own, which hide those of topics.
        """
        if isinstance(node, list):
            return [self._replaced(one, named, hidden) for one in node]
        if not isinstance(node, dict):
            return node
        match node.get("type"):
            case "TABLE_FUNCTION" if node["function"]["function_name"].lower() == _FUNCTION:
                return self._put(self._topic_called(node), node, named)
            case "BASE_TABLE" if self._at is not None:
                path = node["qualified_name"]["path"] or [node["table_name"]]
                is_own = len(path) == 1 and path[0].lower() in hidden
                topic = None if is_own else self.topic_named(".".join(path))
                return node if topic is None else self._put(self._topic_at(topic), node, named)
            case "SHOW_REF" if str(node["table_name"]).strip('"').lower() in _ALL_TABLES and node["query"] is None:
                return self._all_topics()
            case "SHOW_REF" if self._at is not None and node["show_type"] == "SHOW":
                name = ".".join(quoted(part) for part in node["qualified_name"]["path"])
                [described] = self._parse(f"describe {name}")["statements"]
                return self._replaced(described["node"]["from_table"], named, hidden)
        if "from_table" in node:
            named = Counter()
        if not (node.get("cte_map") or {}).get("map"):
            return {name: self._replaced(one, named, hidden) for name, one in node.items()}
        tables = []
        for one in node["cte_map"]["map"]:
            name = one["key"].lower()
            is_recursive = one["value"].get("query_node", {}).get("type") == "RECURSIVE_CTE_NODE"
            seen = hidden | {name} if is_recursive else hidden
            tables.append(self._replaced(one, named, seen))
            hidden |= {name}
        rest = {name: self._replaced(one, named, hidden) for name, one in node.items() if name != "cte_map"}
        return rest | {"cte_map": {"map": tables}}

    def _put(self, table: MadeTable, node: dict[str, Any], of_from: Counter[str]) -> dict[str, Any]:
        """The node that replaces a topic's in the tree."""
        of_from[table.name.lower()] += 1
        count = of_from[table.name.lower()]
        shown = node["alias"] or (table.name if count == 1 else f"{table.name}_{count}")
        [statement] = self._parse(f"select * from {quoted(table.view)} as {quoted(shown)}")["statements"]
        made: dict[str, Any] = statement["node"]["from_table"]
        return made | {name: node[name] for name in ("sample", "column_name_alias") if name in node}

    def _all_topics(self) -> dict[str, Any]:
        """The node that replaces SHOW TABLES in the tree."""
        if self._at is None:
            raise OptionError("no place is named whose topics are tables", hint="Name one with --at")
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in self.names)
        text = f"from (select unnest([{names}]::varchar[]) as name)"
        made: dict[str, Any] = self._parse(text)["statements"][0]["node"]["from_table"]
        return made

    def _topic_called(self, node: dict[str, Any]) -> MadeTable:
        """The table of a ``topic(…)``."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for argument in node["function"]["arguments"]:
            value = self._value(argument["expression"])
            if argument["name"]:
                named[argument["name"].lower()] = value
            else:
                positional.append(value)
        key = json.dumps([positional, sorted(named.items())], default=str)
        if any(name in named for name in (*Side, "schemas")):
            key += self._shown_paths()
        return self._table(key, lambda: self._make(positional, named))

    def _topic_at(self, topic: str) -> MadeTable:
        """The table of a topic that is named without a location."""
        assert self._at is not None
        key = json.dumps([topic])
        if self._at.schemas is not None:
            key += self._shown_paths()
        return self._table(key, lambda: self._make_at(topic))

    def _make_at(self, topic: str) -> MadeTable:
        assert self._at is not None
        name, partition = (topic, None) if topic in self.names else parse_topic(topic)
        named = dict(self._at.arguments)
        if partition is not None:
            named["partitions"] = [partition]
        if self._at.schemas is not None and name is not None:
            named |= learn_subjects(self._at.schemas, name)
        return self._open(name, named, DEFAULT_COLUMNS, "utf8", shown=topic)

    def _table(self, key: str, make: Callable[[], MadeTable]) -> MadeTable:
        if key not in self._made:
            self._made[key] = make()
        if self._made[key] not in self.used:
            self.used.append(self._made[key])
        return self._made[key]

    def _shown_paths(self) -> str:
        """What of typed keys and values a query asks for: tables that have other fields are others."""
        return json.dumps({side: None if some is None else sorted(some) for side, some in self._paths.items()})

    def _value(self, expression: dict[str, Any]) -> Any:
        """What a constant expression is, as DuckDB reckons it."""
        parsed = self._parse("select 1")
        parsed["statements"][0]["node"]["select_list"] = [expression | {"alias": ""}]
        import duckdb

        try:
            return self._one(self._text(parsed))
        except duckdb.Error as error:
            raise OptionError(
                "an argument of topic() is not a constant", found=parts_of(error)[0], expected="text, numbers, or lists"
            ) from None

    def _make(self, positional: list[Any], named: dict[str, Any]) -> MadeTable:
        """The table that ``topic(…)`` asks for."""
        if not 1 <= len(positional) <= 2 or not all(isinstance(one, str) for one in positional):
            raise OptionError(
                "topic() takes a location and a topic",
                found=", ".join(map(repr, positional)) or "nothing",
                expected="topic('s3://logs/tiered', 'orders') or topic('/mnt/tiered', 'orders/3')",
            )
        decode = named.pop("decode", "utf8")
        if decode not in _DECODES:
            raise OptionError("unknown decode", found=repr(decode), expected=" or ".join(_DECODES))
        for name in named:
            if name not in (*_ARGUMENTS, "schemas"):
                near = difflib.get_close_matches(name, _ARGUMENTS, 1)
                raise OptionError(
                    f"topic() has no argument {name!r}",
                    expected=", ".join(sorted(("decode", *_ARGUMENTS))),
                    hint=f"Did you mean {near[0]!r}?" if near else None,
                )
        location, urls = parse_location(positional[0])
        topic, partition = parse_topic(positional[1] if len(positional) > 1 else None)
        if partition is not None:
            if "partitions" in named:
                raise OptionError(
                    "partitions are named twice", hint="Name them in the topic, or with partitions := […]"
                )
            named["partitions"] = [partition]
        if self._broker_options and "bootstrap_servers" in named:
            named["broker_options"] = self._broker_options
        asked = named.pop("columns", DEFAULT_COLUMNS)
        if not isinstance(asked, list | tuple):
            raise OptionError("columns are a list", found=repr(asked), expected="columns := ['offset', 'value']")
        given = {"location": location, "urls": urls, "storage_options": self._storage_options} | named
        return self._open(topic, given, asked, decode, shown=topic or _FUNCTION)

    def _open(
        self, topic: str | None, named: dict[str, Any], asked: Sequence[str], decode: str, *, shown: str
    ) -> MadeTable:
        """Register a topic and its view.

        Args:
            named: arguments of ``scan``. asked: columns.
            shown: the name that the table has.
        """
        typed = self._typed(named, topic, asked)
        asked = typed.pop("columns")
        columns = ("topic", *(name for name in asked if name != "topic"))  # DuckDB counts rows by the first one
        dataset = open_dataset(topic=topic, columns=columns, **named, **typed)
        dataset.keeps_reads = True
        number = len(self._made) + 1
        source, view = f"segreader_source_{number}", f"segreader_topic_{number}"
        self._connection.register(source, dataset)
        cells = [
            f"decode({quoted(name)}) as {quoted(name)}"
            if decode == "utf8" and name in ("key", "value") and dataset.schema.field(name).type == pa.binary()
            else quoted(name)
            for asked_name in dict.fromkeys(name.partition(".")[0] for name in asked)
            for name in (asked_name, f"{asked_name}_raw", f"{asked_name}_error")
            if name in dataset.schema.names
        ]
        query = f"select {', '.join(cells)} from {quoted(source)}"
        self._connection.execute(f"create temp view {quoted(view)} as {query}")
        return MadeTable(source, view, query, shown, dataset)

    def _typed(self, named: dict[str, Any], topic: str | None, asked: Sequence[str]) -> dict[str, Any]:
        """The arguments of ``scan`` for typed keys and values, with no more of their fields than the query names."""
        given: dict[str, Any] = {name: named.pop(name) for name in (*Side, "schemas") if name in named}
        schemas = given.pop("schemas", None)
        if schemas is not None:
            given = learn_sides(schemas, topic) | given
        given = {side: learn(one, topic) for side, one in given.items()}
        columns: list[str] = []
        for name in asked:
            paths = self._paths.get(name) if name in given else None
            if paths is None:
                columns.append(name)
                continue
            whole = plan_decoding(given[name], Side(name), topic, version=named.get("schema_version")).type
            columns += [f"{name}.{path}" for path in _known_paths(whole, paths)] or [name]
        return {"columns": columns, **given}

    def close(self) -> None:
        """Give back what the topics hold."""
        for dataset in self.datasets:
            dataset.close()


def _paths_of_sides(parsed: Any) -> dict[str, set[tuple[str, ...]] | None]:
    """The fields of keys and values that a query names, as the parts of their paths.

    ``None`` where it may need all of them: it names the column itself, or has a ``*``.
    """
    found: dict[str, set[tuple[str, ...]] | None] = {side.value: set() for side in Side}
    pending = [parsed]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
            continue
        if not isinstance(node, dict):
            continue
        pending += node.values()
        if node.get("class") == "STAR":
            return dict.fromkeys(found)
        if node.get("class") != "COLUMN_REF":
            continue
        names = [str(name) for name in node["column_names"]]
        for at, name in enumerate(names):
            side = name.lower()
            if side in found and (paths := found[side]) is not None:
                if at + 1 == len(names):
                    found[side] = None
                else:
                    paths.add(tuple(names[at + 1 :]))
    return found


def _fields_of(kind: Type, path: str) -> Iterator[str]:
    for one in kind.fields if kind.kind is ValueKind.STRUCT else ():
        yield f"{path}.{one.name}"
        yield from _fields_of(one.type, f"{path}.{one.name}")


def _known_paths(whole: Type, paths: Iterable[tuple[str, ...]]) -> list[str]:
    """The paths as ``scan`` takes them. One that is not known exactly ends where it is: DuckDB says what is wrong.

    Names of SQL are the same in any case.
    """
    known: set[str] = set()
    for path in sorted(paths):
        one, found = whole, []
        for name in path:
            fields = [field for field in one.fields if field.name.lower() == name.lower()]
            if one.kind is not ValueKind.STRUCT or len(fields) != 1:
                break
            found.append(fields[0].name)
            one = fields[0].type
        if not found:
            return []
        known.add(".".join(found))
    return sorted(known)


def _end_of_call(tokens: Sequence[Token], at: int) -> int:
    """Where the parenthesis ends that ``tokens[at]`` opens."""
    depth = 0
    for token in tokens[at:]:
        depth += (token.text == "(") - (token.text == ")")
        if not depth:
            return token.stop
    raise OptionError("a parenthesis is not closed", found=tokens[at - 1].text)


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def parts_of(error: BaseException) -> tuple[str, str | None]:
    """What DuckDB says in one line, without its drawing of the query, and the names that it proposes instead."""
    text = " ".join(str(error).partition("\n\nLINE ")[0].split())
    match = _PROPOSAL.search(text)
    return (text.rstrip("!"), None) if match is None else (text[: match.start()].rstrip(" !"), match[0])


def hint_for(message: str, query: str, tables: QueryTables) -> str:
    """What to do about a message of DuckDB that proposes nothing."""
    for name in tables.names if "rror" in message else ():
        if not name.isidentifier() and re.search(rf"""(?<!["'\w]){re.escape(name)}(?!["'\w/])""", query):
            return f"Write {quoted(name)}, in double quotes"
    if "syntax error" in message and _BARE_OFFSET.search(query):
        return 'offset is a word of SQL: write "offset", with double quotes, for the column'
    if "syntax error" in message:
        return "DuckDB's SQL is read here: https://duckdb.org/docs/sql/introduction"
    if "disabled by configuration" in message:
        return "Other files are read with --allow-files"
    if "Malformed JSON" in message:
        return "Some texts are not JSON: try_cast(value as json)->>'$.field' is NULL for them"
    return "See segreader sql --help for what a topic has"
