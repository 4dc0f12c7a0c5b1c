"""What a plan says and costs, for people and as JSON, and the prices that a command line gives."""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from segreader.cli.output import printable, shown_partitions, shown_size
from segreader.cli.table import ByteUnit, Cell, Marked, Screen, TableColumn, fixed, number, print_facts, print_table
from segreader.errors import ObjectNotFoundError, OptionError, SegreaderError, shown_count

if TYPE_CHECKING:
    from segreader.plan.cost import CostEstimate, PriceTable
    from segreader.plan.live import LivePlan
    from segreader.plan.split import Gap, ReadEnd, ReadPlan, Split
    from segreader.ranges import OffsetRange
    from segreader.segment import TopicIdPartition

    Errors = Mapping[TopicIdPartition, SegreaderError]


Row = dict[str, Any]

_LONGEST_FILE = 64 << 10
_NOT_PLAIN = ("partition", "isolation_level", "positions", "offsets", "epochs", "aborted")


def parse_price_options(file: str | None, texts: tuple[str, ...]) -> PriceTable | None:
    """The price table of a command line; its own entries go before those of the file."""
    from segreader.plan.cost import parse_prices

    if file is None and not texts:
        return None
    given = {} if file is None else read_prices(file)
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError("a price is NAME=VALUE", expected="such as get_per_1000=0.0004")
        given[name] = value
    return parse_prices(given)


def read_prices(name: str) -> dict[str, object]:
    """What a file of prices says, in JSON or TOML. Raises OptionError, ObjectNotFoundError."""
    try:
        with open(name, "rb") as file:
            data = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise ObjectNotFoundError(
            "the price table cannot be read", source=name, found=error.strerror, hint="Check the path"
        ) from None
    try:
        if len(data) > _LONGEST_FILE:
            raise ValueError("too long")
        text = data.decode("utf-8")
        parse = tomllib.loads if name.lower().endswith(".toml") else json.loads
        given = parse(text, parse_float=Decimal)
    except (ValueError, RecursionError):  # both parsers' errors are ValueErrors, as are texts that are not UTF-8
        raise OptionError("the price table is not JSON or TOML (.toml)", source=name) from None
    if not isinstance(given, dict):
        raise OptionError("the price table is not an object of names and values", source=name)
    return given


def plan_row(decided: ReadPlan, cost: CostEstimate, isolation_level: str, errors: Errors) -> Row:
    """Everything that a plan says, as one object for JSON.

    Args:
        errors: why other partitions cannot be planned.
    """
    rows = [*_partition_rows(decided), *map(_error_row, errors.items())]
    rows.sort(key=lambda row: (row["topic"], row["partition"], row["topic_id"] or ""))
    return {
        "location": decided.location,
        "isolation_level": isolation_level,
        "partitions": rows,
        "notes": list(dict.fromkeys(decided.notes)),
        "cost": cost_row(cost),
    }


def cost_row(cost: CostEstimate) -> Row:
    """What reading costs, as an object for JSON."""
    return {
        "objects": cost.objects,
        "requests": cost.requests,
        "planning_requests": cost.planning_requests,
        "size": cost.size,
        "currency": cost.prices.currency if cost.prices is not None else None,
        "money": _money(cost.money),
        "money_for_requests": _money(cost.money_for_requests),
        "money_for_bytes": _money(cost.money_for_bytes),
    }


def _partition_rows(decided: ReadPlan) -> Iterator[Row]:
    splits: dict[TopicIdPartition, list[Split]] = defaultdict(list)
    gaps: dict[TopicIdPartition, list[Row]] = defaultdict(list)
    dropped: dict[TopicIdPartition, list[Row]] = defaultdict(list)
    for split in decided.splits:
        splits[split.partition].append(split)
    for gap in decided.gaps:
        gaps[gap.partition].append({"start_offset": gap.start, "stop_offset": gap.stop, "held_back": gap.held_back})
    for drop in decided.dropped:
        dropped[drop.partition].append(
            {
                "log": drop.log,
                "start_offset": drop.start,
                "stop_offset": _offset(drop.stop),
                "reason": drop.reason.value,
                "detail": drop.detail,
            }
        )
    live = live_rows(decided)
    for end in decided.ends:
        mine = splits[end.partition]
        yield live.get(end.partition, {}) | {
            "topic": end.partition.topic,
            "partition": end.partition.partition,
            "topic_id": end.partition.topic_id,
            "start_offset": _start(decided, end.partition, mine),
            "stop_offset": end.offset,
            "end_reason": end.reason.value,
            "open_producer_id": end.producer_id,
            "size": sum(split.positions.size for split in mine),
            "gaps": gaps[end.partition],
            "dropped": dropped[end.partition],
            "splits": [_split_row(split) for split in mine],
            "error": None,
        }


