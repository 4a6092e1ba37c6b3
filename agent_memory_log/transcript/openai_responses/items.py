"""Classifies items: their type, their sender, the call and result that belong together, and their side for cuts."""

from __future__ import annotations

from collections.abc import Mapping

from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.openai_responses.rendering import CALLS, FUNCTION, RESULTS, TOOL_SEARCH
from agent_memory_log.transcript.windows import Side, side_of_role

_SENT_TYPES = frozenset({*RESULTS, "additional_tools", "configuration_update", "compaction_trigger"})
"""The types of items that the runtime sends, besides messages."""

_SEARCHES = (TOOL_SEARCH.call, TOOL_SEARCH.result)  # a tuple, because a type may be unhashable


def kind_of(item: Mapping[str, object]) -> str:
    """Return the item's type, with a default for messages and references; ``""`` if the type is not text.

    A tool search that OpenAI runs has the type of a search that the runtime runs. Its kind begins with ``server_``.
    """
    if "type" not in item:
        return "message" if "role" in item else "item_reference"
    kind = item["type"]
    if kind in _SEARCHES and item.get("execution") != "client":
        return f"server_{kind}"
    return kind if isinstance(kind, str) else ""


def is_from_model(item: Mapping[str, object]) -> bool:
    """Return whether the model made the item. Items of unknown types count as the model's."""
    kind = kind_of(item)
    if kind == "message":
        return item.get("role") == "assistant"
    return kind not in _SENT_TYPES


def pair_of(item: Mapping[str, object]) -> tuple[str, str] | None:
    """Return a key that a call and its result share: the result's type and the call id; None for other items.

    OpenAI accepts the result of a function for a tool search too, so both have the same type here. Its API also accepts
    the call id in the field ``call_id`` of any result.
    """
    kind = kind_of(item)
    call_kind = CALLS.get(kind) or RESULTS.get(kind)
    if call_kind is None:
        return None
    call_id = item.get(call_kind.call_key if kind == call_kind.call else "call_id")
    if not isinstance(call_id, str) and kind == call_kind.result:
        call_id = item.get(call_kind.id_key)
    result = FUNCTION.result if call_kind is TOOL_SEARCH else call_kind.result
    return (result, call_id) if isinstance(call_id, str) else None


def side_of(item: WireMessage) -> Side:
    """Return the side of an item. A call and its result form a pair, so that no cut separates them."""
    kind = kind_of(item)
    if kind == "message":
        return side_of_role(item.get("role"))
    pair = pair_of(item)
    speaker = "model" if is_from_model(item) else "tool"
    return Side(speaker, opened=pair) if kind in CALLS else Side(speaker, closed=pair)
