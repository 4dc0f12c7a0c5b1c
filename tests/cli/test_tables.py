"""Tables in a terminal of 60, 100 or 200 columns, and in a pipe."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from corpus import CORPUS

from docs.terminal import in_terminal
from segreader.cli.main import main
from segreader.cli.row_writer import ValueTexts, row_writer
from segreader.cli.table import (
    ByteUnit,
    Cell,
    Marked,
    Screen,
    StreamedTable,
    TableColumn,
    bytes_cell,
    cells,
    fixed,
    number,
    print_table,
)
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import ProducerRecord

REMOTE = CORPUS / "tv2" / "remote"
LOG = next(REMOTE.glob("kafka-tiered-storage/nulls-0-*/*.log"))
COMMANDS: dict[str, list[object]] = {
    "ls topics": ["ls", REMOTE],
    "ls partitions": ["ls", REMOTE, "multi"],
    "plan": ["plan", CORPUS / "cluster" / "remote", "diverged-mid"],
    "offsets": ["offsets", REMOTE, "multi", "--timestamp", "2025-11-27T01:38:03Z"],
    "inspect": ["inspect", REMOTE, "multi"],
    "cat": ["cat", REMOTE, "nulls"],
    "sql": ["sql", f"select * from topic('{REMOTE}', 'multi') limit 50"],
    "dump": ["dump", "--records", LOG],
}


@pytest.mark.parametrize("columns", [60, 100, 200])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_row_is_wider_than_the_terminal(name: str, columns: int) -> None:
    shown = in_terminal(*COMMANDS[name], columns=columns)

    assert shown.code == 0, shown.text
    remarks = ("in /", "no room for: ", "left out: ", "note: ", str(LOG))
    rows = [line for line in shown.lines if not line.startswith(remarks)]
    assert len(rows) > 3
    assert max(map(cells, rows)) <= columns


def test_what_has_no_room_is_named_and_never_a_number_is_cut() -> None:
    narrow, wide = (in_terminal("ls", REMOTE, "multi", columns=columns).lines for columns in (60, 200))

    assert narrow[-1] == "no room for: stop, from, to, layout, topic id"
    assert narrow[0].split() == ["partition", "segments", "size", "(KiB)", "growth", "(GiB/day)", "start"]
    assert [line.split() for line in narrow[1:5]] == [line.split()[:5] for line in wide[1:5]]
    assert wide[0].endswith("topic id")
    assert "no room" not in wide[-1]


def test_text_is_cut_to_the_terminal_and_whole_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch([b"v" * 500])])

    (row,) = [line for line in in_terminal("cat", tmp_path, columns=100).lines if line.startswith("orders-0")]
    main(["cat", str(tmp_path), "-o", "table"])

    assert re.search(r"NULL +v+…$", row)
    assert 80 < cells(row) < 100  # and the column of headers behind it
    assert "v" * 500 in capsys.readouterr().out


def test_colours_are_for_terminals_without_no_color(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["verify", CORPUS / "cluster" / "remote", "diverged", "--all"]
    main([*map(str, command), "-o", "table"])

    coloured = in_terminal(*command)
    assert "\x1b[" in coloured.raw
    for setting in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = in_terminal(*command, environment=setting)
        assert "\x1b[" not in plain.raw
        assert plain.lines == coloured.lines
    assert "\x1b[" not in capsys.readouterr().out


def printed(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]], width: int | None, **more: object
) -> list[str]:
    """The lines of a table for a screen of a width."""
    file = io.StringIO()
    print_table(columns, rows, screen=Screen(file, width), **more)  # type: ignore[arg-type]
    return file.getvalue().splitlines()


def test_numbers_stand_to_the_right_and_text_to_the_left() -> None:
    assert printed(
        [TableColumn("name"), number("count")], [("a", "1"), ("bcdef", "1,000")], None, total=("2", "1,001")
    ) == [
        "name   count",
        "a          1",
        "bcdef  1,000",
        "2      1,001",
    ]


def test_a_column_in_which_no_row_says_anything_is_not_shown() -> None:
    assert printed([TableColumn("a"), number("b"), TableColumn("c")], [("1", "", "x"), ("2", "", "")], None) == [
        "a  c",
        "1  x",
        "2",
    ]


def test_a_line_of_which_no_column_has_room_is_not_there() -> None:
    rows = [("1", "offsets 0 to 9", "a" * 20), ("", "", "b" * 20), ("2", "", "")]
    assert printed([TableColumn("id"), fixed("where"), fixed("changes")], rows, 30) == [
        "id  where",
        "1   offsets 0 to 9",
        "2",
        "no room for: changes",
    ]


def test_the_widest_text_gives_way_first() -> None:
    rows = [("x" * 30, "y" * 20, "2025-11-27T01:38:02Z")]
    columns = [TableColumn("long"), TableColumn("short"), fixed("time")]

    assert printed(columns, rows, 64)[1] == "x" * 19 + "…" + "  " + "y" * 20 + "  " + rows[0][2]
    assert printed(columns, rows, 48)[1] == "x" * 11 + "…" + "  " + "y" * 11 + "…" + "  " + rows[0][2]


def test_wide_characters_count_as_what_they_take() -> None:
    line = printed([TableColumn("鍵"), number("n")], [("鍵" * 20, "7")], 21)[1]

    assert cells(line) <= 21
    assert line.endswith("  7")
    assert "鍵…" in line


@pytest.mark.parametrize(
    ("sizes", "unit", "shown"),
    [
        ([925, 2_128_129], "KiB", ["0.9", "2,078.3"]),
        ([5 << 30, 90 << 30, None], "GiB", ["5.0", "90.0", ""]),
        ([10, 20], "B", ["10", "20"]),
        ([1, 1 << 40], "GiB", ["<0.1", "1,024.0"]),
        ([0, 3 << 20], "MiB", ["0.0", "3.0"]),
        ([], "B", []),
    ],
    ids=["small and large", "gigabytes", "bytes", "far apart", "nothing", "none"],
)
def test_a_column_of_sizes_has_one_unit_in_which_each_can_be_read(
    sizes: list[int | None], unit: str, shown: list[str]
) -> None:
    found = ByteUnit.of(sizes)

    assert found.name == unit
    assert [found.text(size) for size in sizes] == shown


def test_no_value_an_empty_one_bytes_and_text_never_look_the_same() -> None:
    values = [None, b"", b"\x00\xff", b"NULL", b'""', b'"NULL"', b"0x00ff", b"0x", b"text", b" text", b"text ", b"null"]

    found = [bytes_cell(value) for value in values]
    shown = [cell.text if isinstance(cell, Marked) else cell for cell in found]

    assert len(set(shown)) == len(values)
    assert shown[:3] == ["NULL", '""', "0x00ff"]
    assert shown[8] == "text"


@pytest.mark.parametrize("command", ["cat", "sql", "dump"])
def test_every_command_shows_them_alike(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = [None, b"", b"\x00\xff", b"NULL"]
    directory = write_local_tiered(
        tmp_path, "t", [SegmentBuilder().batch([ProducerRecord(value, b"k") for value in values])]
    )
    query = f"select \"offset\", key, value from topic('{tmp_path}', 't', decode := 'blob')"
    log = next(directory.glob("*.log"))
    commands: dict[str, list[object]] = {
        "cat": ["cat", tmp_path],
        "sql": ["sql", query],
        "dump": ["dump", "--records", log],
    }

    assert main([*map(str, commands[command]), "-o", "table"]) == 0

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = [row[row.index("k") + 1] for row in rows if "k" in row]
    assert found == ["NULL", '""', "0x00ff", '"NULL"']


def streamed(batches: Sequence[Sequence[Sequence[Cell]]], columns: Sequence[TableColumn], screen: Screen) -> list[str]:
    """The lines of a table whose rows come in batches."""
    table = StreamedTable(columns, screen)
    for batch in batches:
        table.add(batch)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue().splitlines()


def test_each_screenful_has_one_head_and_columns_stay_where_they_are() -> None:
    rows = [[str(offset), "v" * (offset % 7)] for offset in range(95)]
    lines = streamed(
        [rows[:3], rows[3:50], rows[50:]], [number("offset"), TableColumn("value")], Screen(io.StringIO(), 40, 12)
    )

    heads = [at for at, line in enumerate(lines) if line.startswith("offset")]
    assert heads == list(range(0, 95 + len(heads), 11))
    assert {line.index("v") for line in lines if "v" in line} == {len("offset  ")}


def test_in_a_pipe_there_is_one_head() -> None:
    rows = [[str(offset), "value"] for offset in range(1000)]

    lines = streamed([rows[:10], rows[10:]], [number("offset"), TableColumn("value")], Screen(io.StringIO()))

    assert [line for line in lines if line.startswith("offset")] == lines[:1]


def test_a_number_that_becomes_longer_is_whole_and_the_text_behind_it_gives_way() -> None:
    rows = [["9", "x" * 100], [str(10**15), "x" * 100]]

    lines = streamed([rows[:1], rows[1:]], [number("n"), TableColumn("value")], Screen(io.StringIO(), 40, 24))

    assert str(10**15) in lines[-1]
    assert max(map(len, lines)) == 40
    assert all(line.endswith("…") for line in lines[1:])


def test_the_head_of_cat_comes_once_a_screenful(tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch([b"v"] * 10).batch([b"w"] * 35)])

    lines = in_terminal("cat", tmp_path, columns=100, lines=20).lines

    assert [at for at, line in enumerate(lines) if line.startswith("partition")] == [0, 19, 38]
    assert len(lines) == 45 + 3


def test_sql_names_timestamp_types_as_cat_does(capsys: pytest.CaptureFixture[str]) -> None:
    query = f"select distinct timestamp_type from topic('{REMOTE}', 'ts-append')"

    for form in ("table", "csv", "ndjson"):
        assert main(["sql", query, "-o", form]) == 0
        assert "LogAppendTime" in capsys.readouterr().out


def test_numbers_of_a_query_stand_to_the_right_and_times_have_one_spelling() -> None:
    rows = pa.record_batch(
        {
            "n": pa.array([1, 1000]),
            "at": pa.array([1_764_207_483_252, None], pa.timestamp("ms", "UTC")),
        }
    )
    file = io.BytesIO()

    with row_writer("table", file, rows.schema, ValueTexts(rows.schema, "auto")) as write:
        write(rows)

    assert file.getvalue().decode().splitlines() == ["   n  at", "   1  2025-11-27T01:38:03.252Z", "1000  NULL"]


@pytest.mark.parametrize("command", ["ls topics", "ls partitions", "offsets", "inspect", "cat", "dump"])
def test_every_time_that_is_shown_can_be_given_back_as_an_option(command: str) -> None:
    text = in_terminal(*COMMANDS[command], columns=250).text

    found = re.findall(r"20\d\d-\d\d-\d\d[^ \n]*(?: \d\d:\S*)?", text)
    assert found
    assert [one for one in found if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", one)] == []
