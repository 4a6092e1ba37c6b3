"""``python -m benchmarks``: run every measurement and print the table, targets beside it."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from benchmarks import core, sqlite
from benchmarks.measure import Ratio

_TMPFS = Path("/dev/shm")  # noqa: S108  # memory-backed, so that an fsync costs nothing and the rest shows

_LONGEST_BAR = 8.0
_SVG_WIDTH = 150


class Row(msgspec.Struct, frozen=True):
    """One measurement: what, against what, the largest figure we want to see, and how to get it."""

    name: str
    against: str
    target: float | None
    measure: Callable[[int, Callable[[], None]], Ratio]
    microseconds: bool = False


class Figure(msgspec.Struct, frozen=True):
    """One number that is no ratio."""

    name: str
    unit: str
    target: float
    measure: Callable[[], float | None]


def rows(fast: Path, disk: Path) -> list[Row]:
    """Every comparison, in the order of the table."""
    return [
        Row("SQLite, one event an append", "raw sqlite3", 2.0, lambda n, p: sqlite.append_one(fast, n, p)),
        Row("SQLite, 100 events an append", "raw sqlite3", 1.8, lambda n, p: sqlite.append_hundred(fast, n, p)),
        Row("SQLite, load 1,000 events", "raw sqlite3 into structs", 1.4, lambda n, p: sqlite.load(fast, 1_000, n, p)),
        Row("SQLite, load 5,000 events", "raw sqlite3 into structs", 1.4, lambda n, p: sqlite.load(fast, 5_000, n, p)),
        Row(
            "SQLite, 10 planner notes of 10,000 events",
            "an indexed select of 10",
            3.0,
            lambda n, p: sqlite.load_types(fast, "planner_note", n, p),
        ),
        Row(
            "SQLite, 10 tool results of 10,000 events",
            "an indexed select of 10",
            None,
            lambda n, p: sqlite.load_types(fast, "tool_result", n, p),
        ),
        Row("SQLite, async, one task", "our sync append", 3.5, lambda n, p: sqlite.append_async(fast, n, p)),
        Row("SQLite, append at 10,000 events", "at 100 events", 1.1, lambda n, p: sqlite.append_to_long(fast, n, p)),
        Row("SQLite, a planner's turn at 10,000", "at 100 events", 1.2, lambda n, p: sqlite.planner_turn(fast, n, p)),
        Row("SQLite, one event an append, on disk", "raw sqlite3", None, lambda n, p: sqlite.append_one(disk, n, p)),
        Row("In memory, append a ready event", "msgspec encode", 2.5, core.append_in_memory, microseconds=True),
        Row("Make, check and encode an event", "msgspec encode", None, core.make_and_check),
    ]


def figures(disk: Path) -> list[Figure]:
    """Every plain number."""
    return [
        Figure("SQLite, bytes on disk", "bytes an event", 700, lambda: sqlite.bytes_per_event(disk)),
        Figure("SQLite, async, 100 tasks, on disk", "fsyncs an event", 0.05, lambda: sqlite.fsyncs_per_event(disk)),
    ]


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="counted rounds of each comparison (default 11)")
    parser.add_argument("--only", default="", help="only the rows whose name holds this text")
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()), help="a folder on a real disk")
    parser.add_argument("--svg", type=Path, help="also draw the table into this file")
    options = parser.parse_args()
    fast = _TMPFS if _TMPFS.is_dir() else options.disk
    console = Console(record=options.svg is not None, width=_SVG_WIDTH if options.svg is not None else None)
    table = _empty_table(options.rounds)
    chosen = [row for row in rows(fast, options.disk) if options.only in row.name]
    counted = [figure for figure in figures(options.disk) if options.only in figure.name]
    with Progress(
        TextColumn("{task.description:45}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("", total=len(chosen) * options.rounds + len(counted))
        for row in chosen:
            progress.update(task, description=row.name)
            found = row.measure(options.rounds, lambda: progress.advance(task))
            table.add_row(*_cells(row, found))
        for figure in counted:
            progress.update(task, description=figure.name)
            number = figure.measure()
            text = "not measured: no strace" if number is None else f"{number:.3g} {figure.unit}"
            table.add_row(figure.name, "", text, "", "", "", _verdict(number, figure.target))
            progress.advance(task)
    console.print(table)
    if options.svg is not None:
        drawn = console.export_svg(title="python -m benchmarks")
        # A picture in a repository fetches nothing: the reader's own monospaced font will do.
        options.svg.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))


def _empty_table(rounds: int) -> Table:
    table = Table(title=f"Ratios of medians over {rounds} interleaved rounds; smaller is better")
    table.add_column("what")
    table.add_column("against")
    table.add_column("ours", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column(f"0 to {_LONGEST_BAR:g}")
    table.add_column("middle half", justify="right")
    table.add_column("target", justify="right")
    return table


def _cells(row: Row, found: Ratio) -> tuple[RenderableType, ...]:
    judged = found.ours * 1e6 if row.microseconds else found.ratio
    met = row.target is None or judged <= row.target
    return (
        row.name,
        row.against,
        f"{found.ours * 1e6:,.1f} µs",
        f"{found.ratio:.2f}",
        Bar(_LONGEST_BAR, 0, min(found.ratio, _LONGEST_BAR), width=24, color="green" if met else "yellow"),
        f"{found.low:.2f}-{found.high:.2f}",
        _verdict(judged, row.target) + (" µs" if row.microseconds else ""),
    )


def _verdict(number: float | None, target: float | None) -> str:
    if target is None:
        return "-"
    if number is None:
        return f"{target:g}"
    return f"[green]✓[/] {target:g}" if number <= target else f"[yellow]✗[/] {target:g}"


if __name__ == "__main__":
    main()
