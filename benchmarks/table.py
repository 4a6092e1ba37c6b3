"""The table of results: its rows and their drawing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Progress, Ratio

LONGEST_BAR = 8.0
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
    """A table, which is filled row by row, with the same rows for a document.

    Args:
        rounds: The number of rounds of each comparison.
        recorded: Whether ``draw`` is called later.
    """

    def __init__(self, rounds: int, *, recorded: bool) -> None:
        self._console = Console(record=recorded, width=_SVG_WIDTH if recorded else None)
        self._table = Table(title=f"Ratios of medians over {rounds} interleaved rounds; of throughput, more is better")
        self._table.add_column("what", no_wrap=recorded)
        self._table.add_column("against")
        self._table.add_column("ours", justify="right")
        self._table.add_column("ratio", justify="right")
        self._table.add_column(f"0 to {LONGEST_BAR:g}")
        self._table.add_column("middle half", justify="right")
        self._table.add_column("target", justify="right")
        self._notes: list[str] = []
        self._lines: dict[str, list[str]] = {}

    def add(self, group: str, row: Row, outcome: Ratio | str) -> None:
        """Add a comparison to the table and to the section ``group`` of the document."""
        if isinstance(outcome, str):
            self._table.add_row(row.name, row.against, "", "", outcome, "", "-")
            self._add_line(group, row.name, row.against, outcome, "", "-")
            return
        displayed = outcome.of_throughput() if row.throughput else outcome
        judged = outcome.measured * 1e6 if row.microseconds else displayed.ratio
        met = row.target is None or (judged >= row.target if row.throughput else judged <= row.target)
        sign, unit = "≥ " if row.throughput else "", " µs" if row.microseconds else ""
        scale = outcome.floor * 1e6 if row.microseconds else 1
        middle = f"{displayed.low * scale:.2f}-{displayed.high * scale:.2f}"
        self._table.add_row(
            row.name,
            row.against,
            f"{outcome.measured * 1e6:,.1f} µs",
            f"{displayed.ratio:.2f}",
            Bar(LONGEST_BAR, 0, min(displayed.ratio, LONGEST_BAR), width=24, color=_color(row.target, met)),
            middle,
            _verdict(row.target, met, sign) + unit,
        )
        number = f"**{judged:.1f} µs**" if row.microseconds else f"**{displayed.ratio:.2f}**"
        self._add_line(group, row.name, row.against, number, middle, _goal(row.target, sign) + unit)

    def add_figure(self, group: str, figure: Figure, number: float | None) -> None:
        """Add a number."""
        text = "not measured" if number is None else f"{number:.3g} {figure.unit}"
        met = None if number is None else number <= figure.target
        self._table.add_row(figure.name, "", text, "", "", "", _verdict(figure.target, met))
        self._add_line(group, figure.name, "", f"**{text}**", "", _goal(figure.target, ""))

    def _add_line(self, group: str, *cells: str) -> None:
        head = ["| what | against | ratio | middle half | we want |", "|---|---|---|---|---|"]
        self._lines.setdefault(group, head).append(f"| {' | '.join(cells)} |")

    def note(self, text: str) -> None:
        """Add a line below the table."""
        self._notes.append(text)

    def print(self) -> None:
        """Print the table and the notes."""
        self._console.print(self._table)
        for note in self._notes:
            self._console.print(note, markup=False, highlight=False)

    def write(self, document: Path, picture: Path) -> None:
        """Write each group into its section of a document, and draw the printed table."""
        for group, lines in self._lines.items():
            write_section(document, group, lines)
        draw(self._console, "python -m benchmarks", picture)


def draw(console: Console, title: str, svg: Path) -> None:
    """Draw the output of a recording console into a file."""
    drawn = console.export_svg(title=title)
    # The picture must not fetch a font, so it uses the reader's own monospaced font.
    svg.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))


def write_section(document: Path, name: str, lines: Sequence[str]) -> None:
    """Replace the lines of a document between the comments that begin and end the section ``name``.

    Raises ``ValueError`` if the document does not have the two comments.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, begins, rest = document.read_text().partition(begin)
    _, ends, after = rest.partition(end)
    if not begins or not ends:
        raise ValueError(
            f"{document} has no section {name!r}: write the comments {begin!r} and {end!r} where it belongs"
        )
    document.write_text(before + begin + "\n".join(lines) + "\n" + end + after)


def _color(target: float | None, met: bool) -> str:
    if target is None:
        return "blue"
    return "green" if met else "yellow"


def _verdict(target: float | None, met: bool | None, sign: str = "") -> str:
    if target is None:
        return "-"
    goal = _goal(target, sign)
    if met is None:
        return goal
    return f"[green]✓[/] {goal}" if met else f"[yellow]✗[/] {goal}"


def _goal(target: float | None, sign: str) -> str:
    return "-" if target is None else f"{sign}{target:g}"
