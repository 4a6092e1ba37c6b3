"""Whose an item is, which reasoning it was made with, and where a transcript may be cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from agent_memory_log.transcript.model import Message, Recorded
from agent_memory_log.transcript.openai_responses.rendering import CALLS, RESULTS
from agent_memory_log.transcript.windows import Seams

_SENT_TYPES = frozenset(
    {*RESULTS, "mcp_approval_response", "additional_tools", "configuration_update", "compaction_trigger"}
)
"""The types of items that the runtime sends, messages apart."""


class ResponsesRecorded(Recorded):
    """What the log knows, and ``reasoning_of``: the reasoning each item of the model was made with, by their ids.

    ``""`` stands for reasoning that was erased from the log.
    """

    __slots__ = ("reasoning_of",)

    def __init__(self) -> None:
        super().__init__()
        self.reasoning_of: dict[str, str] = {}


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


def is_said(item: Mapping[str, object]) -> bool:
    """Whether the item is what a user said."""
    return kind_of(item) == "message" and item.get("role") == "user"


def is_instruction(item: Mapping[str, object]) -> bool:
    """Whether the item is a system message, of either name."""
    return kind_of(item) == "message" and item.get("role") in ("system", "developer")


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


def seams(messages: Sequence[Message]) -> Seams:
    """Where a transcript may be cut: nowhere between a call and its result, or inside what the model made at once."""
    head = next((place for place, item in enumerate(messages) if not is_instruction(item)), len(messages))
    turns: list[int] = []
    openings: list[int] = []
    rounds: list[int] = []
    pending: Counter[tuple[str, str]] = Counter()
    open_calls = 0
    was_model = was_said = False
    for place in range(head, len(messages)):
        item = messages[place]
        if is_said(item) or (was_said and is_instruction(item)):
            if not was_said and not open_calls:
                turns.append(place)
                openings.append(place + 1)
                was_said = True
            elif was_said:
                openings[-1] = place + 1
            was_model = False
            continue
        was_said = False
        from_model = is_from_model(item)
        if from_model and not was_model and not open_calls:
            rounds.append(place)
        was_model = from_model
        pair = pair_of(item)
        if pair is not None:
            step = 1 if kind_of(item) in CALLS else -1 if pending[pair] else 0
            pending[pair] += step
            open_calls += step
    return Seams(head, turns, openings, rounds)
