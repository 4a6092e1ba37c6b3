"""The table: what a row of it says, and how it is drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Progress, Ratio

_LONGEST_BAR = 8.0
_SVG_WIDTH = 150


class Row(msgspec.Struct, frozen=True):
    """One comparison: what, against what, the largest figure we want to see, and how to get it.

    The figure is the ratio; with ``microseconds`` it is the time, and with ``throughput`` a ratio of operations a
    second, of which we want to see the target at least. A measurement may say why there is nothing to measure.
    """

    name: str
    against: str
    target: float | None
    measure: Callable[[int, Progress], Ratio | str]
    microseconds: bool = False
    throughput: bool = False


class Figure(msgspec.Struct, frozen=True):
    """One number that is no ratio."""

    name: str
    unit: str
    target: float
    measure: Callable[[], float | None]


class Report:
    """The table as it fills; ``svg`` is the file it is also drawn into, None for none."""

    def __init__(self, rounds: int, svg: Path | None) -> None:
        self._svg = svg
        self._console = Console(record=svg is not None, width=_SVG_WIDTH if svg is not None else None)
        self._table = Table(title=f"Ratios of medians over {rounds} interleaved rounds; of throughput, more is better")
        self._table.add_column("what", no_wrap=svg is not None)
        self._table.add_column("against")
        self._table.add_column("ours", justify="right")
        self._table.add_column("ratio", justify="right")
        self._table.add_column(f"0 to {_LONGEST_BAR:g}")
        self._table.add_column("middle half", justify="right")
        self._table.add_column("target", justify="right")
        self._notes: list[str] = []

    def add(self, row: Row, found: Ratio | str) -> None:
        """Add a comparison."""
        if isinstance(found, str):
            self._table.add_row(row.name, row.against, "", "", found, "", "-")
            return
        shown = found.of_throughput() if row.throughput else found
        judged = found.ours * 1e6 if row.microseconds else shown.ratio
        met = row.target is None or (judged >= row.target if row.throughput else judged <= row.target)
        self._table.add_row(
            row.name,
            row.against,
            f"{found.ours * 1e6:,.1f} µs",
            f"{shown.ratio:.2f}",
            Bar(_LONGEST_BAR, 0, min(shown.ratio, _LONGEST_BAR), width=24, color=_color(row.target, met)),
            f"{shown.low:.2f}-{shown.high:.2f}",
            _verdict(row.target, met, "≥ " if row.throughput else "") + (" µs" if row.microseconds else ""),
        )

    def add_figure(self, figure: Figure, number: float | None) -> None:
        """Add a number."""
        text = "not measured: no strace" if number is None else f"{number:.3g} {figure.unit}"
        met = None if number is None else number <= figure.target
        self._table.add_row(figure.name, "", text, "", "", "", _verdict(figure.target, met))

    def note(self, text: str) -> None:
        """Say something below the table."""
        self._notes.append(text)

    def print(self) -> None:
        """Print it, and draw it."""
        self._console.print(self._table)
        for note in self._notes:
            self._console.print(note, markup=False, highlight=False)
        if self._svg is not None:
            draw(self._console, "python -m benchmarks", self._svg)


def draw(console: Console, title: str, svg: Path) -> None:
    """Draw what a recording console has printed into a file."""
    drawn = console.export_svg(title=title)
    # A picture in a repository fetches nothing: the reader's own monospaced font will do.
    svg.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))


def _color(target: float | None, met: bool) -> str:
    if target is None:
        return "blue"
    return "green" if met else "yellow"


def _verdict(target: float | None, met: bool | None, sign: str = "") -> str:
    if target is None:
        return "-"
    wanted = f"{sign}{target:g}"
    if met is None:
        return wanted
    return f"[green]✓[/] {wanted}" if met else f"[yellow]✗[/] {wanted}"
