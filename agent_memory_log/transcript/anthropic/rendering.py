"""How payloads are rendered as Messages API blocks where no residual says otherwise; parser and builder share it.

Events of one side are joined in one message: the assistant's until a result or the user comes, results and what the
user says after them until the assistant comes. What the user says twice makes two messages. System messages before any
message stand outside, in ``system``; later ones are messages of the role ``system``.

Residuals of this provider may have parts more, ``message`` apart (``blocks.py``). ``parts``: the spans of content that
is a list, or of several text blocks (``text_parts.py``). ``text: true``: the content of the assistant's message is its
text, not a list. ``inline: true``: a system message before any other stands among the messages. Thinking that came
without a signature has a residual even where that is empty.
"""

from __future__ import annotations

import base64

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.payloads import Thinking, ToolCall, ToolResult
from agent_memory_log.transcript.conversion.text_parts import TextParts
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.names import WireRules, encode_name

PROVIDER = "anthropic"

RULES = WireRules(longest_name=128, unique_ids=True)

USER_TEXT = TextParts({"type": "text"}, "\n")
"""What users and tools say: parts are paragraphs."""

ASSISTANT_TEXT = TextParts({"type": "text"}, "")
"""What the assistant says: citations cut its text in the middle of sentences."""

EXTRA = frozenset({"parts", "message", "text", "inline"})


def text_block(text: str) -> WireMessage:
    """Text."""
    return {"type": "text", "text": text}


def thinking_block(data: Thinking) -> WireMessage:
    """A thinking block, or one the provider encrypted."""
    if data.redacted and not data.text and not data.signature:
        return {"type": "redacted_thinking", "data": base64.b64encode(data.redacted).decode()}
    return {"type": "thinking", "thinking": data.text, "signature": data.signature}


def tool_use(data: ToolCall, wire_id: str, arguments: WireMessage) -> WireMessage:
    """A call."""
    return {"type": "tool_use", "id": wire_id, "name": encode_name(data.tool_name), "input": arguments}


def tool_result(data: ToolResult, wire_id: str) -> WireMessage:
    """The result of a call; a result with an error and a value is sent as an error with that value."""
    text = data.error_message if is_absent_text(data.result_json) else data.result_json
    block: WireMessage = {"type": "tool_result", "tool_use_id": wire_id}
    if text:
        block["content"] = text
    if data.error_message:
        block["is_error"] = True
    return block