def _error_row(item: tuple[TopicIdPartition, SegreaderError]) -> Row:
    partition, error = item
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "topic_id": partition.topic_id,
        "start_offset": None,
        "stop_offset": None,
        "end_reason": None,
        "open_producer_id": None,
        "size": 0,
        "gaps": [],
        "dropped": [],
        "splits": [],
        "error": str(error),
    }


def _start(decided: ReadPlan, partition: TopicIdPartition, splits: list[Split]) -> int | None:
    """The first offset that is read of a partition; ``None`` where nothing is."""
    from segreader.plan.live import LivePlan

    if isinstance(decided, LivePlan):
        return next((part.offsets.start for part in decided.parts if part.partition == partition), None)
    return splits[0].offsets.start if splits else None


def live_rows(decided: ReadPlan) -> dict[TopicIdPartition, Row]:
    """What a plan of live partitions says besides; nothing of other plans."""
    from segreader.plan.live import LivePlan

    if not isinstance(decided, LivePlan):
        return {}
    return {
        one.partition: {
            "log_start": one.marks.log_start,
            "local_start": one.marks.local_start,
            "last_tiered": one.marks.last_tiered,
            "seam_offset": one.seam.seam,
            "parts": [
                {
                    "read_from": part.read_from.value,
                    "start_offset": part.offsets.start,
                    "stop_offset": part.offsets.stop,
                    "size": part.size,
                    "segment_id": part.segment_id,
                }
                for part in decided.parts
                if part.partition == one.partition
            ],
        }
        for one in decided.partitions_asked
    }


def _split_row(split: Split) -> Row:
    """All fields of a split; those that are no plain values under names of their own."""
    plain = {field.name: getattr(split, field.name) for field in fields(split) if field.name not in _NOT_PLAIN}
    return plain | {
        "start_position": split.positions.start,
        "stop_position": split.positions.stop,
        "start_offset": split.offsets.start,
        "stop_offset": split.offsets.stop,
        "following": [list(one) for one in split.following],
        "leader_epochs": [{"epoch": epoch, "first_offset": first} for epoch, first in split.epochs],
        "aborted": [
            {"producer_id": one.producer_id, "first_offset": one.first_offset, "last_offset": one.last_offset}
            for one in split.aborted
        ],
    }


def _offset(stop: int) -> int | None:
    from segreader.stored.segment_ends import OPEN_END

    return stop if stop <= OPEN_END else None


