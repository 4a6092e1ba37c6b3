"""Arranges events as rows of a timeline: nested calls below their parent, and a result below its call.

``Timeline`` makes the rows of events that arrive one by one. ``arrange`` orders the events of a whole run.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.pairing import Pairing


class Row(msgspec.Struct):
    """A row of a timeline.

    Attributes:
        event: The event that the row shows.
        depth: The number of calls around the event.
        call: For a result, the row of its call. None if that call was not added.
        parent: For a nested call, the row of the call around it.
        result: For a call, the row of its result.
        inside: For a call, the rows of the calls nested directly in it.
        adjacent: For a result, whether it is directly below its call.
    """

    event: Event
    depth: int = 0
    call: Row | None = None
    parent: Row | None = None
    result: Row | None = None
    inside: list[Row] = []
    adjacent: bool = False


class Timeline:
    """Makes rows of events that arrive one by one, in append order."""

    def __init__(self) -> None:
        self._pairing: Pairing[Row] = Pairing()

    def add(self, event: Event) -> Row:
        """Add the next event and return its row."""
        row = Row(event)
        data = event.data
        if isinstance(data, ToolCall):
            row.parent = self._pairing.parent_of(data)
            if row.parent is not None:
                row.depth = row.parent.depth + 1
                row.parent.inside.append(row)
            self._pairing.add_call(data, row)
        elif isinstance(data, ToolResult) and (call := self._pairing.add_result(data)) is not None:
            row.depth = call.depth
            row.call = call
            call.result = row
        return row


def arrange(log: Iterable[Event]) -> list[Row]:
    """Return the rows of a run's timeline.

    The rows keep the append order of ``log``, except that a call is followed by its nested calls and its result.
    """
    timeline = Timeline()
    unordered = [timeline.add(event) for event in log]
    rows: list[Row] = []
    waiting = [row for row in reversed(unordered) if row.parent is None and row.call is None]
    while waiting:
        row = waiting.pop()
        rows.append(row)
        if row.result is not None:
            row.result.adjacent = not row.inside
            waiting.append(row.result)
        waiting.extend(reversed(row.inside))
    return rows
