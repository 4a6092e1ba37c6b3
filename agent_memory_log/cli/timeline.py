"""Which event belongs where in a timeline: nested calls under their parent, a result beside its call.

No text and no terminal here. A live tail adds event after event; ``arrange`` orders the events of a whole run.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.pairing import Pairing


class Row(msgspec.Struct):
    """A row of a timeline.

    - ``depth``: how many calls the event is inside of.
    - ``call``: for a result, the row of the call it answers; None if no such call was added.
    - ``parent``: for a call, the row of the call it is made inside of.
    - ``result``, ``inside``: for a call, the rows of its result and of the calls made inside it.
    - ``adjacent``: for a result, whether it stands right below its call.
    """

    event: Event
    depth: int = 0
    call: Row | None = None
    parent: Row | None = None
    result: Row | None = None
    inside: list[Row] = []
    adjacent: bool = False


class Timeline:
    """Makes rows of events that arrive one after the other, in append order."""

    def __init__(self) -> None:
        self._pairing: Pairing[Row] = Pairing()

    def add(self, event: Event) -> Row:
        """The row of the next event."""
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
    """The rows of a timeline of ``log``, which is in append order: as there, but each call followed by the calls made
    inside it and then by its result.
    """
    timeline = Timeline()
    arrived = [timeline.add(event) for event in log]
    rows: list[Row] = []
    waiting = [row for row in reversed(arrived) if row.parent is None and row.call is None]
    while waiting:
        row = waiting.pop()
        rows.append(row)
        if row.result is not None:
            row.result.adjacent = not row.inside
            waiting.append(row.result)
        waiting.extend(reversed(row.inside))
    return rows
