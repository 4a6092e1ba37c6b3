"""How payloads are rendered as Converse blocks where no residual says otherwise; parser and builder share it.

Roles alternate, so events of one side are joined in one message: what the assistant says, thinks and calls; results and
what the user says. Text blocks of one message, with what stands between them, are one event. System messages stand
outside, in ``system``, unless they came among the messages.

Residuals of this provider may have parts more. ``parts``: the spans of several blocks, or of a result's content
(``parts.py``). ``message``: the event begins a message though it would be joined, its map the residual of the message;
``false``: it is joined though it would begin one. ``json: true``: a result's content is one ``json`` block.
``inline: true``: a system message came among the messages. ``unsigned: true``: reasoning came without a signature.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import cast

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, json_or_text
from agent_memory_log.events.payloads import Thinking, ToolCall, ToolResult
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.names import WireRules, encode_name
from agent_memory_log.transcript.parts import TextParts
from agent_memory_log.transcript.residual import is_residual

PROVIDER = "bedrock"

RULES = WireRules(longest_name=64, longest_id=64, unique_ids=True)

MESSAGE_TYPE = f"{PROVIDER}.message"
"""The event type of a message that no payload fits; its data is the message."""

BLOCK_TYPE = f"{PROVIDER}.block"
"""The event type of a block that no payload fits; its data is ``{"role", "block", "message"}``."""

SAID = TextParts({}, "\n")
"""What users and tools say: parts are paragraphs."""

ANSWERED = TextParts({}, "")
"""What the assistant says: citations cut its text in the middle of sentences."""

EXTRA = frozenset({"parts", "message", "json", "inline", "unsigned"})

ROLES = frozenset({"user", "assistant", "system"})


def text_parts(role: str) -> TextParts:
    """How the text of one side is split."""
    return ANSWERED if role == "assistant" else SAID


def head_of(residual: Mapping[str, JsonValue]) -> Mapping[str, JsonValue] | bool | None:
    """The residual of the message that an event begins; False: it is joined; None: nothing is said."""
    head = residual.get("message")
    if head is False:
        return False
    return head if isinstance(head, Mapping) and is_residual(head) else None


def reasoning(data: Thinking) -> Message:
    """What a ``reasoningContent`` block holds, but for what its residual changes."""
    if data.redacted and not data.text and not data.signature:
        return {"redactedContent": base64.b64encode(data.redacted).decode()}
    text: Message = {"text": data.text}
    if data.signature:
        text["signature"] = data.signature
    return {"reasoningText": text}


def tool_use(data: ToolCall, wire_id: str, arguments: Message) -> Message:
    """What a ``toolUse`` block holds, but for what its residual changes."""
    return {"toolUseId": wire_id, "name": encode_name(data.tool_name), "input": arguments}


def arguments_of(text: str) -> tuple[Message, bool]:
    """The arguments as a map, and whether that is what the model wrote.

    Arguments that are no JSON object, which models require, are the only one of such an object.
    """
    if is_absent_text(text):
        return {}, True
    arguments = json_or_text(text)
    return (cast("Message", arguments), True) if isinstance(arguments, dict) else ({"arguments": text}, False)


def tool_result(data: ToolResult, wire_id: str, residual: Mapping[str, JsonValue]) -> Message:
    """What a ``toolResult`` block holds, but for what its residual changes.

    A result with an error and a value is sent as an error with that value.
    """
    text = data.error_message if is_absent_text(data.result_json) else data.result_json
    spans = residual.get("parts")
    content: list[JsonValue] | None = None
    if spans is not None:
        content = SAID.join(text, spans)
    elif residual.get("json") is True:
        content = [{"json": json_or_text(text)}]
    if content is None:
        content = [{"text": text}] if text else []
    body: Message = {"toolUseId": wire_id, "content": content}
    if data.error_message:
        body["status"] = "error"
    return body


def encrypted_bytes(text: str) -> bytes:
    """The bytes that base64 text stands for; none where it is not the text those bytes are written as."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return found if base64.b64encode(found).decode() == text else b""
