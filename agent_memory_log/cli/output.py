"""Standard output: laid out and coloured on a terminal, plain text elsewhere, JSON where it was asked for.

Every text that is passed in is made harmless here, so that a command cannot forget it. Off a terminal nothing is cut,
wrapped or coloured, and rich is not even imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec

from agent_memory_log.cli.terminal_text import one_line, safe_json
from agent_memory_log.events.jsonvalue import JsonValue

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Segment = tuple[str, str]
"""A piece of a line: its text and its style, ``""`` for none."""

DIM = "dim"
BOLD = "bold"
NAME = "cyan"
GOOD = "green"
BAD = "bold red"
WARN = "yellow"


_NARROWEST = 24
"""The fewest columns that text is wrapped to, however narrow the terminal is."""


class Column(msgspec.Struct, frozen=True):
    """A table's column: its title, the style of its cells, and whether they are numbers.

    On a terminal too narrow for all, ``cut`` columns are cut, and after them the others wrap.
    """

    title: str
    style: str = ""
    number: bool = False
    cut: bool = False


class Output:
    """One command's standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream: TextIO = sys.stdout if stream is None else stream
        self.terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        write_anything(self.stream)
        self._console: Console | None = None
        self.unicode = _can_write(self.stream, "✔✘└│…↻")

    @property
    def console(self) -> Console:
        """The rich console; only for a terminal."""
        if self._console is None:
            from rich.console import Console  # noqa: PLC0415  # a pipe need not pay for importing rich

            self._console = Console(
                file=self.stream,
                highlight=False,
                markup=False,
                emoji=False,
                soft_wrap=False,
                color_system=None if os.environ.get("NO_COLOR") else "auto",
            )
        return self._console

    @property
    def tick(self) -> str:
        """The sign of success."""
        return "✔" if self.unicode else "ok"

    @property
    def cross(self) -> str:
        """The sign of failure."""
        return "✘" if self.unicode else "!!"

    def line(self, *segments: Segment | str) -> None:
        """Write a line made of ``segments``; a terminal wraps it between words."""
        if self.terminal:
            self.console.print(self.text(*segments), overflow="fold")
        else:
            self.stream.write("".join(one_line(_text_of(segment)) for segment in segments).rstrip(" ") + "\n")

    def hanging(self, head: Sequence[Segment | str], body: str) -> None:
        """Write ``head`` and ``body``; on a narrow terminal the rest of ``body`` hangs under its beginning."""
        if not self.terminal:
            self.line(*head, body)
            return
        first = self.text(*head)
        margin = first.cell_len
        lines = self.text(body).wrap(self.console, max(_NARROWEST, self.console.width - margin), overflow="fold")
        for at, line in enumerate(lines):
            self.console.print((first if at == 0 else self.text(" " * margin)) + line, soft_wrap=True)

    def text(self, *segments: Segment | str) -> Text:
        """``segments`` as rich text, for a terminal."""
        from rich.text import Text  # noqa: PLC0415  # see console

        text = Text()
        for segment in segments:
            content, style = (segment, "") if isinstance(segment, str) else segment
            text.append(one_line(content), style)
        return text

    def heading(self, title: str, *details: str) -> None:
        """Write the line above a report: its title, and details that matter less."""
        self.line((title, BOLD), *((f"   {detail}", DIM) for detail in details))

    def report(self, value: object, text: str, *details: str, as_json: bool, failed: bool = False) -> None:
        """Write what a command did: ``value`` as JSON, or ``text`` after a sign, and ``details`` that matter less."""
        if as_json:
            self.json(value)
        else:
            sign: Segment = (f"{self.cross} ", BAD) if failed else (f"{self.tick} ", GOOD)
            self.line(sign, text, *((f"   {detail}", DIM) for detail in details if detail))

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Segment | str]]) -> None:
        """Write a table; off a terminal as aligned columns with a line of titles."""
        if self.terminal:
            self._rich_table(columns, rows)
            return
        lines = [[column.title for column in columns]]
        lines += [[one_line(_text_of(cell)) for cell in row] for row in rows]
        taken = [[_width(cell) for cell in line] for line in lines]
        widest = [max(line[at] for line in taken) for at in range(len(columns))]
        for line, widths in zip(lines, taken, strict=True):
            cells = (
                " " * (most - width) + cell if column.number else cell + " " * (most - width)
                for cell, width, most, column in zip(line, widths, widest, columns, strict=True)
            )
            self.stream.write("  ".join(cells).rstrip(" ") + "\n")

    def _rich_table(self, columns: Sequence[Column], rows: Iterable[Sequence[Segment | str]]) -> None:
        from rich import box  # noqa: PLC0415  # see console
        from rich.table import Table  # noqa: PLC0415  # see console

        table = Table(
            box=box.SIMPLE_HEAD if self.unicode else box.ASCII2, pad_edge=False, header_style=DIM, border_style=DIM
        )
        cells = [[self.text(cell) for cell in row] for row in rows]
        for at, column in enumerate(columns):
            widest = max((line[at].cell_len for line in cells), default=0)
            table.add_column(
                column.title,
                style=column.style,
                justify="right" if column.number else "left",
                no_wrap=column.cut or column.number,
                overflow="ellipsis" if column.cut else "fold",
                min_width=None if column.cut else min(widest, self.console.width // 2),
            )
        for line in cells:
            table.add_row(*line)
        self.console.print(table)

    def json(self, value: object) -> None:
        """Write a JSON document, indented on a terminal."""
        encoded = msgspec.json.encode(value)
        if self.terminal:
            encoded = msgspec.json.format(encoded, indent=2)
        self.encoded(encoded + b"\n")

    def json_line(self, value: object) -> None:
        """Write one line of a stream of JSON lines, at once visible to who reads it."""
        self.encoded(msgspec.json.encode(value) + b"\n")

    def encoded(self, lines: bytes) -> None:
        """Write lines of JSON as they are."""
        self.stream.write(safe_json(lines.decode(), self.stream.encoding or "ascii"))

    def flush(self) -> None:
        """Hand on what was written."""
        self.stream.flush()


def write_anything(stream: TextIO) -> None:
    """Have ``stream`` escape what its encoding lacks: an ASCII terminal is no reason to fail."""
    reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def note(text: str) -> None:
    """Write a remark to standard error, where it does not mix with what was asked for."""
    print(one_line(text), file=sys.stderr)  # noqa: T201  # this is what writes remarks


def meta_text(meta: Mapping[str, JsonValue]) -> str:
    """A run's meta on one line: ``session_id=s-1 score=0.5``; text as it is, anything else as JSON."""
    return " ".join(
        f"{key}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for key, value in meta.items()
    )


def _width(text: str) -> int:
    """The columns of a terminal that ``text`` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415  # see Output.console

    return cell_len(text)


def _text_of(segment: Segment | str) -> str:
    return segment if isinstance(segment, str) else segment[0]


def _can_write(stream: TextIO, glyphs: str) -> bool:
    try:
        glyphs.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


class Advance(Protocol):
    """Says that so much more is done."""

    def __call__(self, amount: int = 1, /) -> None:
        """Move the bar by ``amount``."""
        ...


@contextmanager
def progress(title: str, total: int | None = None) -> Generator[Advance]:
    """A progress bar on standard error while a block runs, where that is a terminal; it leaves nothing behind.

    ``total`` None: not known.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _no_advance
        return
    from rich.console import Console  # noqa: PLC0415  # see Output.console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True, color_system=None if os.environ.get("NO_COLOR") else "auto")
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(one_line(title), total=total)
        yield lambda amount=1: bar.advance(task, amount)


def _no_advance(_amount: int = 1, /) -> None:
    """Nobody is watching."""
