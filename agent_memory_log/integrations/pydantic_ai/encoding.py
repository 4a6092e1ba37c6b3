"""A message of Pydantic AI as events of a run, and back: one event for each part.

The event has the content of the part. The other fields of the part and the message are under ``pydantic-ai`` in
``structured``. A part that fits no typed event is one event of its own.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from msgspec.structs import replace
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_core import PydanticSerializationError

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.context_payloads import InjectedContext
from agent_memory_log.events.event import Event, new_event, parse_timestamp
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_json
from agent_memory_log.events.payloads import (
    AssistantMessage,
    EventData,
    EventType,
    Redacted,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.integrations.messages import MESSAGE_TYPES, json_text, part_of
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.transcript.json_types import map_in

OWN = "pydantic-ai"
"""The default agent, and the key of what an event has beside the content of its part."""

_PART_TYPE = f"{OWN}.part"
"""The type of a part that fits no typed event. Its data is what other events have beside their content."""

_TEXT_TYPE = f"{OWN}.message_text"
"""The type of a message that no store accepts, for example a deeply nested one. Its key ``json`` has the message."""

CONVERSATION_TYPES = (
    *MESSAGE_TYPES,
    EventType.INJECTED_CONTEXT.value,
    EventType.REDACTED.value,
    _PART_TYPE,
    _TEXT_TYPE,
)
"""The types of the events that a message becomes, and of a redacted event."""

_Json = dict[str, Any]


class StoredMessage(NamedTuple):
    """A message in a run.

    Attributes:
        key: The id of its first event.
        parent: The key of the message before it, or None.
        events: Its events. They are empty if the first was redacted: the message is gone.
    """

    key: str
    parent: str | None
    events: list[Event]

    @property
    def entry_id(self) -> str:
        """Pydantic AI's id of the message."""
        return cast("str", _beside(self.events[0])["entry"])

    @property
    def parent_id(self) -> str | None:
        """Pydantic AI's id of the message before it."""
        return cast("str | None", _beside(self.events[0])["parent"])


def events_of(entry_id: str, parent_id: str | None, message: ModelMessage) -> Iterator[Event]:
    """Yield the events of a message.

    Raises:
        InvalidArgument: The message cannot be written as JSON, or has text with a lone surrogate.
    """
    try:
        fields: _Json = json.loads(ModelMessagesTypeAdapter.dump_json([message]))[0]
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"a message must be JSON: {error}") from error
    parts = [_slim(part, dump) for part, dump in zip(message.parts, fields.pop("parts"), strict=True)]
    rest = _slim(message, fields)
    place: _Json = {"entry": entry_id, "parent": parent_id}
    time = rest.get("timestamp")
    try:
        own_json(cast("object", [rest, parts]))
    except NotJson:
        text = {**place, "json": json_text({**rest, "parts": parts}, "a message")}
        yield new_event(UnknownPayload(type=_TEXT_TYPE, data=text), timestamp=_time(time), event_id=joined_id(entry_id))
        return
    first: _Json = {**place, "message": rest, "events": max(len(parts), 1)}
    if not parts:
        yield new_event(
            UnknownPayload(type=_PART_TYPE, data=first), timestamp=_time(time), event_id=joined_id(entry_id)
        )
    for index, part in enumerate(parts):
        event_id = joined_id(entry_id, str(index)) if index else joined_id(entry_id)
        payload = _payload(part, {} if index else first)
        yield new_event(payload, timestamp=_time(part.get("timestamp", time)), event_id=event_id)


def _slim(value: object, dump: _Json) -> _Json:
    """Return the dump of a message or part without the fields that have the default of its class."""
    defaults = {field.name: field.default for field in dataclasses.fields(cast("Any", value))}
    return {
        name: item
        for name, item in dump.items()
        if name in ("kind", "part_kind") or name not in defaults or getattr(value, name) is not defaults[name]
    }


def _payload(part: _Json, beside: _Json) -> EventData:
    """Return the payload of a part. ``beside`` is what the first event of a message has beside the part."""
    injected = None if beside else _injected(part)
    if injected is not None:
        return injected
    rest = dict(part)
    typed = _typed(rest)
    if typed is None:
        return UnknownPayload(type=_PART_TYPE, data={**beside, "part": part})
    structured = {OWN: {**beside, "part": rest}}
    return cast("EventData", replace(cast("Any", typed), structured=structured))


def _injected(part: _Json) -> InjectedContext | None:
    """Return the context from memory that ``memory_context`` has put into a message, or None."""
    metadata = part.get("metadata")
    if part.keys() != {"part_kind", "content", "timestamp", "metadata"} or map_in(metadata).keys() != {OWN}:
        return None
    try:
        payload = InjectedContext.from_map({**map_in(map_in(metadata)[OWN]), "text": part["content"]})
    except DecodeError:
        return None
    return payload if _injected_part(payload, part["timestamp"]) == part else None


def _injected_part(payload: InjectedContext, time: str) -> _Json:
    metadata = payload.to_map()
    text = metadata.pop("text", "")
    return {"part_kind": "system-prompt", "content": text, "timestamp": time, "metadata": {OWN: metadata}}


