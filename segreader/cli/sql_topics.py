"""The tables of a query: each ``topic(…)`` in it becomes a view of DuckDB over what is stored there.

DuckDB's own parser finds them: a query goes out as JSON, has other tables put in, and comes back as SQL.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from segreader.cli.options import parse_location, parse_topic
from segreader.errors import OptionError
from segreader.plan.request import DEFAULT_COLUMNS
from segreader.scans import scan
from segreader.tables.dataset import TopicDataset, open_dataset
from segreader.typed.decoding import Side
from segreader.typed.reader_schema import learn, learn_sides, plan_decoding
from segreader.typed.types import Type, ValueKind

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FUNCTION: Final = "topic"
_BARE_OFFSET: Final = re.compile(r"""(?<!["'.\w])offset(?!["'\w])""", re.IGNORECASE)
_NOT_IN_SQL: Final = frozenset(("location", "urls", "renew", "storage_options", "broker_options", "topic", "kernel"))
_DECODES: Final = ("utf8", "blob")
_ARGUMENTS: Final = tuple(
    name
    for name, one in signature(scan).parameters.items()
    if one.kind is Parameter.KEYWORD_ONLY and name not in _NOT_IN_SQL
)


class QueryTables:
    """Parses queries of one connection, and makes the tables that they name.

    Args:
        storage_options, broker_options: of every location.
    """

    def __init__(
        self,
        connection: DuckDBPyConnection,
        storage_options: Mapping[str, object],
        broker_options: Mapping[str, object],
    ) -> None:
        self._connection = connection
        self._storage_options, self._broker_options = storage_options, broker_options
        self._made: dict[str, tuple[str, str]] = {}
        self._paths: dict[str, set[tuple[str, ...]] | None] = {}
        self.datasets: list[TopicDataset] = []

    def prepare(self, query: str) -> str:
        """The query with a view in place of each ``topic(…)``.

        Raises:
            OptionError: it is not one SELECT, or a ``topic(…)`` in it is none.
        """
        parsed = self._parse(query)
        if parsed.get("error"):
            raise _not_a_query(query, str(parsed.get("error_message")))
        if len(parsed["statements"]) != 1:
            raise OptionError("not one query", found=f"{len(parsed['statements'])} statements", expected="one SELECT")
        self._paths = _paths_of_sides(parsed)
        return self._text(self._replaced(parsed, Counter()))

    def _parse(self, query: str) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self._one("select json_serialize_sql(?)", query))
        return parsed

    def _text(self, parsed: Any) -> str:
        return str(self._one("select json_deserialize_sql(?)", json.dumps(parsed)))

    def _one(self, query: str, *parameters: str) -> Any:
        """The one value that a query gives."""
        [[value]] = self._connection.execute(query, list(parameters)).fetchall()
        return value

    def _replaced(self, node: Any, named: Counter[str]) -> Any:
        """The tree of a query with other tables in it. ``named`` counts names in a FROM, where each is one table's."""
        if isinstance(node, list):
            return [self._replaced(one, named) for one in node]
        if not isinstance(node, dict):
            return node
        if node.get("type") == "TABLE_FUNCTION" and node["function"]["function_name"].lower() == _FUNCTION:
            return self._table(node, named)
        if "from_table" in node:
            named = Counter()
        return {name: self._replaced(one, named) for name, one in node.items()}

    def _table(self, node: dict[str, Any], of_from: Counter[str]) -> dict[str, Any]:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for argument in node["function"]["arguments"]:
            value = self._value(argument["expression"])
            if argument["name"]:
                named[argument["name"].lower()] = value
            else:
                positional.append(value)
        key = json.dumps([positional, sorted(named.items())], default=str)
        if key not in self._made:
            self._made[key] = self._make(positional, named)
        view, name = self._made[key]
        of_from[name.lower()] += 1
        count = of_from[name.lower()]
        shown = node["alias"] or (name if count == 1 else f"{name}_{count}")
        table: dict[str, Any] = self._parse(f"select * from {quoted(view)} as {quoted(shown)}")["statements"][0]
        table = table["node"]["from_table"]
        table |= {name: node[name] for name in ("sample", "column_name_alias") if name in node}
        return table

    def _value(self, expression: dict[str, Any]) -> Any:
        """What a constant expression is, as DuckDB reckons it."""
        parsed = self._parse("select 1")
        parsed["statements"][0]["node"]["select_list"] = [expression | {"alias": ""}]
        import duckdb

        try:
            return self._one(self._text(parsed))
        except duckdb.Error as error:
            raise OptionError(
                "an argument of topic() is not a constant", found=first_line(error), expected="text, numbers, or lists"
            ) from None

    def _make(self, positional: list[Any], named: dict[str, Any]) -> tuple[str, str]:
        """Register the topic and its view; returns the name of the view, and that of the topic."""
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
        typed = self._typed(named, topic, asked)
        asked = typed.pop("columns")
        columns = ("topic", *(name for name in asked if name != "topic"))  # DuckDB counts rows by the first one
        named |= typed
        options = self._storage_options
        dataset = open_dataset(location, urls=urls, topic=topic, storage_options=options, columns=columns, **named)
        dataset.keeps_reads = True
        self.datasets.append(dataset)
        number = len(self.datasets)
        source, view = f"segreader_source_{number}", f"segreader_topic_{number}"
        self._connection.register(source, dataset)
        shown = [
            f"decode({quoted(name)}) as {quoted(name)}"
            if decode == "utf8" and name in ("key", "value") and dataset.schema.field(name).type == pa.binary()
            else quoted(name)
            for asked_name in dict.fromkeys(name.partition(".")[0] for name in asked)
            for name in (asked_name, f"{asked_name}_raw", f"{asked_name}_error")
            if name in dataset.schema.names
        ]
        self._connection.execute(f"create temp view {quoted(view)} as select {', '.join(shown)} from {quoted(source)}")
        return view, topic or _FUNCTION

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


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def first_line(error: BaseException) -> str:
    """What DuckDB says, without its drawing of the query."""
    return str(error).strip().split("\n", 1)[0]


def _not_a_query(query: str, message: str) -> OptionError:
    if _BARE_OFFSET.search(query):
        return OptionError(message, hint='offset is a word of SQL: write "offset", with double quotes, for the column')
    if "Only SELECT" in message:
        return OptionError("only queries are run here", expected="one SELECT")
    return OptionError(message, hint="DuckDB's SQL is read here: https://duckdb.org/docs/sql/introduction")
