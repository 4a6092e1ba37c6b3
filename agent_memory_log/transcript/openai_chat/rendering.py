"""How payloads are rendered as Chat Completions messages where no residual says otherwise; parser and builder share it.

Residuals of this provider may have three parts more. ``parts``: the spans of a content that is a list
(``text_parts.py``). Of a tool call, ``function_call: true``: it came in the message's legacy ``function_call`` field;
``message: {…}``: it begins an assistant message that has no event of its own, with this residual. An assistant message
that says nothing beside its calls gets no event, or planners would find empty messages.
"""

from __future__ import annotations

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.transcript.conversion.text_parts import TextParts
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.names import WireRules, encode_name

PROVIDER = "openai-chat"

RULES = WireRules(longest_name=64, longest_id=40, ids_in_alphabet=False)

MESSAGE_TYPE = f"{PROVIDER}.message"
"""The event type of a message that no payload fits; its data is the message."""

TEXT = TextParts({"type": "text"}, "\n")

EXTRA = frozenset({"parts", "message", "function_call"})


def tool_message(data: ToolResult, wire_id: str) -> WireMessage:
    """The answer to a call."""
    content = data.error_message if is_absent_text(data.result_json) else data.result_json
    return {"role": "tool", "tool_call_id": wire_id, "content": content}


def tool_call(data: ToolCall, wire_id: str) -> WireMessage:
    """An item of ``tool_calls``."""
    return {"id": wire_id, "type": "function", "function": function(data)}


def function(data: ToolCall) -> WireMessage:
    """A call as such: its name and arguments."""
    arguments = "{}" if is_absent_text(data.payload_json) else data.payload_json
    return {"name": encode_name(data.tool_name), "arguments": arguments}
