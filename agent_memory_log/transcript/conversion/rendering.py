"""Renders the parts of messages that are the same for all providers. Builders and parsers share this code."""

from __future__ import annotations

import base64
import binascii

import msgspec

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log.events.payloads import AssistantMessage, SystemMessage, ToolResult, UserMessage
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import is_map

TextPayload = UserMessage | AssistantMessage | SystemMessage
"""A payload that holds the text of a message."""


def text_message(role: str, content: str | None) -> WireMessage:
    """Return a message that holds only text."""
    return {"role": role, "content": content}


MAX_RESULT_BYTES = 64 * 1024
"""The largest value of a result, in UTF-8 bytes, that ``build`` sends whole by default. It is the Go original's limit.

It applies to results that no provider's messages held, which are the results without ``structured``. A result that
``parse`` read was sent as it is, so ``parse`` marks every longer result with an empty residual.
"""


def is_longer(text: str, limit: int) -> bool:
    """Return whether ``text`` has more than ``limit`` UTF-8 bytes. A character has at most four."""
    return len(text) * 4 > limit and (len(text) > limit or (not text.isascii() and len(text.encode()) > limit))


def is_beyond_default(data: ToolResult) -> bool:
    """Return whether the value of a result is longer than ``MAX_RESULT_BYTES``."""
    return is_longer(data.result_json, MAX_RESULT_BYTES)


def result_text(data: ToolResult, value: str | None = None) -> str:
    """Return the text of a result for the model: the failure, then the value, on lines of their own.

    ``value`` replaces the result's value. Parsers read a whole text as either a value or an error message.
    """
    if value is None:
        value = "" if is_absent_text(data.result_json) else data.result_json
    if not data.error_message and data.retry_hint is None:
        return value
    failure = failure_text(data)
    return f"{failure}\n{value}" if failure and value else failure or value


def failure_text(data: ToolResult) -> str:
    """Return the error message and the retry hint's message. A hint that the error message contains is not repeated."""
    hint = "" if data.retry_hint is None else data.retry_hint.message
    if not hint or hint in data.error_message:
        return data.error_message
    return f"{data.error_message}\n{hint}" if data.error_message else hint


def arguments_map(text: str) -> tuple[WireMessage, bool]:
    """Return a call's arguments as a map, and whether the model wrote them as a map.

    Some providers require a JSON object. Other arguments become its only field, ``arguments``.
    """
    if is_absent_text(text):
        return {}, True
    try:
        arguments: object = decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"arguments": text}, False
    return (arguments, True) if is_map(arguments) else ({"arguments": text}, False)


def bytes_of_base64(text: str) -> bytes:
    """Return the bytes of base64 text; empty if the text is not the canonical encoding of its bytes."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return decoded if base64.b64encode(decoded).decode() == text else b""


def text_or_empty(value: JsonValue) -> str:
    """Return ``value`` if it is text, and ``""`` otherwise."""
    return value if isinstance(value, str) else ""


def json_text_of(value: JsonValue) -> str:
    """Return text unchanged and other values as JSON; return ``""`` for null and blank text."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else encode_json(value).decode()
    return "" if is_absent_text(text) else text
