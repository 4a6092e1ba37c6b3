"""Checks thinking budgets. With a budget, the message with the last call, or its turn, must begin with thinking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.anthropic.shapes import THINKING, type_of
from agent_memory_log.transcript.json_types import list_in, map_in


def sendable(messages: Sequence[object], request: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the other arguments. The thinking budget is left out if the last call does not begin with thinking."""
    is_off = call_without_thinking(messages, request) is not None
    return {key: value for key, value in request.items() if not (is_off and key == "thinking")}


def call_without_thinking(messages: Sequence[object], request: Mapping[str, JsonValue]) -> int | None:
    """Return the index of the last assistant message if it lacks thinking that it must begin with; None otherwise.

    With a thinking budget, an assistant message that calls a tool must begin with thinking, unless its turn does.
    Adaptive thinking has no such rule. A turn lasts as long as the user sends only results. Without interleaved
    thinking, the model thinks once in a turn.
    """
    if map_in(request.get("thinking")).get("type") != "enabled":
        return None
    last: int | None = None
    begins = False
    for index in range(len(messages) - 1, -1, -1):
        message = map_in(messages[index])
        kinds = [type_of(block) for block in list_in(message.get("content"))]
        if message.get("role") == "assistant":
            begins = bool(kinds) and kinds[0] in THINKING
            if last is None and (begins or "tool_use" not in kinds):
                return None
            last = index if last is None else last
        elif message.get("role") == "user" and "tool_result" not in kinds and last is not None:
            break
    return None if begins else last
