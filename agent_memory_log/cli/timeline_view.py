"""Writes a timeline: columns with cut or wrapped text on a terminal, and one line for each event elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from agent_memory_log.cli.entries import Entry, Look, describe
from agent_memory_log.cli.output import DIM, Output
from agent_memory_log.cli.terminal_text import one_line, safe
from agent_memory_log.cli.timeline import Row
from agent_memory_log.events.event import format_timestamp
from agent_memory_log.events.payloads import EventType

if TYPE_CHECKING:
    from rich.text import Text

_TIME_WIDTH = 9
_KIND_WIDTH = 10
_NARROWEST_BODY = 24
_DEEPEST_INDENT = 8
_LONGEST_KEPT = 20_000
"""The most characters of a text that are wrapped before it is cut to a few lines."""


class TimelineWriter:
    """Writes the rows of a timeline.

    Args:
        output: The output to write to.
        full: Whether to show texts without cuts, and all details.
        is_complete: Whether all events of the run are written, so that a call without a result is open.
        start: The time to which a terminal shows relative times. None shows the time of day.
        timed: Whether a terminal shows times.
        highest_seq: The largest seq to expect. It sets the width of the first column.
    """

    def __init__(
        self,
        output: Output,
        *,
        full: bool = False,
        is_complete: bool = False,
        start: datetime | None = None,
        timed: bool = True,
        highest_seq: int = 9999,
    ) -> None:
        self._output = output
        self._full = full
        self._start = start
        self._time_width = _TIME_WIDTH + 2 if timed else 0
        self._seq_width = max(4, len(str(highest_seq)))
        retry = "↻" if output.unicode else "->"
        self._look = Look(output.tick, output.cross, retry, is_complete=is_complete)

    def write(self, rows: Iterable[Row]) -> None:
        """Write ``rows`` in the order given."""
        for at, row in enumerate(rows):
            if at and self._start is not None and self._output.terminal and row.event.type == EventType.USER_MESSAGE:
                self._output.line("")
            entry = describe(row, self._look)
            if self._output.terminal:
                self._write_columns(row, entry)
            else:
                self._write_line(row, entry)

    def _write_line(self, row: Row, entry: Entry) -> None:
        parts = ["".join(text for text, _ in entry.lead), entry.text.rstrip("\n")]
        extra = [*entry.notes, *(entry.details if self._full else ())]
        parts += ["".join(text for text, _ in line) for line in extra]
        body = self._guides(row) + "  ".join(one_line(part) for part in parts if part)
        seq, time = f"{row.event.seq:>{self._seq_width}}", format_timestamp(row.event.timestamp)
        self._output.line(f"{seq}  {time:<27}  {entry.kind:<{_KIND_WIDTH}}  {body}")

    def _guides(self, row: Row) -> str:
        pipe, corner = ("│ ", "└ ") if self._output.unicode else ("| ", "+ ")
        guides = pipe * min(row.depth, _DEEPEST_INDENT)
        return guides + corner if row.call is not None else guides

    def _write_columns(self, row: Row, entry: Entry) -> None:
        console, text = self._output.console, self._output.text
        guides = self._guides(row)
        hanging = guides.replace("└", " ").replace("+", " ")
        margin = self._seq_width + 2 + self._time_width + _KIND_WIDTH + 2
        width = max(_NARROWEST_BODY, console.width - margin - len(guides))
        kind = one_line(entry.kind)
        if len(kind) > _KIND_WIDTH:
            kind = kind[: _KIND_WIDTH - 1] + ("…" if self._output.unicode else ".")
        head = text(
            (f"{row.event.seq:>{self._seq_width}}", DIM),
            "  ",
            (f"{self._time(row.event.timestamp):>{_TIME_WIDTH}}  "[: self._time_width], DIM),
            (f"{kind:<{_KIND_WIDTH}}", entry.kind_style),
            "  ",
            (guides, DIM),
        )
        margin_text = text(" " * margin, (hanging, DIM))
        for at, line in enumerate(self._body(entry, width)):
            console.print((head if at == 0 else margin_text) + line, soft_wrap=True)

    def _body(self, entry: Entry, width: int) -> list[Text]:
        text, style = entry.text.rstrip(), entry.style
        cut = not self._full
        limit = entry.lines
        if cut:
            shortened = len(text) > _LONGEST_KEPT
            text = " ".join(text[:_LONGEST_KEPT].split()) + ("…" if shortened else "")
        first = self._output.text(*entry.lead)
        if entry.lead and text:
            first.append("  ")
        for at, part in enumerate(safe(text).split("\n")):
            first.append("\n" * bool(at) + part, style)
        lines = self._wrapped(first, width, limit if cut else None)
        for note in entry.notes:
            lines += self._wrapped(self._output.text(*note), width, 2 if cut else None)
        if self._full:
            for detail in entry.details:
                lines += self._wrapped(self._output.text(*detail), width, None)
        return lines

    def _wrapped(self, text: Text, width: int, limit: int | None) -> list[Text]:
        if limit == 1:  # wrapping breaks before a long word, and JSON is one long word
            text.truncate(width, overflow="ellipsis" if self._output.unicode else "crop")
            return [text]
        lines = list(text.wrap(self._output.console, width, overflow="fold", tab_size=4))
        if limit is None or len(lines) <= limit:
            return lines
        visible = lines[:limit]
        last = visible[-1]
        last.rstrip()
        last.truncate(width - 1)
        last.append("…" if self._output.unicode else ">", DIM)
        return visible

    def _time(self, timestamp: datetime) -> str:
        if self._start is None:
            return f"{timestamp:%H:%M:%S}"
        since = timestamp - self._start
        sign = "-" if since.days < 0 else "+"
        seconds = abs(since.total_seconds())
        if seconds < 59.95:  # noqa: PLR2004  # larger values would be rounded to 60.0
            return f"{sign}{seconds:.1f}s"
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        if days:
            return f"{sign}{days}d{hours:02}h"
        return f"{sign}{hours}h{minutes:02}m" if hours else f"{sign}{minutes}m{rest:02}s"
