"""Which call a result answers, the id a call has on the wire, and the calls the model knows nothing of.

A parser and the builder that undoes it ask one ledger each the same questions in the same order, so that their answers
agree.
"""

from __future__ import annotations

from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.transcript.names import UnusedIds, WireRules


class CallLedger:
    """The calls of one transcript, in append order.

    A result answers the latest open call before it with its id, as for ``Reader``: providers use an id more than once.
    Where a provider does not allow that, a later call with a known id gets another one on the wire, and so does its
    result.
    """

    __slots__ = ("_ids", "_known", "_open", "_rules")

    def __init__(self, rules: WireRules) -> None:
        self._rules = rules
        self._open: dict[str, list[tuple[str | None, str]]] = {}
        self._ids = UnusedIds(rules)
        self._known: dict[str, str] = {}

    def call(self, data: ToolCall) -> str | None:
        """Take in a call: its id on the wire; None for one made inside another call of this log.

        The model did not make that one. In the log of an inner agent the parent is a call of another run.
        """
        parent = data.parent_tool_call_id
        call_id = data.tool_call_id
        wire = None if parent and parent in self._open else self._wire_id(call_id)
        asked = self._open.get(call_id)
        if asked is None:
            self._open[call_id] = [(wire, data.tool_name)]
        else:
            asked.append((wire, data.tool_name))
        return wire

    def result(self, data: ToolResult) -> str | None:
        """Take in a result: the id on the wire of the call it answers; None where the model did not make that call."""
        asked = self._open.get(data.tool_call_id)
        if asked:
            return asked.pop()[0]
        if data.parent_tool_call_id and data.parent_tool_call_id in self._open:
            return None
        return self._rules.wire_id(data.tool_call_id)

    def asked_name(self, call_id: str) -> str | None:
        """The name of the tool whose call the next result with ``call_id`` answers, None when there is none open."""
        asked = self._open.get(call_id)
        return asked[-1][1] if asked else None

    def _wire_id(self, call_id: str) -> str:
        wire = self._known.get(call_id)
        if wire is None:
            self._known[call_id] = wire = self._rules.wire_id(call_id)
        return self._ids.unused(wire) if self._rules.unique_ids else wire
