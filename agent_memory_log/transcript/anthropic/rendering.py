"""Renders payloads as Messages API blocks where no residual applies. The parser and the builder share this code.

Consecutive events of one side share a message. An assistant message ends at a result or user text. A user message holds
results, then user text, and ends at the assistant's next event. Two user texts in a row make two messages. System
messages before all other messages go into ``system``. Later ones become messages of the role ``system``.

Besides ``message`` (``blocks.py``), residuals of this provider may have these parts:

- ``parts``: the spans of content that is a list, or of several text blocks (``text_parts.py``).
- ``text: true``: the content of the assistant's message is text, not a list of blocks.
- ``inline: true``: a system message at the beginning was in ``messages``, not in ``system``.

Thinking without a signature always has a residual, even if it is empty, so that the builder recognizes it.
"""

from __future__ import annotations

import base64

from agent_memory_log.events.payloads import Thinking, ToolCall, ToolResult
from agent_memory_log.transcript.conversion.rendering import result_text
from agent_memory_log.transcript.conversion.text_parts import TextParts
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.names import WireRules, encode_name

PROVIDER = "anthropic"

RULES = WireRules(longest_name=128, unique_ids=True)

USER_TEXT = TextParts({"type": "text"}, "\n")
"""The text of users and tools. Each part is a paragraph."""

ASSISTANT_TEXT = TextParts({"type": "text"}, "")
"""The text of the assistant. It has no separator, because citations split it in the middle of sentences."""

EXTRA = frozenset({"parts", "message", "text", "inline"})


def text_block(text: str) -> WireMessage:
    """Return a text block."""
    return {"type": "text", "text": text}


def thinking_block(data: Thinking) -> WireMessage:
    """Return a thinking block, or a redacted one if the provider encrypted it."""
    if data.redacted and not data.text and not data.signature:
        return {"type": "redacted_thinking", "data": base64.b64encode(data.redacted).decode()}
    return {"type": "thinking", "thinking": data.text, "signature": data.signature}


def tool_use(data: ToolCall, wire_id: str, arguments: WireMessage) -> WireMessage:
    """Return the block of a call."""
    return {"type": "tool_use", "id": wire_id, "name": encode_name(data.tool_name), "input": arguments}


def tool_result(data: ToolResult, wire_id: str) -> WireMessage:
    """Return the block of a result."""
    text = result_text(data)
    block: WireMessage = {"type": "tool_result", "tool_use_id": wire_id}
    if text:
        block["content"] = text
    if data.error_message:
        block["is_error"] = True
    return block
