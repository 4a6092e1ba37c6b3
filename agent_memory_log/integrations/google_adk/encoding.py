"""An event of ADK as events of a run, and back.

The content of an event becomes typed events. The other fields are beside it, under ``google-adk`` in ``structured`` of
its first event. An event without such a content is one event of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from google.adk.events.event import Event as AdkEvent
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_json
from agent_memory_log.events.payloads import EventData, UnknownPayload
from agent_memory_log.integrations.messages import MESSAGE_TYPES, json_text, parse_alone, part_of, with_fields
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript import build
from agent_memory_log.transcript.json_types import map_in

OWN = "google-adk"
"""The first part of the agents' ids, the key of the fields beside a content, and the key of a run's meta."""

_PROVIDER = "gemini"

_EVENT_TYPE = f"{OWN}.event"
"""The type of an event without a content that fits typed events. Its data is the event."""

_TEXT_TYPE = f"{OWN}.event_text"
"""The type of an event that no store accepts, for example a deeply nested one. Its data is ``{"json": TEXT}``."""

EVENT_TYPES = (
    *MESSAGE_TYPES,
    f"{_PROVIDER}.block",
    _EVENT_TYPE,
    _TEXT_TYPE,
)
"""The types of the events that an event of ADK becomes."""


def json_of(model: BaseModel, name: str) -> dict[str, Any]:
    """Return a model of ADK as a JSON map, without the fields that have their defaults.

    Raises:
        InvalidArgument: A value cannot be written as JSON, or is text with a lone surrogate. The message has ``name``.
    """
    try:
        text = model.model_dump_json(by_alias=True, exclude_none=True, exclude_defaults=True)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{name} must be JSON: {error}") from error
    return cast("dict[str, Any]", json.loads(text))


def fields_of(event: AdkEvent) -> dict[str, Any]:
    """Return an event as a JSON map. Raises ``InvalidArgument``; see ``json_of``."""
    return {**json_of(event, f"event {event.id!r}"), "id": event.id, "timestamp": event.timestamp}


def events_of(fields: Mapping[str, Any], time: datetime) -> list[Event]:
    """Return the events that hold an event of ADK. The first has its id."""
    events: list[Event] = []
    for index, (data, labels) in enumerate(_payloads_of(fields)):
        event_id = joined_id(fields["id"], str(index)) if index else joined_id(fields["id"])
        events.append(new_event(data, timestamp=time, labels=labels, event_id=event_id))
    return events


def _payloads_of(fields: Mapping[str, Any]) -> Iterator[tuple[EventData, Mapping[str, str]]]:
    try:
        own = cast("dict[str, JsonValue]", own_json(fields))
    except NotJson:
        yield UnknownPayload(type=_TEXT_TYPE, data={"json": json_text(fields, "an event")}), {}
        return
    content = own.get("content")
    typed = (parse_alone(content, _PROVIDER) if isinstance(content, dict) else None) or []
    first = typed[0].data if typed else None
    if first is None or isinstance(first, UnknownPayload):
        yield UnknownPayload(type=_EVENT_TYPE, data=own), {}
        return
    yield from with_fields(typed, OWN, {"event": {key: value for key, value in own.items() if key != "content"}})


def adk_events(agent: str, run: str, log: Sequence[Event]) -> list[AdkEvent]:
    """Return the events of ADK in a part of a log. One whose first event was cut off or redacted is left out."""
    events: list[AdkEvent] = []
    for index, event in enumerate(log):
        data = event.data
        if isinstance(data, UnknownPayload):
            if event.type == _EVENT_TYPE:
                events.append(AdkEvent.model_validate_json(json_text(data.to_map(), "an event")))
            elif event.type == _TEXT_TYPE:
                events.append(AdkEvent.model_validate_json(cast("str", data.data["json"])))
            continue
        beside = map_in(map_in(getattr(data, "structured", None)).get(OWN))
        if not beside:
            continue
        content = build(Snapshot(agent, run, part_of(log, index, beside)), _PROVIDER)[0]
        fields = {**map_in(own_json(beside["event"])), "content": content}
        events.append(AdkEvent.model_validate_json(json_text(fields, "an event")))
    return events


def time_of(seconds: float) -> datetime:
    """Return the time of an event. A time that no calendar has becomes the time now."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.now(UTC)
