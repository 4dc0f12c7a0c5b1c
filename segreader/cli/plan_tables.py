"""``segreader plan`` on a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from segreader.cli.encoding import printable
from segreader.cli.output import console, shown_partitions, shown_size
from segreader.plan.live import LivePlan
from segreader.plan.split import EndReason, ReadEnd

if TYPE_CHECKING:
    from segreader.errors import SegreaderError
    from segreader.plan.cost import CostEstimate
    from segreader.plan.split import Gap, ReadPlan, Split
    from segreader.segment import TopicIdPartition

    Errors = Mapping[TopicIdPartition, SegreaderError]

_SHOWN = 20
_PARTS = 200


def print_plan(decided: ReadPlan, cost: CostEstimate, errors: Errors, *, has_splits: bool) -> None:
    """Print what a plan says and costs, and which partitions cannot be planned."""
    out = console()
    splits: dict[TopicIdPartition, list[Split]] = defaultdict(list)
    for split in decided.splits:
        splits[split.partition].append(split)
    if isinstance(decided, LivePlan):
        _print_parts(out, decided)
        out.print()
    _print_partitions(out, decided, splits, errors)
    if has_splits and decided.splits:
        out.print()
        _print_splits(out, decided.splits)
    _print_lines(out, "left out", (drop.text for drop in decided.dropped), "yellow")
    _print_cost(out, decided, cost)


def _print_partitions(
    out: Console, decided: ReadPlan, splits: dict[TopicIdPartition, list[Split]], errors: Errors
) -> None:
    """A row for each partition, and one for each gap in it."""
    table = _table("partition", "splits", "size", "offsets", "ends")
    starts = {partition: some[0].offsets.start for partition, some in splits.items()}
    if isinstance(decided, LivePlan):
        starts = {part.partition: part.offsets.start for part in reversed(decided.parts)}
    gaps: dict[TopicIdPartition, list[Gap]] = defaultdict(list)
    for gap in decided.gaps:
        gaps[gap.partition].append(gap)
    ends = {end.partition: end for end in decided.ends}
    partitions = sorted([*ends, *errors], key=lambda one: one.order)
    names = shown_partitions((str(one), one.topic_id) for one in partitions)
    for partition, name in zip(partitions, names, strict=True):
        if partition in errors:
            table.add_row(name, "", "", "", Text("cannot be planned: see the error", "red"))
            continue
        end, mine = ends[partition], splits.get(partition, [])
        table.add_row(
            name,
            str(len(mine)),
            shown_size(sum(split.positions.size for split in mine)),
            _offsets(starts[partition], end.offset) if partition in starts else "nothing",
            Text(_reason(end), "yellow" if end.reason.is_early else ""),
        )
        for gap in gaps[partition][:_SHOWN]:
            table.add_row(name, "", "", _offsets(gap.start, gap.stop), Text(_missing(gap), "red"))
        if len(gaps[partition]) > _SHOWN:
            more = f"{len(gaps[partition]) - _SHOWN} more gaps; -o json has all"
            table.add_row(name, "", "", "", Text(more, "red"))
    out.print(table)


def _print_parts(out: Console, decided: LivePlan) -> None:
    """Of a live topic: which offsets come from where."""
    table = _table("partition", "from", "offsets", "size", "segment")
    for part in decided.parts[:_PARTS]:
        table.add_row(
            str(part.partition),
            part.read_from.value,
            _offsets(part.offsets.start, part.offsets.stop),
            "" if part.size is None else shown_size(part.size),
            Text(printable(part.segment_id or (part.splits[0].log if part.splits else ""), 1000), overflow="fold"),
        )
    out.print(table)
    if len(decided.parts) > _PARTS:
        out.print(f"{len(decided.parts) - _PARTS} more parts; -o json has all")


def _print_splits(out: Console, splits: Iterable[Split]) -> None:
    table = _table("bytes", "size", "offsets", "aborted", "log")
    for split in splits:
        table.add_row(
            f"{split.positions.start}..{split.positions.stop}",
            shown_size(split.positions.size),
            _offsets(split.offsets.start, split.offsets.stop),
            str(len(split.aborted) or ""),
            Text(printable(split.log, 1000), overflow="fold"),
        )
    out.print(table)


def _print_lines(out: Console, name: str, texts: Iterable[str], style: str) -> None:
    lines = list(texts)
    for text in lines[:_SHOWN]:
        out.print(Text(f"{name}: {printable(text, 1000)}", style), soft_wrap=True)
    if len(lines) > _SHOWN:
        out.print(Text(f"{name}: {len(lines) - _SHOWN} more; -o json has all", style))


def _print_cost(out: Console, decided: ReadPlan, cost: CostEstimate) -> None:
    facts = Table.grid(padding=(0, 2))
    planning = "" if cost.planning_requests is None else f", and {cost.planning_requests} for this plan"
    money = "give your prices with --prices or --price"
    if cost.prices is not None and cost.money is not None:
        parts = f"requests {_money(cost.money_for_requests)}, bytes {_money(cost.money_for_bytes)}"
        money = f"{_money(cost.money)} {cost.prices.currency}".rstrip() + f" ({parts})"
    for name, text in (
        ("partitions", str(len(decided.ends))),
        ("splits", str(len(decided.splits))),
        ("objects", str(cost.objects)),
        ("bytes", f"{cost.size} ({shown_size(cost.size)})"),
        ("GET requests", f"{cost.requests} over HTTP{planning}"),
        ("cost", money),
    ):
        facts.add_row(Text(name, "dim"), Text(text))
    out.print()
    out.print(facts)


def _reason(end: ReadEnd) -> str:
    match end.reason:
        case EndReason.OPEN_TRANSACTION:
            return f"before a transaction of producer {end.producer_id} that is still open"
        case EndReason.DAMAGE:
            return "before damage that hides how transactions ended"
        case EndReason.REQUESTED:
            return "as asked for"
        case EndReason.LATEST:
            return "where the live log ended"
        case EndReason.LATEST_STABLE:
            return "at the live log's last stable offset"
        case EndReason.END_OF_DATA:
            return "with the last segment"


def _missing(gap: Gap) -> str:
    if gap.held_back is None or gap.held_back >= gap.start:
        return "missing: in no segment"
    return f"missing: in no segment; nothing from {gap.held_back} on is returned, for transactions are undecided there"


def _offsets(start: int, stop: int | None) -> str:
    return f"{start}..{'' if stop is None else stop}"


def _money(amount: Decimal | None) -> str:
    """An amount without an exponent, to six digits behind the point."""
    return "" if amount is None else f"{amount:.6f}".rstrip("0").rstrip(".")


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="dim")