def _money(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


_SHOWN = 20
_PARTS = 200


def print_plan(decided: ReadPlan, cost: CostEstimate, errors: Errors, *, has_splits: bool) -> None:
    """Print what a plan says and costs, and which partitions cannot be planned."""
    from segreader.plan.live import LivePlan

    screen = Screen.of()
    splits: dict[TopicIdPartition, list[Split]] = defaultdict(list)
    for split in decided.splits:
        splits[split.partition].append(split)
    if isinstance(decided, LivePlan):
        _print_parts(screen, decided)
        screen.line("")
    _print_partitions(screen, decided, splits, errors)
    if has_splits and decided.splits:
        screen.line("")
        _print_splits(screen, decided.splits)
    _print_lines(screen, "left out", (drop.text for drop in decided.dropped), "yellow")
    _print_cost(screen, decided, cost)


def _print_partitions(
    screen: Screen, decided: ReadPlan, splits: dict[TopicIdPartition, list[Split]], errors: Errors
) -> None:
    """A row for each partition, and one for each gap in it."""
    from segreader.plan.live import LivePlan

    starts = {partition: some[0].offsets.start for partition, some in splits.items()}
    if isinstance(decided, LivePlan):
        starts = {part.partition: part.offsets.start for part in reversed(decided.parts)}
    gaps: dict[TopicIdPartition, list[Gap]] = defaultdict(list)
    for gap in decided.gaps:
        gaps[gap.partition].append(gap)
    ends = {end.partition: end for end in decided.ends}
    partitions = sorted([*ends, *errors], key=lambda one: one.order)
    names = shown_partitions((str(one), one.topic_id) for one in partitions)
    sizes = {one: sum(split.positions.size for split in splits.get(one, [])) for one in ends}
    unit = ByteUnit.of(sizes.values())
    rows: list[tuple[Cell, ...]] = []
    for partition, name in zip(partitions, names, strict=True):
        if partition in errors:
            rows.append((name, "", "", "", "", Marked("cannot be planned: see the error", "red")))
            continue
        end, start = ends[partition], starts.get(partition)
        rows.append(
            (
                name,
                f"{len(splits.get(partition, [])):,}",
                unit.text(sizes[partition]),
                "" if start is None else str(start),
                "" if end.offset is None else str(end.offset),
                Marked(
                    _reason(end) + ("; nothing to read" if start is None else ""),
                    "yellow" if end.reason.is_early else "",
                ),
            )
        )
        rows += [
            (name, "", "", str(gap.start), "" if gap.stop is None else str(gap.stop), Marked(_missing(gap), "red"))
            for gap in gaps[partition][:_SHOWN]
        ]
        if len(gaps[partition]) > _SHOWN:
            more = f"{shown_count(len(gaps[partition]) - _SHOWN, 'more gap')}; -o json has all"
            rows.append((name, "", "", "", "", Marked(more, "red")))
    total = (f"{len(partitions):,} partitions", f"{len(decided.splits):,}", unit.text(sum(sizes.values())))
    print_table(
        (
            TableColumn("partition"),
            number("splits"),
            number(f"size ({unit.name})"),
            number("start"),
            number("stop"),
            TableColumn("ends"),
        ),
        rows,
        total=total if len(partitions) > 1 else (),
        screen=screen,
    )


def _print_parts(screen: Screen, decided: LivePlan) -> None:
    """Of a live topic: which offsets come from where."""
    shown = decided.parts[:_PARTS]
    unit = ByteUnit.of(part.size for part in shown)
    print_table(
        (
            TableColumn("partition"),
            fixed("from"),
            number("start"),
            number("stop"),
            number(f"size ({unit.name})"),
            TableColumn("segment"),
        ),
        [
            (
                str(part.partition),
                part.read_from.value,
                str(part.offsets.start),
                "" if part.offsets.stop is None else str(part.offsets.stop),
                unit.text(part.size),
                printable(part.segment_id or (part.splits[0].log if part.splits else ""), None),
            )
            for part in shown
        ],
        screen=screen,
    )
    if len(decided.parts) > _PARTS:
        screen.line(f"{shown_count(len(decided.parts) - _PARTS, 'more part')}; -o json has all")


def _print_splits(screen: Screen, splits: Sequence[Split]) -> None:
    unit = ByteUnit.of(split.positions.size for split in splits)
    print_table(
        (
            number("first byte"),
            number(f"size ({unit.name})"),
            number("start"),
            number("stop"),
            number("aborted"),
            TableColumn("log"),
        ),
        [
            (
                str(split.positions.start),
                unit.text(split.positions.size),
                str(split.offsets.start),
                "" if split.offsets.stop is None else str(split.offsets.stop),
                str(len(split.aborted) or ""),
                printable(split.log, None),
            )
            for split in splits
        ],
        screen=screen,
    )


def _print_lines(screen: Screen, name: str, texts: Iterable[str], style: str) -> None:
    lines = list(texts)
    for text in lines[:_SHOWN]:
        screen.line(f"{name}: {printable(text, None)}", style)
    if len(lines) > _SHOWN:
        screen.line(f"{name}: {len(lines) - _SHOWN} more; -o json has all", style)


def _print_cost(screen: Screen, decided: ReadPlan, cost: CostEstimate) -> None:
    counts = ("partitions", f"{len(decided.ends):,}"), ("splits", f"{len(decided.splits):,}")
    screen.line("")
    print_facts([*counts, *cost_facts(cost)], screen)


def cost_facts(cost: CostEstimate) -> list[tuple[str, str]]:
    """What reading costs, as names and values for people."""
    planning = "" if cost.planning_requests is None else f", and {cost.planning_requests:,} for this plan"
    return [
        ("objects", f"{cost.objects:,}"),
        ("bytes", f"{cost.size:,} ({shown_size(cost.size)})"),
        ("GET requests", f"{cost.requests:,} over HTTP{planning}"),
        ("cost", cost.money_text or "give your prices with --prices or --price"),
    ]


def note_if_beyond(decided: ReadPlan, offsets: OffsetRange) -> str | None:
    """A note for people on a read without a record, if that is because every log ends before the offsets asked for."""
    from segreader.plan.split import EndReason

    if not offsets.start or decided.gaps or any(end.reason is not EndReason.END_OF_DATA for end in decided.ends):
        return None
    note = f"no record that can be read has offset {offsets.start} or a later one"
    ends = [(end.offset, str(end.partition)) for end in decided.ends if end.offset is not None]
    if not ends or len(ends) < len(decided.ends):  # only reading finds an end
        return note
    last, partition = max(ends)
    return f"{note}: the last segment ends at offset {last}, in {partition}"


def _reason(end: ReadEnd) -> str:
    from segreader.plan.split import EndReason

    match end.reason:
        case EndReason.OPEN_TRANSACTION:
            return f"before a transaction of producer {end.producer_id} that is still open"
        case EndReason.DAMAGE:
            return "before damage that hides how transactions ended"
        case EndReason.REQUESTED:
            return "as requested"
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
