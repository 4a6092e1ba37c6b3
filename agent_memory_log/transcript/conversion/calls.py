"""Tracks calls in a transcript: their wire ids, the results that answer them, and nested calls the model did not make.

A parser and the matching builder each use one ledger. Both call its methods in the same order and get the same results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.pairing import Pairing
from agent_memory_log.transcript.names import UnusedIds, WireRules


class CallLedger:
    """The calls of one transcript, in append order.

    If a provider allows each id only once, a later call with a used id gets another wire id. Its result gets the same
    wire id. An id that this provider sent is its own wire id, whatever the rules say.
    """

    __slots__ = ("_ids", "_known", "_pairing", "_provider", "_rules")

    def __init__(self, rules: WireRules, provider: str) -> None:
        self._rules = rules
        self._provider = provider
        self._pairing: Pairing[tuple[str | None, str]] = Pairing()
        self._ids = UnusedIds(rules)
        self._known: dict[str, str] = {}

    def call(self, data: ToolCall, sent_id: str | None = None) -> str | None:
        """Add a call and return its wire id by the rules; None for a call made inside another call of this log.

        The model did not make such a nested call. A call whose parent is in another run is not nested: the log of an
        inner agent refers to the outer agent's call.

        ``sent_id`` is the id that the provider sent, for its parser. A stored call has it in ``structured`` if it
        differs from the wire id. The result of the call gets this id. ``""`` means that the call had no id.
        """
        is_nested = bool(data.parent_tool_call_id) and self._pairing.parent_of(data) is not None
        wire = None if is_nested else self._wire_id(data.tool_call_id)
        answered = wire
        if wire is not None:
            if sent_id is None and data.structured is not None:
                sent_id = self._sent_id(data.structured)
            if sent_id is not None and sent_id != wire:
                answered = sent_id
                self._ids.used.add(sent_id)
        self._pairing.add_call(data, (answered, data.tool_name))
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

    def _sent_id(self, structured: object) -> str | None:
        """Return the id that the stored residual of a call holds, or None. ``""`` means that the call had no id."""
        residual = _map(_map(structured).get(self._provider))
        fields, without, key = _map(residual.get("fields")), residual.get("without"), self._rules.id_key
        sent_id = fields.get(key)
        if isinstance(sent_id, str) or not self._rules.optional_ids:
            return sent_id if isinstance(sent_id, str) else None
        return "" if key in fields or (isinstance(without, (list, tuple)) and key in without) else None

    def _wire_id(self, call_id: str) -> str:
        wire = self._known.get(call_id)
        if wire is None:
            self._known[call_id] = wire = self._rules.wire_id(call_id)
        return self._ids.unused(wire) if self._rules.unique_ids else wire


def _map(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
