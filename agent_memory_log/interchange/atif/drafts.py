"""What a field of a step comes to as a payload, before anything ATIF has no field for."""

from __future__ import annotations

import re
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
from agent_memory_log.interchange.atif.documents import AtifStep, Call, Result, text_of

MESSAGES: dict[str, type[UserMessage | SystemMessage | AssistantMessage]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "agent": AssistantMessage,
}
"""The payload of a step's message, by its source."""

_INDEXED = re.compile(r"(tool_calls|observation\.results)\[(\d{1,9})\]", re.ASCII)


def draft_of(entry: Mapping[str, JsonValue], step: AtifStep, where: str) -> EventData:
    """What the field that an entry is ``at`` comes to. Raises ``DecodeError`` where the step has no such field."""
    at = entry["at"]
    if at == "message":
        return MESSAGES[step.source](message=_cut(text_of(step.message), entry, where))
    if at == "reasoning_content":
        return Thinking(text=_cut(step.reasoning_content or "", entry, where), final=True)
    match = _INDEXED.fullmatch(at) if isinstance(at, str) else None
    if match is None:
        raise DecodeError(f"{where}: at must name a field of the step, found {describe(at)}")
    index = int(match[2])
    calls = step.tool_calls or []
    if match[1] == "tool_calls":
        if index < len(calls):
            return draft_call(calls[index])
    elif step.observation is not None and index < len(step.observation.results):
        result = draft_result(step.observation.results[index], step.tool_names)
        if entry.get("is_error") is True:
            return msgspec.structs.replace(result, result_json="", error_message=result.result_json)
        return result
    raise DecodeError(f"{where}: the step has no {at}")


def _cut(text: str, entry: Mapping[str, JsonValue], where: str) -> str:
    span = entry.get("span")
    if span is None:
        return text
    if not isinstance(span, list) or [type(one) for one in cast("list[object]", span)] != [int, int]:
        raise DecodeError(f"{where}: span must be two integers, found {describe(span)}")
    start, end = cast("list[int]", span)
    return text[max(0, start) : max(0, end)]


def draft_call(call: Call) -> ToolCall:
    """The payload a call comes to."""
    return ToolCall(
        tool_call_id=call.tool_call_id,
        tool_name=call.function_name,
        payload_json=encode_json(call.arguments).decode(),
    )


def draft_result(result: Result, tool_names: Mapping[str, str]) -> ToolResult:
    """The payload a result comes to, in a step that calls these tools, by the calls' ids."""
    call_id = result.source_call_id or ""
    text = text_of(result.content)
    return ToolResult(
        tool_call_id=call_id,
        tool_name=tool_names.get(call_id, ""),
        result_json="" if is_absent_text(text) else text,
    )
