"""Which event belongs where in a timeline: nested calls under their parent, a result beside its call.

Pure: no text, no terminal. The pairing rule is ``Reader``'s (a result answers the latest open call with its id), kept
here event by event because a live tail has no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import ToolCall, ToolResult


class Row(msgspec.Struct):
    """An event's place in a timeline.

    - ``depth``: how many calls it is inside of.
    - ``call``: for a result, the call it answers (None: none of those seen).
    - ``answered``: for a call, whether a result was seen.
    - ``adjacent``: for a result, whether it stands right below its call.
    """

    event: Event
    depth: int = 0
    call: Event | None = None
    answered: bool = False
    adjacent: bool = False


class Pairing:
    """Places events that arrive one after the other, in append order."""

    def __init__(self) -> None:
        self._latest: dict[str, Row] = {}
        self._open: dict[str, list[Row]] = {}
        self._parents: dict[int, Row] = {}
        self._calls: dict[int, Row] = {}

    def add(self, event: Event) -> Row:
        """The next event's row."""
        row = Row(event)
        data = event.data
        if isinstance(data, ToolCall):
            parent = self._latest.get(data.parent_tool_call_id) if data.parent_tool_call_id else None
            if parent is not None:
                row.depth = parent.depth + 1
                self._parents[id(row)] = parent
            self._latest[data.tool_call_id] = row
            self._open.setdefault(data.tool_call_id, []).append(row)
        elif isinstance(data, ToolResult) and (waiting := self._open.get(data.tool_call_id)):
            call = waiting.pop()
            call.answered = True
            row.call = call.event
            row.depth = call.depth
            self._calls[id(row)] = call
        return row

    def parent_of(self, row: Row) -> Row | None:
        """The row of the call inside which a call was made."""
        return self._parents.get(id(row))

    def call_of(self, row: Row) -> Row | None:
        """The row of the call that a result answered."""
        return self._calls.get(id(row))


def arrange(log: Iterable[Event]) -> list[Row]:
    """The rows of a timeline of ``log``, which is in append order: as there, but each call followed by the calls made
    inside it and then by its result.
    """
    pairing = Pairing()
    roots: list[Row] = []
    inside: dict[int, list[Row]] = {}
    results: dict[int, Row] = {}
    for event in log:
        row = pairing.add(event)
        parent, call = pairing.parent_of(row), pairing.call_of(row)
        if parent is not None:
            inside.setdefault(id(parent), []).append(row)
        elif call is not None:
            results[id(call)] = row
        else:
            roots.append(row)
    rows: list[Row] = []
    waiting = roots[::-1]
    while waiting:
        row = waiting.pop()
        rows.append(row)
        result = results.get(id(row))
        if result is not None:
            result.adjacent = id(row) not in inside
            waiting.append(result)
        waiting.extend(reversed(inside.get(id(row), ())))
    return rows
