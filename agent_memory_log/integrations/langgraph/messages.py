"""LangChain's messages as events of this library, with the message itself beside the text.

A message becomes the events that its OpenAI form has: a user message, or an answer with its thinking and calls. The
longest of them carries the serialized message, compressed with the event's own text as the dictionary. So the message
comes back unchanged, costs little more than its text, and goes when this event is redacted.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from msgspec.structs import replace

from agent_memory_log import AssistantMessage, Event, EventData, JsonValue, Thinking, ToolCall, ToolResult, UserMessage
from agent_memory_log import SystemMessage as SystemText
from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.transcript import parse

_KEY = "langgraph"
_KINDS = (HumanMessage, AIMessage, SystemMessage, ToolMessage)
Carrier = UserMessage | AssistantMessage | SystemText | Thinking | ToolCall | ToolResult
"""The payloads that can carry a serialized message."""


def message_events(message: BaseMessage, form: str, data: bytes, event_id: str) -> list[Event]:
    """Return the events of a message. The carrier has ``event_id``.

    Args:
        message: The message.
        form: The name of the serialized form.
        data: The serialized message.
        event_id: The id of the carrier.

    Returns:
        The events, or an empty list for a message that has no form as events.
    """
    if not isinstance(message, _KINDS):
        return []
    try:
        wire = convert_to_openai_messages([message])
        events = parse(cast("list[Mapping[str, JsonValue]]", wire), "openai-chat", source=event_id)
    except (ValueError, TypeError, KeyError, AgentMemoryLogError):  # a block that has no form there
        return []
    carriers = [event for event in events if isinstance(event.data, Carrier)]
    if not carriers:
        return []
    carrier = max(carriers, key=lambda event: len(_text(cast("Carrier", event.data))))
    ids = iter(f"{event_id}/{number}" for number in range(1, len(events)))
    return [
        replace(event, event_id=event_id, data=_carrying(cast("Carrier", event.data), message, form, data))
        if event is carrier
        else replace(event, event_id=next(ids))
        for event in events
    ]


def carried(payload: EventData) -> tuple[str, bytes]:
    """Return the form and the bytes of the message that a carrier holds."""
    carrier = cast("Carrier", payload)
    form, text = cast("dict[str, tuple[str, str]]", carrier.structured)[_KEY]
    unpacker = zlib.decompressobj(zdict=_dictionary(carrier))
    return form, unpacker.decompress(base64.b64decode(text)) + unpacker.flush()


def _carrying(payload: Carrier, message: BaseMessage, form: str, data: bytes) -> Carrier:
    if isinstance(payload, ToolResult) and isinstance(message, ToolMessage):
        payload = replace(payload, tool_name=payload.tool_name or message.name or "")
        if message.status == "error":
            payload = replace(payload, result_json="", error_message=payload.result_json)
    packer = zlib.compressobj(9, zdict=_dictionary(payload))
    packed = packer.compress(data) + packer.flush()
    structured = cast("Mapping[str, JsonValue]", payload.structured or {})
    return replace(payload, structured={**structured, _KEY: [form, base64.b64encode(packed).decode()]})


def _dictionary(payload: Carrier) -> bytes:
    return _text(payload).encode("utf-8", "surrogatepass")


def _text(payload: Carrier) -> str:
    if isinstance(payload, ToolCall):
        return payload.payload_json
    if isinstance(payload, ToolResult):
        return payload.result_json or payload.error_message
    return payload.text if isinstance(payload, Thinking) else payload.message