def _typed(rest: _Json) -> EventData | None:
    """Return the payload of a part, and remove from ``rest`` what the payload has. None: no payload fits."""
    kind, content = rest["part_kind"], rest.get("content")
    payload: EventData | None = None
    if kind == "user-prompt" and isinstance(content, list):
        text = "\n".join(item for item in cast("list[object]", content) if isinstance(item, str))
        payload = UserMessage(text) if text else None
    elif kind in _MESSAGES and isinstance(content, str):
        payload = _MESSAGES[kind](rest.pop("content"))
    elif kind == "thinking" and isinstance(content, str):
        payload = Thinking(rest.pop("content"), rest.pop("signature", None) or "", final=True)
    elif kind == "tool-call":
        payload = _call(rest)
    elif kind in ("tool-return", "retry-prompt") and rest.get("tool_name"):
        payload = _result(rest)
    return payload


_MESSAGES: Mapping[str, type[UserMessage | SystemMessage | AssistantMessage]] = {
    "user-prompt": UserMessage,
    "system-prompt": SystemMessage,
    "text": AssistantMessage,
}


def _call(rest: _Json) -> ToolCall:
    args = rest.get("args")
    call = ToolCall(rest.pop("tool_call_id"), rest.pop("tool_name"))
    if isinstance(args, str) and args.strip():
        return replace(call, payload_json=rest.pop("args"))
    if isinstance(args, dict):
        rest["args"] = {}  # the mark of arguments that are a map
        return replace(call, payload_json=json.dumps(args, ensure_ascii=False))
    return call


def _result(rest: _Json) -> ToolResult:
    result = ToolResult(rest.pop("tool_call_id"), rest.pop("tool_name"))
    if rest["part_kind"] == "tool-return" and rest.get("outcome", "success") == "success":
        return replace(result, result_json=json.dumps(rest.pop("content"), ensure_ascii=False))
    if isinstance(rest["content"], str):
        return replace(result, error_message=rest.pop("content"))
    return replace(result, error_message=json_text(rest["content"], "a result"))


def _part_of(event: Event) -> _Json | None:
    """Return the part in an event, or None if it has none."""
    data = event.data
    if isinstance(data, InjectedContext):
        return _injected_part(data, event.timestamp.isoformat())
    if isinstance(data, Redacted):
        return None
    beside = _beside(event)
    if "part" not in beside:
        return None
    part: _Json = dict(map_in(own_json(beside["part"])))
    if isinstance(data, (UserMessage, SystemMessage, AssistantMessage)):
        part.setdefault("content", data.message)
    elif isinstance(data, Thinking):
        part |= {"content": data.text, "signature": data.signature or None}
    elif isinstance(data, ToolCall):
        part |= {"tool_call_id": data.tool_call_id, "tool_name": data.tool_name}
        if data.payload_json:
            part["args"] = json.loads(data.payload_json) if part.get("args") == {} else data.payload_json
    elif isinstance(data, ToolResult):
        content = json.loads(data.result_json) if data.result_json else data.error_message
        part = {"content": content, **part, "tool_call_id": data.tool_call_id, "tool_name": data.tool_name}
    return part


def _beside(event: Event) -> Mapping[str, JsonValue]:
    data = event.data
    return data.data if isinstance(data, UnknownPayload) else map_in(map_in(getattr(data, "structured", None)).get(OWN))


def stored_messages(log: Sequence[Event]) -> dict[str, StoredMessage]:
    """Return the messages in a part of a log by their keys, in its order."""
    messages: dict[str, StoredMessage] = {}
    newest: str | None = None
    for index, event in enumerate(log):
        data, beside = event.data, _beside(event)
        if "entry" in beside:
            parent = cast("str | None", beside["parent"])
            newest = event.event_id
            parent_key = None if parent is None else joined_id(parent)
            messages[newest] = StoredMessage(newest, parent_key, part_of(log, index, beside))
        elif isinstance(data, Redacted) and data.original_type in CONVERSATION_TYPES and "/" not in event.event_id:
            # Which message came before is unknown. It is nearly always the one before it in the log.
            messages[event.event_id] = StoredMessage(event.event_id, newest, [])
            newest = event.event_id
    return messages


def messages_of(stored: Sequence[StoredMessage]) -> list[ModelMessage]:
    """Return the messages as Pydantic AI's objects."""
    return ModelMessagesTypeAdapter.validate_json(json.dumps([_fields(message.events) for message in stored]))


def _fields(events: Sequence[Event]) -> _Json:
    beside = _beside(events[0])
    if events[0].type == _TEXT_TYPE:
        return cast("_Json", json.loads(cast("str", beside["json"])))
    parts = [part for event in events if (part := _part_of(event)) is not None]
    return {**map_in(own_json(beside["message"])), "parts": parts}


def _time(text: object) -> datetime:
    """Return the time of a part or a message, or now if it has none."""
    try:
        return parse_timestamp(cast("str", text))
    except (TypeError, ValueError, OverflowError):
        return datetime.now(UTC)
