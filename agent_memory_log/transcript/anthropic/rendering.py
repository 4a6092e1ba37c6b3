"""How payloads are rendered as Messages API blocks where no residual says otherwise; parser and builder share it.

Events of one side are joined in one message: the assistant's until a result or the user comes, results and what the
user says after them until the assistant comes. What the user says twice makes two messages. System messages before any
message stand outside, in ``system``; later ones are messages of the role ``system``.

Residuals of this provider may have parts more. ``parts``: the spans of content that is a list, or of several text
blocks (``parts.py``). ``message``: the event begins a message though it would be joined, its map the residual of the
message; ``false``: it is joined though it would begin one. ``text: true``: the content of the assistant's message is
its text, not a list. ``inline: true``: a system message before any other stands among the messages.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, decode_json
from agent_memory_log.events.payloads import Thinking, ToolCall, ToolResult
from agent_memory_log.transcript.kinds import is_map
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.names import WireRules, encode_name
from agent_memory_log.transcript.parts import TextParts
from agent_memory_log.transcript.residual import is_residual

PROVIDER = "anthropic"

RULES = WireRules(longest_name=128, unique_ids=True)

MESSAGE_TYPE = f"{PROVIDER}.message"
"""The event type of a message that no payload fits; its data is the message."""

BLOCK_TYPE = f"{PROVIDER}.block"
"""The event type of an assistant's block that no payload fits; its data is ``{"block", "message"}``."""

SAID = TextParts({"type": "text"}, "\n")
"""What users and tools say: parts are paragraphs."""

ANSWERED = TextParts({"type": "text"}, "")
"""What the assistant says: citations cut its text in the middle of sentences."""

EXTRA = frozenset({"parts", "message", "text", "inline"})


class Grouping:
    """Which message an event belongs to where no residual says so: of the side that is open, or a new one."""

    __slots__ = ("said", "side")

    def __init__(self) -> None:
        self.side = ""
        self.said = False

    def joins(self, side: str, *, says: bool = False) -> bool:
        """Whether an event of ``side`` belongs to the open message; ``says``: it is what the user says."""
        return self.side == side and not (says and self.said)

    def opened(self, side: str, *, says: bool = False) -> None:
        """A message of ``side`` was begun; ``""``: one that nothing is joined to."""
        self.side = side
        self.said = says


def head_of(residual: Mapping[str, JsonValue]) -> Mapping[str, JsonValue] | bool | None:
    """The residual of the message that an event begins; False: it is joined; None: nothing is said."""
    head = residual.get("message")
    if head is False:
        return False
    return head if isinstance(head, Mapping) and is_residual(head) else None


def text_block(text: str) -> Message:
    """Text."""
    return {"type": "text", "text": text}


def thinking_block(data: Thinking) -> Message:
    """A thinking block, or one the provider encrypted."""
    if data.redacted and not data.text and not data.signature:
        return {"type": "redacted_thinking", "data": base64.b64encode(data.redacted).decode()}
    return {"type": "thinking", "thinking": data.text, "signature": data.signature}


def tool_use(data: ToolCall, wire_id: str) -> Message:
    """A call. Arguments that are no JSON object, which the provider requires, are its only argument."""
    return {
        "type": "tool_use",
        "id": wire_id,
        "name": encode_name(data.tool_name),
        "input": arguments_of(data.payload_json)[0],
    }


def arguments_of(text: str) -> tuple[Message, bool]:
    """The arguments as a map, and whether that is what the model wrote."""
    if is_absent_text(text):
        return {}, True
    try:
        arguments: object = decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"arguments": text}, False
    if is_map(arguments):
        return arguments, True
    return {"arguments": text}, False


def tool_result(data: ToolResult, wire_id: str) -> Message:
    """The result of a call; a result with an error and a value is sent as an error with that value."""
    text = data.error_message if is_absent_text(data.result_json) else data.result_json
    block: Message = {"type": "tool_result", "tool_use_id": wire_id}
    if text:
        block["content"] = text
    if data.error_message:
        block["is_error"] = True
    return block


def encrypted_bytes(text: str) -> bytes:
    """The bytes of an encrypted block: of base64 text what it stands for, else the text's own."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()
    return found if base64.b64encode(found).decode() == text else text.encode()
