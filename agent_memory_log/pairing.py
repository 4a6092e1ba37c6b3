"""Pairs tool results with tool calls: a result answers the latest open call before it that has its id.

Providers reuse ids within a run, so an id alone does not identify a call. All code that pairs call events with result
events uses this module. Repairs of transcripts apply the same rule to a provider's messages (``transcript/validity/``),
because those messages need not be events.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import ToolCall, ToolResult

_Call = TypeVar("_Call")


class Pairing(Generic[_Call]):
    """The calls of one run, added in append order, and the set of those that are open.

    The caller chooses a value for each call, such as its event or its index in the log, and the methods return these
    values. Each method takes constant time, except ``open_calls``, whose time grows with the number of open calls.

        pairing: Pairing[Event] = Pairing()
        pairing.add_call(call, event)
        pairing.add_result(result)  # the event of the call, or None
    """

    __slots__ = ("_count", "_latest", "_open", "_open_numbers")

    def __init__(self) -> None:
        """Create a pairing without calls."""
        self._count = 0
        self._latest: dict[str, _Call] = {}
        self._open: dict[int, _Call] = {}
        self._open_numbers: dict[str, list[int]] = {}

    def add_call(self, data: ToolCall, call: _Call) -> None:
        """Add the next call of the run. ``call`` is the value that the other methods return for it, and must not be
        None.
        """
        number = self._count
        self._count = number + 1
        self._open[number] = call
        call_id = data.tool_call_id
        self._latest[call_id] = call
        same_id = self._open_numbers.get(call_id)
        if same_id is None:
            self._open_numbers[call_id] = [number]
        else:
            same_id.append(number)

    def add_result(self, data: ToolResult) -> _Call | None:
        """Add the next result of the run, close the call that it answers, and return that call.

        Returns None if no open call has the id of the result.
        """
        numbers = self._open_numbers.get(data.tool_call_id)
        return self._open.pop(numbers.pop()) if numbers else None

    def next_answered(self, call_id: str) -> _Call | None:
        """Return the open call that the next result with this id would answer, or None."""
        numbers = self._open_numbers.get(call_id)
        return self._open[numbers[-1]] if numbers else None

    def parent_of(self, data: ToolCall | ToolResult) -> _Call | None:
        """Return the parent call: the latest call with the id ``parent_tool_call_id``.

        Returns None if there is no parent, or if the parent is in another run, as in the log of an inner agent.
        """
        return self._latest.get(data.parent_tool_call_id) if data.parent_tool_call_id else None

    @property
    def open_count(self) -> int:
        """The number of open calls."""
        return len(self._open)

    def open_calls(self) -> list[_Call]:
        """Return the calls that have no result yet, in append order."""
        return list(self._open.values())


def unanswered_calls(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the events of the calls that no later result among ``events`` answers, in order."""
    pairing: Pairing[Event] = Pairing()
    for event in events:
        if isinstance(event.data, ToolCall):
            pairing.add_call(event.data, event)
        elif isinstance(event.data, ToolResult):
            pairing.add_result(event.data)
    return tuple(pairing.open_calls())
