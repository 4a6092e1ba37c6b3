"""Converts each field of an ATIF step to a payload. The payload has only the data that ATIF has fields for.

The writer stores the differences between an event and this payload, and the reader applies them to the same payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe, is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import (
    AssistantMessage,
    EventData,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_memory_log.interchange.atif.documents import AtifStep, text_of

MESSAGE = "message"
REASONING = "reasoning_content"
CALLS = "tool_calls"
RESULTS = "observation.results"

_MESSAGES: dict[str, type[UserMessage | SystemMessage | AssistantMessage]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "agent": AssistantMessage,
}


def payloads_of(step: AtifStep) -> dict[str, EventData]:
    """Return the payload of each field of a step by the field's path, such as ``message`` or ``tool_calls[0]``."""
    payloads: dict[str, EventData] = {
        REASONING: Thinking(text=step.reasoning_content or "", final=True),
        MESSAGE: _MESSAGES[step.source](message=text_of(step.message)),
    }
    tool_names: dict[str, str] = {}
    for index, call in enumerate(step.tool_calls or ()):
        tool_names.setdefault(call.tool_call_id, call.function_name)
        arguments = encode_json(call.arguments).decode()
        payloads[f"{CALLS}[{index}]"] = ToolCall(call.tool_call_id, call.function_name, payload_json=arguments)
    for index, result in enumerate(step.observation.results if step.observation is not None else ()):
        call_id, text = result.source_call_id or "", text_of(result.content)
        payloads[f"{RESULTS}[{index}]"] = ToolResult(
            call_id, tool_names.get(call_id, ""), result_json="" if is_absent_text(text) else text
        )
    return payloads


def payload_at(position: Mapping[str, JsonValue], payloads: Mapping[str, EventData], path: str) -> EventData:
    """Return the payload at a position of a step.

    A position is a map. ``at`` is the path of the field. ``span`` is the range of characters for one event if the field
    joins several events. ``is_error`` is true if a result's content is its error message. Raises ``DecodeError`` if the
    step has no such field.
    """
    at = position["at"]
    payload = payloads.get(at) if isinstance(at, str) else None
    if payload is None:
        raise DecodeError(f"{path}: at must name a field of the step, got {describe(at)}")
    span = position.get("span")
    if isinstance(payload, ToolResult) and position.get("is_error") is True:
        return msgspec.structs.replace(payload, result_json="", error_message=payload.result_json)
    if span is None or isinstance(payload, (ToolCall, ToolResult)):
        return payload
    if not isinstance(span, list) or [type(end) for end in cast("list[object]", span)] != [int, int]:
        raise DecodeError(f"{path}: span must be two integers, got {describe(span)}")
    start, end = (max(0, index) for index in cast("list[int]", span))
    key = "text" if isinstance(payload, Thinking) else "message"
    return msgspec.structs.replace(payload, **{key: getattr(payload, key)[start:end]})
