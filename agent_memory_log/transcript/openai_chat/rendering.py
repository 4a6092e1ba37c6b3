"""Renders payloads as Chat Completions messages where no residual applies. The parser and the builder share this code.

Residuals of this provider may have these parts:

- ``parts``: the spans of content that is a list (``text_parts.py``).
- ``function_call: true``, for a call: the call was in the message's legacy ``function_call`` field.
- ``message: {…}``, for a call: the call begins an assistant message without an event. The map is its residual.
- ``reasoning: {…}``, for thinking: the fields of the reasoning (``reasoning.py``).

An assistant message with calls and no text gets no event, because planners would see an empty message.
"""

from __future__ import annotations

import re

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.transcript.conversion.rendering import result_text
from agent_memory_log.transcript.conversion.text_parts import TextParts
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import is_map
from agent_memory_log.transcript.names import WireRules, encode_name
from agent_memory_log.transcript.vendors.profiles import Vendor

PROVIDER = "openai-chat"

RULES = WireRules(longest_name=64, longest_id=40, id_pattern=None)


def vendor_rules(vendor: Vendor) -> WireRules:
    """Return the limits of a vendor."""
    return WireRules(longest_name=64, longest_id=vendor.longest_call_id, id_pattern=re.compile(vendor.call_ids))


TEXT = TextParts({"type": "text"}, "\n")

EXTRA = frozenset({"parts", "message", "function_call", "reasoning"})


def is_no_call(function_call: object) -> bool:
    """Return whether a ``function_call`` is an empty placeholder, which some vendors send in every answer."""
    return is_map(function_call) and function_call.get("name") == function_call.get("arguments") == ""


def tool_message(data: ToolResult, wire_id: str) -> WireMessage:
    """Return the message that answers a call."""
    message = {"role": "tool", "tool_call_id": wire_id, "content": result_text(data)}
    if not wire_id:
        message["name"] = encode_name(data.tool_name)  # nothing else tells parallel calls without ids apart
    return message


def tool_call(data: ToolCall, wire_id: str) -> WireMessage:
    """Return an item of ``tool_calls``."""
    return {"id": wire_id, "type": "function", "function": function(data)}


def function(data: ToolCall) -> WireMessage:
    """Return the map with a call's name and arguments."""
    arguments = "{}" if is_absent_text(data.payload_json) else data.payload_json
    return {"name": encode_name(data.tool_name), "arguments": arguments}
