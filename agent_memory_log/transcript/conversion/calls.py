"""Tracks calls in a transcript: their wire ids, the results that answer them, and nested calls the model did not make.

A parser and the matching builder each use one ledger. Both call its methods in the same order and get the same results.
"""

from __future__ import annotations

from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.pairing import Pairing
from agent_memory_log.transcript.names import UnusedIds, WireRules


class CallLedger:
    """The calls of one transcript, in append order.

    If a provider allows each id only once, a later call with a used id gets another wire id. Its result gets the same
    wire id.
    """

    __slots__ = ("_ids", "_known", "_pairing", "_rules")

    def __init__(self, rules: WireRules) -> None:
        self._rules = rules
        self._pairing: Pairing[tuple[str | None, str]] = Pairing()
        self._ids = UnusedIds(rules)
        self._known: dict[str, str] = {}

    def call(self, data: ToolCall) -> str | None:
        """Add a call and return its wire id; None for a call made inside another call of this log.

        The model did not make such a nested call. A call whose parent is in another run is not nested: the log of an
        inner agent refers to the outer agent's call.
        """
        is_nested = bool(data.parent_tool_call_id) and self._pairing.parent_of(data) is not None
        wire = None if is_nested else self._wire_id(data.tool_call_id)
        self._pairing.add_call(data, (wire, data.tool_name))
        return wire

    def result(self, data: ToolResult) -> str | None:
        """Add a result and return the wire id of the call it answers; None if the model did not make that call."""
        call = self._pairing.add_result(data)
        if call is not None:
            return call[0]
        return self._rules.wire_id(data.tool_call_id) if self._pairing.parent_of(data) is None else None

    def open_call_name(self, call_id: str) -> str | None:
        """Return the tool of the open call that the next result with ``call_id`` answers; None if no call is open."""
        call = self._pairing.next_answered(call_id)
        return None if call is None else call[1]

    def _wire_id(self, call_id: str) -> str:
        wire = self._known.get(call_id)
        if wire is None:
            self._known[call_id] = wire = self._rules.wire_id(call_id)
        return self._ids.unused(wire) if self._rules.unique_ids else wire
