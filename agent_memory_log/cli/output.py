"""Writes to standard output: layout and colours on a terminal, plain text elsewhere, JSON with ``--json``.

This module escapes unsafe characters in every text, so that no command can forget it. If the output is no terminal,
text is not cut, wrapped or coloured, and rich is not imported.
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
"""A piece of a line: its text and its rich style. An empty style means plain text."""

DIM = "dim"
BOLD = "bold"
NAME = "cyan"
GOOD = "green"
BAD = "bold red"
WARN = "yellow"

_NARROWEST = 24
"""The least width for wrapped text, in columns, even on a narrower terminal."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    Attributes:
        title: The text of the header.
        style: The rich style of the cells.
        number: Whether the cells are aligned to the right.
        cut: Whether a narrow terminal cuts the cells. The other columns wrap.
        unbroken: Whether no terminal cuts or wraps the cells. For names and ids, which people copy.
    """

    title: str
    style: str = ""
    number: bool = False
    cut: bool = False
    unbroken: bool = False


class Output:
    """The standard output of one command."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream: TextIO = sys.stdout if stream is None else stream
        self.terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        write_anything(self.stream)
        self._console: Console | None = None
        self.unicode = _can_write(self.stream, "✔✘└│…↻")

    @property
    def console(self) -> Console:
        """The rich console. Use it only if the output is a terminal."""
        if self._console is None:
            from rich.console import Console  # noqa: PLC0415  # importing rich is slow, and a pipe does not need it

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
        """Write one line without line ends in it, however long it is, so that a person can copy it from a terminal."""
        if self.terminal:
            self.console.print(self.text(*segments), soft_wrap=True)
        else:
            self.stream.write("".join(one_line(_text_of(segment)) for segment in segments).rstrip(" ") + "\n")

    def hanging(self, head: Sequence[Segment | str], body: str) -> None:
        """Write ``head`` and ``body`` on one line. A terminal indents the wrapped lines of ``body`` below its start."""
        if not self.terminal:
            self.line(*head, body)
            return
        first = self.text(*head)
        margin = first.cell_len
        lines = self.text(body).wrap(self.console, max(_NARROWEST, self.console.width - margin), overflow="fold")
        for at, line in enumerate(lines):
            self.console.print((first if at == 0 else self.text(" " * margin)) + line, soft_wrap=True)

    def text(self, *segments: Segment | str) -> Text:
        """Return ``segments`` as rich text."""
        from rich.text import Text  # noqa: PLC0415  # see console

        text = Text()
        for segment in segments:
            content, style = (segment, "") if isinstance(segment, str) else segment
            text.append(one_line(content), style)
        return text

    def heading(self, title: str, *details: str) -> None:
        """Write the title of a report, and its details in a dim style."""
        self.line((title, BOLD), *((f"   {detail}", DIM) for detail in details))

    def report(self, value: object, text: str, *details: str, as_json: bool, failed: bool = False) -> None:
        """Write the result of a command.

        Args:
            value: The result, which is written if ``as_json`` is set.
            text: The result as a sentence, which is written after a tick or a cross otherwise.
            details: Further texts in a dim style. Empty texts are left out.
            as_json: Whether to write JSON.
            failed: Whether the sign is a cross.
        """
        if as_json:
            self.json(value)
        else:
            sign: Segment = (f"{self.cross} ", BAD) if failed else (f"{self.tick} ", GOOD)
            self.line(sign, text, *((f"   {detail}", DIM) for detail in details if detail))

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Segment | str]]) -> None:
        """Write a table. If the output is no terminal, write a line of titles and aligned columns."""
        if self.terminal:
            self._rich_table(columns, rows)
            return
        lines = [[column.title for column in columns]]
        lines += [[one_line(_text_of(cell)) for cell in row] for row in rows]
        all_widths = [[_width(cell) for cell in line] for line in lines]
        widest = [max(line[at] for line in all_widths) for at in range(len(columns))]
        for line, widths in zip(lines, all_widths, strict=True):
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
                min_width=None if column.cut else widest if column.unbroken else min(widest, self.console.width // 2),
            )
        for line in cells:
            table.add_row(*line)
        self.console.print(table, crop=False)

    def json(self, value: object) -> None:
        """Write a JSON document. A terminal gets it indented."""
        encoded = msgspec.json.encode(value)
        if self.terminal:
            encoded = msgspec.json.format(encoded, indent=2)
        self.encoded(encoded + b"\n")

    def json_line(self, value: object) -> None:
        """Write one line of JSON Lines."""
        self.encoded(msgspec.json.encode(value) + b"\n")

    def encoded(self, lines: bytes) -> None:
        """Write encoded JSON, and escape the characters that are unsafe on a terminal."""
        self.stream.write(safe_json(lines.decode(), self.stream.encoding or "ascii"))

    def flush(self) -> None:
        """Flush the stream."""
        self.stream.flush()


def write_anything(stream: TextIO) -> None:
    """Make ``stream`` escape characters that its encoding lacks, so that an ASCII terminal causes no error."""
    reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def note(text: str) -> None:
    """Write a remark to standard error, so that it does not mix with the result on standard output."""
    print(one_line(text), file=sys.stderr)  # noqa: T201  # the only place that writes remarks


def meta_text(meta: Mapping[str, JsonValue]) -> str:
    """Return the meta of a run on one line, such as ``session_id=s-1 score=0.5``. Values other than text are JSON."""
    return " ".join(
        f"{key}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for key, value in meta.items()
    )


def _width(text: str) -> int:
    """Return the number of terminal columns that ``text`` needs."""
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
    """A function that moves a progress bar."""

    def __call__(self, amount: int = 1, /) -> None:
        """Move the bar by ``amount`` units of its total."""
        ...


@contextmanager
def progress(title: str, total: int | None = None) -> Generator[Advance]:
    """Show a progress bar on standard error while a block runs, and remove it afterwards.

    Shows nothing if standard error is no terminal. ``total`` is None if the amount of work is unknown.
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
    """Do nothing, because there is no bar to move."""
