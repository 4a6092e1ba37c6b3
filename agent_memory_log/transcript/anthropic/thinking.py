"""Thinking budgets: with one, the last call must begin with thinking, or the turn must that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.anthropic.shapes import THINKING, type_of
from agent_memory_log.transcript.json_types import list_in, map_in


def sendable(messages: Sequence[object], request: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The other arguments; without a thinking budget where the last call does not begin with thinking, as it must."""
    is_off = call_without_thinking(messages, request) is not None
    return {key: value for key, value in request.items() if not (is_off and key == "thinking")}


def call_without_thinking(messages: Sequence[object], request: Mapping[str, JsonValue]) -> int | None:
    """The index of the last assistant message that must begin with thinking, and does not; None if there is none.

    With a thinking budget (rather than adaptive thinking or none) it must if it calls a tool, unless its turn begins
    with thinking. A turn goes on as long as the user sends results: without interleaved thinking the model thinks once
    in it.
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
