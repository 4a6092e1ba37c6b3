"""Renders payloads as Converse blocks where no residual applies. The parser and the builder share this code.

Roles alternate, so consecutive events of one side share a message. The assistant's side is text, thinking and calls;
the user's side is results and text. Text blocks of one message, with the blocks between them, are one event. System
messages go into ``system``, unless they were in ``messages``.

Besides ``message`` (``blocks.py``), residuals of this provider may have these parts:

- ``parts``: the spans of several blocks, or of a result's content (``text_parts.py``).
- ``json: true``: a result's content is one ``json`` block.
- ``inline: true``: a system message was in ``messages``.
- ``unsigned: true``: reasoning had no signature.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

from agent_memory_log.events.jsonvalue import JsonValue, json_or_text
from agent_memory_log.events.payloads import Thinking, ToolCall, ToolResult
from agent_memory_log.transcript.conversion.building import Residual
from agent_memory_log.transcript.conversion.rendering import result_text
from agent_memory_log.transcript.conversion.text_parts import TextParts
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.names import WireRules, encode_name

PROVIDER = "bedrock"

RULES = WireRules(
    longest_name=64,
    longest_id=64,
    id_pattern=re.compile(r"[a-zA-Z0-9_.:-]+"),  # the pattern of ToolUseId in botocore's model of Converse
    id_key="toolUseId",
    unique_ids=True,
)

USER_TEXT = TextParts({}, "\n")
"""The text of users and tools. Each part is a paragraph."""

ASSISTANT_TEXT = TextParts({}, "")
"""The text of the assistant. It has no separator, because citations split it in the middle of sentences."""

EXTRA = frozenset({"parts", "message", "json", "inline", "unsigned"})


def is_for_client(call_body: Mapping[str, object]) -> bool:
    """Return whether the client runs the tool of a ``toolUse``. Other types say that the provider runs it itself."""
    return call_body.get("type", "tool_use") == "tool_use"


def text_parts(role: str) -> TextParts:
    """Return the text format of a role."""
    return ASSISTANT_TEXT if role == "assistant" else USER_TEXT


def text_block(text: str) -> WireMessage:
    """Return a text block."""
    return {"text": text}


def reasoning(data: Thinking) -> WireMessage:
    """Return the content of a ``reasoningContent`` block without its residual."""
    if data.redacted and not data.text and not data.signature:
        return {"redactedContent": base64.b64encode(data.redacted).decode()}
    text: WireMessage = {"text": data.text}
    if data.signature:
        text["signature"] = data.signature
    return {"reasoningText": text}


def tool_use(data: ToolCall, wire_id: str, arguments: WireMessage) -> WireMessage:
    """Return a ``toolUse`` block without its residual."""
    return {"toolUse": {"toolUseId": wire_id, "name": encode_name(data.tool_name), "input": arguments}}


def tool_result(data: ToolResult, wire_id: str, residual: Residual) -> WireMessage:
    """Return the content of a ``toolResult`` block without its residual."""
    text = result_text(data)
    spans = residual.get("parts")
    content: list[JsonValue] | None = None
    if spans is not None:
        content = USER_TEXT.join(text, spans)
    elif residual.get("json") is True:
        content = [{"json": json_or_text(text)}]
    if content is None:
        content = [{"text": text}] if text else []
    body: WireMessage = {"toolUseId": wire_id, "content": content}
    if data.error_message:
        body["status"] = "error"
    return body
