"""``python -m benchmarks`` runs every measurement and prints the table with its targets."""

from __future__ import annotations

import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from benchmarks import core, memory, processor, server, sqlite, transcript
from benchmarks.mongo_server import described, lacking
from benchmarks.table import Figure, Report, Row

_TMPFS = Path("/dev/shm")  # noqa: S108  # in memory, where an fsync costs nothing


def groups(fast: Path, disk: Path) -> dict[str, list[Row | Figure]]:
    """Return every measurement that this machine can make, except those of MongoDB, by the section of its table."""
    return {
        "bench of SQLite": [*sqlite.rows(fast, disk), *sqlite.figures(disk), *core.rows()],
        "bench of transcripts": [*transcript.rows()],
        "bench of memory": [*memory.rows(fast)],
        "bench of the server": [*server.rows(fast), *server.figures(fast)],
        "bench of the processor": [] if processor.lacking() else [*processor.rows(disk), *processor.figures(disk)],
        "bench of integrations": [] if frameworks_lacking() else _integrations(fast, disk),
    }


def frameworks_lacking() -> str:
    """Return why the integrations are not measured, or ``""``."""
    frameworks = ("agents", "claude_agent_sdk", "google.adk", "langgraph", "pydantic_ai")
    missing = [name for name in frameworks if find_spec(name) is None]
    return f"{' and '.join(missing)} cannot be imported: make integrations installs them" if missing else ""


def _integrations(fast: Path, disk: Path) -> list[Row | Figure]:
    # They import frameworks.
    from benchmarks import (  # noqa: PLC0415
        anthropic_memory,
        claude_agent,
        google_adk,
        langgraph,
        pydantic_ai,
        sessions,
    )

    return [
        *langgraph.rows(disk),
        *langgraph.figures(disk),
        *sessions.rows(fast),
        *sessions.figures(disk),
        *google_adk.rows(fast),
        *google_adk.figures(disk),
        *claude_agent.rows(fast),
        *claude_agent.figures(disk),
        *pydantic_ai.rows(fast),
        *pydantic_ai.figures(disk),
        *anthropic_memory.rows(fast, disk),
        *anthropic_memory.figures(disk),
    ]


def mongo_groups(fast: Path, disk: Path) -> dict[str, list[Row | Figure]]:
    """Return the same for MongoDB."""
    if lacking():
        return {}
    from benchmarks import mongo  # noqa: PLC0415  # the driver may not be installed

    return {"bench of MongoDB": [*mongo.rows(fast, disk)]}


def main() -> None:
    """Parse the command line, measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="counted rounds of each comparison (default 11)")
    parser.add_argument("--only", default="", help="only the rows whose name holds this text")
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()), help="a folder on a real disk")
    parser.add_argument("--docs", type=Path, help="the folder whose benchmarks.md and pictures to write")
    options = parser.parse_args()
    if options.docs is not None and options.only:
        parser.error("--docs writes whole tables, so it cannot be used with --only")
    fast = _TMPFS if _TMPFS.is_dir() else options.disk
    for picture, everything in (("benchmarks", groups), ("benchmarks-mongodb", mongo_groups)):
        chosen = [
            (group, row)
            for group, rows in everything(fast, options.disk).items()
            for row in rows
            if options.only in row.name
        ]
        if not chosen:
            continue
        report = Report(options.rounds, recorded=options.docs is not None)
        _measure(report, chosen, options.rounds)
        if everything is mongo_groups:
            report.note(f"MongoDB is {described()}.")
        report.print()
        if options.docs is not None:
            report.write(options.docs / "benchmarks.md", options.docs / f"{picture}.svg")
    if frameworks_lacking():
        print(f"The integrations were not measured: {frameworks_lacking()}")
    if processor.lacking():
        print(f"The processor was not measured: {processor.lacking()}")
    if lacking():
        print(f"MongoDB was not measured: {lacking()}")


def _measure(report: Report, chosen: list[tuple[str, Row | Figure]], rounds: int) -> None:
    """Measure rows and figures with a progress bar, and add them to a report."""
    with Progress(
        TextColumn("{task.description:45}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("", total=len(chosen) * rounds)
        for number, (group, row) in enumerate(chosen, 1):
            progress.update(task, description=row.name)
            if isinstance(row, Figure):
                report.add_figure(group, row, row.measure())
            else:
                report.add(group, row, row.measure(rounds, lambda: progress.advance(task)))
            # A row that cannot be measured and a figure use no rounds.
            progress.update(task, completed=number * rounds)


if __name__ == "__main__":
    main()
