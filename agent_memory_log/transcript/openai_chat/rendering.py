"""How payloads are rendered as Chat Completions messages where no residual says otherwise; parser and builder share it.

Residuals of this provider may have three parts more. ``parts``: the spans of a content that is a list (``parts.py``).
Of a tool call, ``function_call: true``: it came in the message's legacy ``function_call`` field; ``message: {…}``: it
begins an assistant message that has no event of its own, with this residual. An assistant message that says nothing
beside its calls gets no event, or planners would find empty messages.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.names import WireRules, encode_name
from agent_memory_log.transcript.parts import TextParts
from agent_memory_log.transcript.residual import apply

PROVIDER = "openai-chat"

RULES = WireRules(longest_name=64, longest_id=40, ids_in_alphabet=False)

MESSAGE_TYPE = f"{PROVIDER}.message"
"""The event type of a message that no payload fits; its data is the message."""

TEXT = TextParts({"type": "text"}, "\n")

MESSAGE_EXTRA = frozenset({"parts"})
CALL_EXTRA = frozenset({"message", "function_call"})


def text_message(role: str, content: str | None) -> Message:
    """A message that is nothing but text."""
    return {"role": role, "content": content}


def tool_message(data: ToolResult, wire_id: str) -> Message:
    """The answer to a call."""
    content = data.error_message if is_absent_text(data.result_json) else data.result_json
    return {"role": "tool", "tool_call_id": wire_id, "content": content}


def tool_call(data: ToolCall, wire_id: str) -> Message:
    """An item of ``tool_calls``."""
    return {"id": wire_id, "type": "function", "function": function(data)}


def function(data: ToolCall) -> Message:
    """A call as such: its name and arguments."""
    arguments = "{}" if is_absent_text(data.payload_json) else data.payload_json
    return {"name": encode_name(data.tool_name), "arguments": arguments}


def with_residual(message: Message, residual: Mapping[str, JsonValue]) -> Message:
    """A message with text content changed as its residual says, parts included."""
    spans = residual.get("parts")
    if spans is not None:
        parts = TEXT.join(message["content"] or "", spans)
        if parts is not None:
            message["content"] = parts
    return apply(message, residual)
