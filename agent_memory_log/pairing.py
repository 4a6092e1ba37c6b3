"""Which call a tool result answers: the latest call before it that has its id and has no result yet.

Providers use an id more than once in a run, so an id alone does not name a call. Everything in the library that pairs
events of calls with events of results does it here. Repairs of transcripts pair the messages of a provider by the same
rule (``transcript/validity/``): those need not have been events.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from agent_memory_log.events.payloads import ToolCall, ToolResult

_Call = TypeVar("_Call")


class Pairing(Generic[_Call]):
    """The calls of one run, as they are added in append order, and which of them are open.

    Each call is known by a value of the caller's choice, as its event or its place in the log, and every answer is such
    a value. Adding and asking take the same time however many calls there are; ``open_calls`` takes time for each open
    call.

        pairing: Pairing[Event] = Pairing()
        pairing.add_call(call, event)
        pairing.add_result(result)  # the event of the call, or None
    """

    __slots__ = ("_count", "_latest", "_open", "_open_numbers")

    def __init__(self) -> None:
        """No calls yet."""
        self._count = 0
        self._latest: dict[str, _Call] = {}
        self._open: dict[int, _Call] = {}
        self._open_numbers: dict[str, list[int]] = {}

    def add_call(self, data: ToolCall, call: _Call) -> None:
        """Add the next call of the run; ``call`` is what it is known by, and never None."""
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
        """Add the next result of the run. Returns the call that it answers, which is open no more, or None."""
        numbers = self._open_numbers.get(data.tool_call_id)
        return self._open.pop(numbers.pop()) if numbers else None

    def next_answered(self, call_id: str) -> _Call | None:
        """The open call that the next result with this id would answer."""
        numbers = self._open_numbers.get(call_id)
        return self._open[numbers[-1]] if numbers else None

    def parent_of(self, data: ToolCall | ToolResult) -> _Call | None:
        """The call inside which this one is made: the latest that has the ``parent_tool_call_id``.

        None without a parent. The parent may also be a call of another run, as in the log of an inner agent: then None.
        """
        return self._latest.get(data.parent_tool_call_id) if data.parent_tool_call_id else None

    @property
    def open_count(self) -> int:
        """How many calls are open."""
        return len(self._open)

    def open_calls(self) -> list[_Call]:
        """The calls that no result has answered yet, in append order."""
        return list(self._open.values())
