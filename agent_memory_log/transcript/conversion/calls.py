"""Which call a result answers, the id a call has on the wire, and the calls the model knows nothing of.

A parser and the builder that undoes it ask one ledger each the same questions in the same order, so that their answers
agree.
"""

from __future__ import annotations

from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.pairing import Pairing
from agent_memory_log.transcript.names import UnusedIds, WireRules


class CallLedger:
    """The calls of one transcript, in append order.

    Where a provider does not allow that an id is used more than once, a later call with a known id gets another one on
    the wire, and so does its result.
    """

    __slots__ = ("_ids", "_known", "_pairing", "_rules")

    def __init__(self, rules: WireRules) -> None:
        self._rules = rules
        self._pairing: Pairing[tuple[str | None, str]] = Pairing()
        self._ids = UnusedIds(rules)
        self._known: dict[str, str] = {}

    def call(self, data: ToolCall) -> str | None:
        """Take in a call: its id on the wire; None for one made inside another call of this log.

        The model did not make that one. In the log of an inner agent the parent is a call of another run.
        """
        is_nested = bool(data.parent_tool_call_id) and self._pairing.parent_of(data) is not None
        wire = None if is_nested else self._wire_id(data.tool_call_id)
        self._pairing.add_call(data, (wire, data.tool_name))
        return wire

    def result(self, data: ToolResult) -> str | None:
        """Take in a result: the id on the wire of the call it answers; None where the model did not make that call."""
        call = self._pairing.add_result(data)
        if call is not None:
            return call[0]
        return self._rules.wire_id(data.tool_call_id) if self._pairing.parent_of(data) is None else None

    def open_call_name(self, call_id: str) -> str | None:
        """The name of the tool whose call the next result with ``call_id`` answers, None when there is none open."""
        call = self._pairing.next_answered(call_id)
        return None if call is None else call[1]

    def _wire_id(self, call_id: str) -> str:
        wire = self._known.get(call_id)
        if wire is None:
            self._known[call_id] = wire = self._rules.wire_id(call_id)
        return self._ids.unused(wire) if self._rules.unique_ids else wire
