"""The table of results: its rows and their drawing."""

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
    """A comparison of some work with its floor.

    Attributes:
        name: The name of the work.
        against: The name of the floor.
        target: The upper limit of the ratio, or its lower limit with ``throughput``. None: no target.
        measure: Measures both sides in a number of rounds. It returns a text if the measurement is impossible.
        microseconds: Whether the target is a time of the work in microseconds, not a ratio.
        throughput: Whether the ratio is one of throughputs, so that larger is better.
    """

    name: str
    against: str
    target: float | None
    measure: Callable[[int, Progress], Ratio | str]
    microseconds: bool = False
    throughput: bool = False


class Figure(msgspec.Struct, frozen=True):
    """A measurement of one number, without a floor. ``measure`` returns None if the number cannot be measured."""

    name: str
    unit: str
    target: float
    measure: Callable[[], float | None]


class Report:
    """The table, which is filled row by row. If ``svg`` is set, ``print`` also draws the table into this file."""

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

    def add(self, row: Row, outcome: Ratio | str) -> None:
        """Add a comparison."""
        if isinstance(outcome, str):
            self._table.add_row(row.name, row.against, "", "", outcome, "", "-")
            return
        displayed = outcome.of_throughput() if row.throughput else outcome
        judged = outcome.measured * 1e6 if row.microseconds else displayed.ratio
        met = row.target is None or (judged >= row.target if row.throughput else judged <= row.target)
        self._table.add_row(
            row.name,
            row.against,
            f"{outcome.measured * 1e6:,.1f} µs",
            f"{displayed.ratio:.2f}",
            Bar(_LONGEST_BAR, 0, min(displayed.ratio, _LONGEST_BAR), width=24, color=_color(row.target, met)),
            f"{displayed.low:.2f}-{displayed.high:.2f}",
            _verdict(row.target, met, "≥ " if row.throughput else "") + (" µs" if row.microseconds else ""),
        )

    def add_figure(self, figure: Figure, number: float | None) -> None:
        """Add a number."""
        text = "not measured" if number is None else f"{number:.3g} {figure.unit}"
        met = None if number is None else number <= figure.target
        self._table.add_row(figure.name, "", text, "", "", "", _verdict(figure.target, met))

    def note(self, text: str) -> None:
        """Add a line below the table."""
        self._notes.append(text)

    def print(self) -> None:
        """Print the table and the notes, and draw the table if a file is set."""
        self._console.print(self._table)
        for note in self._notes:
            self._console.print(note, markup=False, highlight=False)
        if self._svg is not None:
            draw(self._console, "python -m benchmarks", self._svg)


def draw(console: Console, title: str, svg: Path) -> None:
    """Draw the output of a recording console into a file."""
    drawn = console.export_svg(title=title)
    # The picture must not fetch a font, so it uses the reader's own monospaced font.
    svg.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))


def _color(target: float | None, met: bool) -> str:
    if target is None:
        return "blue"
    return "green" if met else "yellow"


def _verdict(target: float | None, met: bool | None, sign: str = "") -> str:
    if target is None:
        return "-"
    goal = f"{sign}{target:g}"
    if met is None:
        return goal
    return f"[green]✓[/] {goal}" if met else f"[yellow]✗[/] {goal}"
