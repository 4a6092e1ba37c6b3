"""The tables of the libraries: as text, as a section of a document, and as a picture."""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from benchmarks.peers.contract import Peer
from benchmarks.table import LONGEST_BAR, draw, write_section

WIDTH = 140
_BAR = 12


class Cells(msgspec.Struct, frozen=True):
    """The numbers of one library.

    Attributes:
        single: The seconds of an append of one message.
        hundred: The seconds of an append of a hundred.
        load: The seconds of a load of a thousand.
        size: The stored bytes of one message.
    """

    single: float
    hundred: float
    load: float
    size: float

    @classmethod
    def median(cls, rounds: Sequence[Self]) -> Self:
        """Return the median of each number."""
        columns = zip(*map(msgspec.structs.astuple, rounds), strict=True)
        return cls(*map(statistics.median, columns))


class Comparison:
    """The numbers of some libraries on one server. The first library is the floor.

    Args:
        title: The name of the server.
        peers: The libraries in the order of the table.
        cells: The numbers of each measured library by its name.
        notes: The lines below the table.
    """

    def __init__(self, title: str, peers: Sequence[Peer], cells: dict[str, Cells], notes: Sequence[str]) -> None:
        self._title = title
        self._measured = [(peer, cells[peer.name]) for peer in peers if peer.name in cells]
        self._notes = notes
        floor = self._measured[0][1]
        self._ratios = {
            peer.name: (own.single / floor.single, own.hundred / floor.hundred, own.load / floor.load)
            for peer, own in self._measured
        }

    def print(self, console: Console) -> None:
        """Print the table."""
        table = Table(title=f"{self._title}: medians as ratios to the floor; less is better")
        table.add_column("library", no_wrap=True)
        for name in ("append one", "append 100", "load 1,000"):
            table.add_column(name, justify="right", no_wrap=True)
            table.add_column(f"0 to {LONGEST_BAR:g}", min_width=_BAR)
        table.add_column("bytes", justify="right", no_wrap=True)
        for peer, own in self._measured:
            color = "green" if peer.name.startswith("agent-memory-log") else "blue"
            cells: list[str | Bar] = [peer.name]
            for ratio in self._ratios[peer.name]:
                cells += [f"{ratio:.2f}", Bar(LONGEST_BAR, 0, min(ratio, LONGEST_BAR), width=_BAR, color=color)]
            table.add_row(*cells, f"{own.size:,.0f}")
        console.print(table)
        for note in self._notes:
            console.print(note, markup=False, highlight=False)

    def write(self, folder: Path) -> None:
        """Write the table into ``benchmarks.md`` of a folder, and draw it beside that."""
        lines = ["| library | append one | append 100 | load 1,000 | bytes a message | durability and more |"]
        lines.append("|---|---|---|---|---|---|")
        for peer, own in self._measured:
            ratios = " | ".join(f"**{ratio:.2f}**" for ratio in self._ratios[peer.name])
            lines.append(f"| {peer.name} | {ratios} | {own.size:,.0f} | {peer.promises} |")
        for note in self._notes:
            lines += ["", note]
        write_section(folder / "benchmarks.md", f"peers on {self._title}", lines)
        console = Console(record=True, width=WIDTH, file=io.StringIO())
        self.print(console)
        draw(console, "python -m benchmarks.peers", folder / f"benchmarks-peers-{self._title.lower()}.svg")
