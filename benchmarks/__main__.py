"""``python -m benchmarks`` runs every measurement and prints the table with its targets."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from benchmarks import core, google_adk, langgraph, memory, sessions, sqlite, transcript
from benchmarks.mongo_server import described, lacking
from benchmarks.table import Figure, Report, Row

_TMPFS = Path("/dev/shm")  # noqa: S108  # in memory, where an fsync costs nothing


def rows(fast: Path, disk: Path) -> list[Row]:
    """Return every comparison that this machine can make, in the order of the table."""
    rows = [*sqlite.rows(fast, disk), *core.rows(), *transcript.rows(), *memory.rows(fast)]
    rows += [*langgraph.rows(disk), *sessions.rows(fast), *google_adk.rows(fast)]
    if not lacking():
        from benchmarks import mongo  # noqa: PLC0415  # the driver may not be installed

        rows += mongo.rows(fast, disk)
    return rows


def figures(disk: Path) -> list[Figure]:
    """Return every plain number."""
    numbers = [*sqlite.figures(disk), *langgraph.figures(disk)]
    return [*numbers, *sessions.figures(disk), *google_adk.figures(disk)]


def main() -> None:
    """Parse the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="counted rounds of each comparison (default 11)")
    parser.add_argument("--only", default="", help="only the rows whose name holds this text")
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()), help="a folder on a real disk")
    parser.add_argument("--svg", type=Path, help="also draw the table into this file")
    options = parser.parse_args()
    fast = _TMPFS if _TMPFS.is_dir() else options.disk
    report = Report(options.rounds, options.svg)
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
        for number, row in enumerate(chosen, 1):
            progress.update(task, description=row.name)
            report.add(row, row.measure(options.rounds, lambda: progress.advance(task)))
            # A row that cannot be measured used no rounds.
            progress.update(task, completed=number * options.rounds)
        for figure in counted:
            progress.update(task, description=figure.name)
            report.add_figure(figure, figure.measure())
            progress.advance(task)
    if lacking():
        report.note(f"MongoDB was not measured: {lacking()}")
    elif any(row.name.startswith("MongoDB") for row in chosen):
        report.note(f"MongoDB is {described()}.")
    report.print()


if __name__ == "__main__":
    main()
