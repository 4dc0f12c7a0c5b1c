"""``segreader ls`` on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from segreader.cli.encoding import printable
from segreader.cli.output import console, shown_size, shown_time

Row = Mapping[str, Any]


def print_topics(rows: Sequence[Row]) -> None:
    """A line for each topic."""
    _print(
        ("topic", "topic id", "partitions", "segments", "size", "layout", "states"),
        [
            (
                row["topic"],
                row["topic_id"] or "",
                str(row["partitions"]),
                _number(row["segments"]),
                _size(row["size"]),
                _layout(", ".join(row["layouts"]), row["is_experimental"]),
                _states(row["states"]),
            )
            for row in rows
        ],
    )


def print_partitions(rows: Sequence[Row]) -> None:
    """A line for each partition."""
    _print(
        ("partition", "topic id", "offsets", "times (UTC)", "size", "segments", "incomplete", "layout", "states"),
        [
            (
                f"{row['topic']}-{row['partition']}",
                row["topic_id"] or "",
                _span(_number(row["start_offset"]), _number(row["stop_offset"])),
                _span(shown_time(row["first_indexed_timestamp"])[:19], shown_time(row["max_timestamp"])[:19]),
                _size(row["size"]),
                _number(row["segments"]),
                _number(row["incomplete"] or None),
                _layout(row["layout"], row["is_experimental"]),
                Text("cannot be read", "red") if row["error"] else _states(row["states"]),
            )
            for row in rows
        ],
    )


def print_segments(rows: Sequence[Row]) -> None:
    """A line for each segment; where their objects lie is said once."""
    objects = [row["object"] or "" for row in rows]
    places = {name.rpartition("/")[0] + "/" for name in objects if name}
    place = places.pop() if len(places) == 1 else ""
    if place:
        console().print(Text(f"in {printable(place, 1000)}", "dim"), soft_wrap=True)
    _print(
        ("base", "last", "size", "latest time (UTC)", "epochs", "state", "object"),
        [
            (
                _number(row["base_offset"]),
                _number(row["last_offset"]),
                _size(row["size"]),
                shown_time(row["max_timestamp"]),
                _epochs([entry["epoch"] for entry in row["leader_epochs"]]),
                Text(_state(row), "" if _is_sound(row) else "yellow"),
                Text(printable(name.removeprefix(place), 1000), overflow="fold"),
            )
            for row, name in zip(rows, objects, strict=True)
        ],
    )


def _is_sound(row: Row) -> bool:
    return row["kind"] == "segment" and not row["missing"] and not row["dropped"]


def _epochs(epochs: Sequence[int]) -> str:
    return f"{epochs[0]}..{epochs[-1]}" if len(epochs) > 1 else "".join(map(str, epochs))


def _state(row: Row) -> str:
    """What a segment is, and what is not read of it."""
    if row["kind"] == "foreign":
        return "belongs to no segment"
    said = []
    if row["state"] is not None:
        said.append(row["state"].replace("_SEGMENT_", " ").lower())
    elif not row["missing"]:
        said.append("active" if row["is_active"] else "finished")
    if row["missing"]:
        said.append(f"no {', '.join(row['missing'])}")
    said += [f"{one['reason']} from {one['start_offset']}" + _until(one["stop_offset"]) for one in row["dropped"]]
    return "; ".join(said)


def _print(columns: Sequence[str], lines: Sequence[Sequence[str | Text]]) -> None:
    """Print a table without the columns in which no line says anything."""
    used = [index for index in range(len(columns)) if any(line[index] for line in lines)]
    table = Table(*(columns[index] for index in used), box=None, pad_edge=False, header_style="dim")
    for line in lines:
        table.add_row(*(line[index] for index in used))
    console().print(table)


def _until(stop: int | None) -> str:
    return "" if stop is None else f" to {stop - 1}"


def _layout(name: str, is_experimental: bool) -> str:
    return f"{name} (experimental)" if is_experimental else name


def _states(states: Mapping[str, int] | None) -> str:
    return ", ".join(f"{number} {name.replace('_SEGMENT_', ' ').lower()}" for name, number in (states or {}).items())


def _span(first: str, last: str) -> str:
    return f"{first}..{last}" if first or last else ""


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _size(size: int | None) -> str:
    return "" if size is None else shown_size(size)
