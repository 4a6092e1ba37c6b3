"""Whose an item is, which reasoning it was made with, and where a transcript may be cut."""

from __future__ import annotations

from collections.abc import Mapping

from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.openai_responses.rendering import CALLS, RESULTS
from agent_memory_log.transcript.windows import Side, side_of_role

_SENT_TYPES = frozenset(
    {*RESULTS, "mcp_approval_response", "additional_tools", "configuration_update", "compaction_trigger"}
)
"""The types of items that the runtime sends, messages apart."""


def kind_of(item: Mapping[str, object]) -> str:
    """The item's type; that of a message may be left out. ``""`` where it is no text."""
    if "type" not in item:
        return "message" if "role" in item else "item_reference"
    kind = item["type"]
    return kind if isinstance(kind, str) else ""


def is_from_model(item: Mapping[str, object]) -> bool:
    """Whether the model made the item; of types not known, yes."""
    kind = kind_of(item)
    if kind == "message":
        return item.get("role") == "assistant"
    if kind == "tool_search_output":
        return item.get("execution") != "client"
    return kind not in _SENT_TYPES


def pair_of(item: Mapping[str, object]) -> tuple[str, str] | None:
    """What a call and its result have in common: the result's type and the id; None where the item is neither.

    The result of a local shell call has the call's id as its own.
    """
    kind = kind_of(item)
    known = CALLS.get(kind) or RESULTS.get(kind)
    if known is None:
        return None
    call_id = item.get("call_id")
    if not isinstance(call_id, str) and kind == known.result:
        call_id = item.get(known.id_key)
    return (known.result, call_id) if isinstance(call_id, str) else None


def side_of(item: WireMessage) -> Side:
    """Whose an item is; no cut comes between a call and its result."""
    kind = kind_of(item)
    if kind == "message":
        return side_of_role(item.get("role"))
    pair = pair_of(item)
    speaker = "model" if is_from_model(item) else "tool"
    return Side(speaker, opened=pair) if kind in CALLS else Side(speaker, closed=pair)
