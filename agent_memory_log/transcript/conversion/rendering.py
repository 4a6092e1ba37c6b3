"""Renders the parts of messages that are the same for all providers. Builders and parsers share this code."""

from __future__ import annotations

import base64
import binascii

import msgspec

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log.events.payloads import AssistantMessage, SystemMessage, UserMessage
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import is_map

TextPayload = UserMessage | AssistantMessage | SystemMessage
"""A payload that holds the text of a message."""


def text_message(role: str, content: str | None) -> WireMessage:
    """Return a message that holds only text."""
    return {"role": role, "content": content}


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
