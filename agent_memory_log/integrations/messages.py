"""Stores a framework's messages as typed events, so that each message comes back as it was, without the others.

A framework adds messages in batches and may read back only the newest. So each message is parsed alone and built alone.
Only the names of tools cross this border: a result gets the name of the tool that its call names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import EventData, EventType, ToolCall, ToolResult
from agent_memory_log.pairing import Pairing
from agent_memory_log.store import SyncStore
from agent_memory_log.transcript import parse

MESSAGE_TYPES = (
    EventType.USER_MESSAGE.value,
    EventType.ASSISTANT_MESSAGE.value,
    EventType.SYSTEM_MESSAGE.value,
    EventType.THINKING.value,
    EventType.TOOL_CALL.value,
    EventType.TOOL_RESULT.value,
)
"""The types of the typed events that messages become."""

_RECENT_CALLS = 100
"""The number of calls of earlier appends among which the call of a result is looked for."""


def parse_alone(message: object, provider: str) -> list[Event] | None:
    """Return the events of one message, or None if it is not a map of JSON values that a store accepts."""
    try:
        return parse([cast("Any", message)], provider)
    except DecodeError:
        return None


def with_fields(
    events: Sequence[Event], own: str, fields: dict[str, JsonValue]
) -> Iterator[tuple[EventData, Mapping[str, str]]]:
    """Yield the payloads and labels of a message's events. The first also holds ``fields``, and the number of events.

    They are under ``own`` in its ``structured``. The number is under ``events``, if there are several.
    """
    first: Any = events[0].data
    if len(events) > 1:
        fields = {**fields, "events": len(events)}
    yield replace(first, structured={**(first.structured or {}), own: fields}), events[0].labels
    for event in events[1:]:
        yield event.data, event.labels


def part_of(log: Sequence[Event], index: int, fields: Mapping[str, JsonValue]) -> list[Event]:
    """Return the events of a message. ``log[index]`` is its first event, and holds ``fields``."""
    end = log[index].seq + cast("int", fields.get("events", 1))
    return [event for event in log[index : index + end - log[index].seq] if event.seq < end]


def json_text(value: object, name: str) -> str:
    """Return JSON text in ASCII, which can hold lone surrogates, NaN and any depth that Python can write.

    Raises:
        InvalidArgument: ``value`` cannot be written as JSON. The message calls it ``name``.
    """
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{name} must be JSON, got {describe(value)}: {error}") from error


def name_results(store: SyncStore, agent: str, run: str, events: Iterable[Event]) -> list[Event]:
    """Return ``events``, with a tool name in each result whose call is among them or is a recent call of the run."""
    pairing: Pairing[str] = Pairing()
    recent: Sequence[Event] | None = None
    all_events: list[Event] = []
    for event in events:
        data = event.data
        if isinstance(data, ToolCall):
            pairing.add_call(data, data.tool_name)
        elif isinstance(data, ToolResult):
            name = pairing.add_result(data)
            if name is None and not data.tool_name:
                if recent is None:
                    recent = store.load_run(agent, run, types=(EventType.TOOL_CALL,), last=_RECENT_CALLS).log
                name = _name_of_call(recent, data.tool_call_id)
            if name:
                event = replace(event, data=replace(data, tool_name=name))  # noqa: PLW2901  # the same event, named
        all_events.append(event)
    return all_events


def _name_of_call(calls: Sequence[Event], call_id: str) -> str | None:
    payloads = (event.data for event in reversed(calls))
    return next(
        (data.tool_name for data in payloads if isinstance(data, ToolCall) and data.tool_call_id == call_id), None
    )
