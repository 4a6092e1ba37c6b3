"""The hook for the log: an event without the secrets that its payload and labels hold."""

from __future__ import annotations

from typing import cast

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log.events.payloads import EventData, Redacted, Redaction, Thinking, UnknownPayload
from agent_memory_log.secrets.jsontext import redact_json


def redacted_event(event: Event) -> Event:
    """``event`` with each secret in its payload and labels masked, as in ``[secret: password]``.

    Returns the same object where it has none. Ids, tool names and what a provider signed stay as they are, and JSON
    text stays valid JSON text. Thinking that is masked loses its signature, which is one of other words. For
    ``before_append`` of a recorder, or to be called on any event before it is appended. Raises ``InvalidEvent`` for a
    payload that is not JSON, ``DecodeError`` for a registered payload that refuses a mask in one of its fields.
    """
    if isinstance(event.data, (Redacted, Redaction)):
        return event
    data = _redacted_payload(event.data)
    labels = _redacted_map(dict(event.labels)) if event.labels else None
    if data is event.data and labels is None:
        return event
    new_labels = event.labels if labels is None else cast("dict[str, str]", labels)
    return msgspec.structs.replace(event, data=data, labels=new_labels)


def _redacted_payload(payload: EventData) -> EventData:
    data = payload.to_map()
    masked = _redacted_map(data)
    if masked is None:
        return payload
    if isinstance(payload, Thinking) and masked.get("text") != data.get("text"):
        masked.pop("signature", None)
    if isinstance(payload, UnknownPayload):
        return UnknownPayload.of(payload.type, masked)
    try:
        return type(payload).from_map(masked)
    except DecodeError:
        # A number in a field that takes nothing else: 0 stands in place of it.
        return type(payload).from_map(_redacted_map(data, numbers="0") or data)


def _redacted_map(
    data: dict[str, JsonValue] | dict[str, str], *, numbers: str | None = None
) -> dict[str, JsonValue] | None:
    """The map without secrets; None where it has none."""
    text = encode_json(data).decode()
    masked = redact_json(text, numbers=numbers)
    return None if masked is text else cast("dict[str, JsonValue]", decode_json(masked))
