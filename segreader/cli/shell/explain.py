"""What a query would read, and what that costs: known before anything of it is read."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Final

from segreader.cli.output import JSON_ENDS, json_line, json_rows, stdout
from segreader.errors import OptionError
from segreader.plan.cost import CostEstimate, PriceTable, estimate
from segreader.plan.split import ReadPlan
from segreader.values import dataclass

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from segreader.cli.sql_topics import MadeTable

_SCAN: Final = "Function: PYTHON_ARROW_SCAN"
_PATIENCE_S: Final = 2.0
_TICK_S: Final = 0.05
_ROWS: Final = 8192


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """One read of one topic.

    Args:
        name: of the table.
        isolation_level: of its records.
    """

    name: str
    plan: ReadPlan
    cost: CostEstimate
    isolation_level: str


@dataclass(frozen=True, slots=True)
class QueryCost:
    """What a query reads at most: a LIMIT, or what a join finds, may end a read before.

    Args:
        engine: DuckDB's own plan, as it draws it; empty where it was not asked for.
    """

    reads: tuple[PlannedRead, ...]
    engine: str = ""

    def total(self, prices: PriceTable | None) -> CostEstimate:
        """All reads together."""
        costs = [read.cost for read in self.reads]
        known = [one.planning_requests for one in costs if one.planning_requests is not None]
        return CostEstimate(
            objects=len({split.log for read in self.reads for split in read.plan.splits}),
            requests=sum(one.requests for one in costs),
            size=sum(one.size for one in costs),
            planning_requests=sum(known) if known else None,
            prices=prices,
        )

    def row(self, prices: PriceTable | None) -> dict[str, Any]:
        """All of it as one object for JSON: each read as ``segreader plan`` has it."""
        from segreader.cli.plan_rows import cost_row, plan_row

        reads = [{"table": one.name} | plan_row(one.plan, one.cost, one.isolation_level, {}) for one in self.reads]
        return {"reads": reads, "cost": cost_row(self.total(prices)), "duckdb": self.engine or None}


def rehearse(
    tables: Sequence[MadeTable],
    text: str,
    open_engine: Callable[[], AbstractContextManager[DuckDBPyConnection]],
    *,
    is_pivot: bool,
    prices: PriceTable | None,
) -> QueryCost:
    """What a query reads.

    It runs in a DuckDB of its own where no topic has a row, and the filters are noted with which DuckDB asks for them.
    A PIVOT that finds its columns itself is not run: it reads its topics once for these, and once for its rows.

    Args:
        tables: those that it names.
        text: as it was prepared.
        open_engine: opens a DuckDB that may do no more than that of the query.

    Raises:
        duckdb.Error: it is refused. SegreaderError: a topic cannot be planned.
    """
    if is_pivot:
        return QueryCost(tuple(_planned(table, None, prices) for table in tables for _ in range(2)))
    with open_engine() as connection, ExitStack() as stack:
        asked = {}
        for table in tables:
            asked[table.view] = stack.enter_context(table.dataset.rehearsed())
            connection.register(table.source, table.dataset)
            connection.execute(f'create temp view "{table.view}" as {table.query}')
        drawn = str(connection.execute(f"explain {text}").fetchall()[0][1])
        scans = drawn.count(_SCAN)
        if scans:
            _run(connection, text, lambda: sum(map(len, asked.values())) >= scans)
    is_all = sum(map(len, asked.values())) >= scans
    reads = []
    for table in tables:
        # DuckDB does not begin a read of which an empty topic makes nothing.
        filters = asked[table.view] or ([] if is_all else [None])
        reads += [_planned(table, one, prices) for one in filters]
    return QueryCost(tuple(reads), drawn)


def _run(connection: DuckDBPyConnection, text: str, is_enough: Callable[[], bool]) -> None:
    """Run a query until enough is known of it, or for some seconds: what is not of topics may be long."""
    import duckdb

    def step() -> None:
        with closing(connection.sql(text).to_arrow_reader(_ROWS)) as reader:
            for _ in reader:
                pass

    with ThreadPoolExecutor(1, "segreader-explain") as thread:
        future = thread.submit(step)
        deadline = time.monotonic() + _PATIENCE_S
        while not wait([future], _TICK_S).done:
            if is_enough() or time.monotonic() > deadline:
                connection.interrupt()
        with suppress(duckdb.InterruptException):
            future.result()


def _planned(table: MadeTable, predicate: Any, prices: PriceTable | None) -> PlannedRead:
    before = table.dataset.requests
    plan = table.dataset.plan(predicate)
    after = table.dataset.requests
    planning = None if before is None or after is None else after - before
    cost = estimate(plan, prices, planning_requests=planning)
    return PlannedRead(table.name, plan, cost, table.dataset.isolation_level.value)


def print_cost(cost: QueryCost, prices: PriceTable | None, form: str, file: IO[bytes]) -> None:
    """Print what a query reads and costs, and DuckDB's plan below.

    Raises:
        OptionError: the format holds rows alone.
    """
    if form in JSON_ENDS:
        with json_rows(file, form) as write:
            write(json_line(cost.row(prices)).encode() + JSON_ENDS[form])
        return
    if form != "table":
        raise OptionError(f"EXPLAIN is not printed as {form}", expected="table, json or ndjson")
    with _printing_to(file):
        _print_tables(cost, prices)


def _print_tables(cost: QueryCost, prices: PriceTable | None) -> None:
    from segreader.cli.output import printable
    from segreader.cli.plan_rows import cost_facts, print_plan
    from segreader.cli.table import Screen, print_facts

    screen = Screen.of()
    for number, read in enumerate(cost.reads):
        which = f" ({number + 1} of {len(cost.reads)})" if len(cost.reads) > 1 else ""
        screen.line(f"read of {printable(read.name)}{which}, at most", "bold")
        print_plan(read.plan, replace(read.cost, prices=prices), {}, has_splits=False)
        screen.line("")
    if len(cost.reads) != 1:
        screen.line("all reads" if cost.reads else "no topic is read", "bold")
        if cost.reads:
            print_facts(cost_facts(cost.total(prices)), screen)
        screen.line("")
    if cost.engine:
        screen.line(cost.engine.rstrip())


@contextmanager
def _printing_to(file: IO[bytes]) -> Iterator[None]:
    """What is printed meanwhile goes to a file."""
    if file is stdout():
        yield
        return
    text = io.TextIOWrapper(file, "utf-8", write_through=True)
    try:
        with redirect_stdout(text):
            yield
    finally:
        text.detach()
