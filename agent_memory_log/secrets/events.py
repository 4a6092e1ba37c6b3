"""Masks the secrets in an event's payload and labels before it is appended."""

from __future__ import annotations

from typing import cast

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log.events.payloads import EventData, Redacted, Redaction, Thinking, UnknownPayload
from agent_memory_log.secrets.jsontext import redact_json


def redacted_event(event: Event) -> Event:
    """Return ``event`` with each secret in its payload and labels masked, for example ``[secret: password]``.

    An event without secrets is returned as the same object. Ids, tool names and signed content do not change. JSON text
    stays valid JSON. Masked thinking loses its signature, because the signature covers the original text. Use the
    function as ``before_append`` of a recorder, or call it before an append.

    Raises:
        InvalidEvent: The payload is not JSON.
        DecodeError: A registered payload type refuses a mask in one of its fields.
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
        # The field accepts only numbers, so 0 replaces the secret number.
        return type(payload).from_map(_redacted_map(data, numbers="0") or data)


def _redacted_map(
    data: dict[str, JsonValue] | dict[str, str], *, numbers: str | None = None
) -> dict[str, JsonValue] | None:
    """Return the map with its secrets masked; None if it has no secrets."""
    text = encode_json(data).decode()
    masked = redact_json(text, numbers=numbers)
    return None if masked is text else cast("dict[str, JsonValue]", decode_json(masked))
