"""The event: a typed payload with its time, labels, id and seq.

``new_event`` creates an event. ``Event.to_map`` and ``Event.from_map`` convert it to and from its wire form.
``decode_event`` returns the payload with a static type.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Self, TypeVar, cast

import msgspec

from agent_memory_log.errors import DecodeError, InvalidEvent
from agent_memory_log.events.fields import describe, read_int64
from agent_memory_log.events.jsonvalue import JsonValue, encode_canonical
from agent_memory_log.events.payloads import EventData, Redacted, UnknownPayload
from agent_memory_log.events.registry import payload_from_map

_Payload = TypeVar("_Payload", bound=EventData)


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event of a run. Create it with ``new_event``.

    Attributes:
        type: The event type, which equals the payload's ``event_type``.
        timestamp: The time of the event, timezone-aware, with microseconds. A store returns it in UTC.
        data: The payload.
        labels: A map from text to text with at most 64 entries. A key has at most 128 characters.
        event_id: The idempotency key within the run, with at most 512 characters. If it is ``""``, the store assigns
            an id when the event is appended.
        seq: The position in the run, from 1. It is 0 until a store assigns it.
    """

    type: str
    timestamp: datetime
    data: EventData
    # Plain dict as the factory: msgspec recognizes it, but would have to call dict[str, str] for each event.
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    event_id: str = ""
    seq: int = 0

    def to_map(self) -> dict[str, JsonValue]:
        """Return the event as a new map with the keys ``type, timestamp, data, labels, event_id, seq``.

        ``timestamp`` is RFC 3339 text in UTC. Empty ``labels`` are left out. ``event_id`` and ``seq`` are left out if
        they are not assigned yet.

        Raises:
            InvalidEvent: A value cannot be written. The error names the field.
        """
        if not isinstance(self.type, str):
            raise InvalidEvent(f"an event's type must be text, got {describe(self.type)}", field="type")
        _check_timestamp(self.timestamp, self.type)
        _check_labels(self.labels, self.type)
        built: dict[str, JsonValue] = {
            "type": str.__str__(self.type),
            "timestamp": format_timestamp(self.timestamp),
            "data": self.data.to_map(),
        }
        if self.labels:
            built["labels"] = dict(self.labels)
        if self.event_id:
            built["event_id"] = self.event_id
        if self.seq:
            built["seq"] = self.seq
        return built

    @classmethod
    def from_map(cls, data: Mapping[str, object]) -> Self:
        """Return the event that a map describes.

        The map may come from ``to_map`` or from the Go original, whose keys are ``Type``, ``Timestamp``, ``Data`` and
        ``Labels``. ``timestamp`` is an aware datetime or RFC 3339 text with any offset and any number of fractional
        digits. Digits after the microseconds are cut off. ``labels`` may be absent or null.

        Raises:
            DecodeError: A value is missing or has a wrong type. The error names the event type, the field and the
                value.
        """
        if not isinstance(data, Mapping):
            raise DecodeError(f"an event must be a map, got {describe(data)}")
        event_type = _get(data, "type")
        if not isinstance(event_type, str) or not event_type:
            raise DecodeError(f"an event's type must be non-empty text, got {describe(event_type)}")
        event_type = str.__str__(event_type)
        payload = _get(data, "data")
        if payload is None:
            raise DecodeError(f"{event_type}: data is {'null' if 'data' in data or 'Data' in data else 'absent'}")
        event_id = data.get("event_id")
        if event_id is not None and not isinstance(event_id, str):
            raise DecodeError(f"{event_type}: event_id must be text, got {describe(event_id)}")
        stored_seq = data.get("seq")
        seq = 0 if stored_seq is None else read_int64(stored_seq, f"{event_type}: seq")
        if seq < 0:
            raise DecodeError(f"{event_type}: seq must be an integer from 0, got {describe(seq)}")
        return cls(
            type=event_type,
            timestamp=_read_timestamp(_get(data, "timestamp"), event_type),
            data=payload_from_map(event_type, payload),
            labels=_read_labels(_get(data, "labels"), event_type),
            event_id=str.__str__(event_id or ""),
            seq=seq,
        )


def new_event(
    payload: EventData,
    *,
    timestamp: datetime | None = None,
    labels: Mapping[str, str] | None = None,
    event_id: str | None = None,
) -> Event:
    """Create an event that can be appended to a run.

        new_event(UserMessage(message="Where is my order?"), labels={"role": "user"})

    The store checks the values inside the payload when the event is appended.

    Args:
        payload: A built-in payload, an instance of a registered payload class, or an ``UnknownPayload``.
        timestamp: The time of the event, timezone-aware. The default is now.
        labels: A map from text to text with at most 64 entries. A key has at most 128 characters.
        event_id: The idempotency key within the run, with at most 512 characters. An append of the same event with
            the same id stores the event only once. The default is a new unique id.

    Returns:
        The event, with the timestamp in UTC, a copy of the labels, and the seq 0.

    Raises:
        InvalidEvent: An argument has a wrong type, ``timestamp`` has no time zone, or ``event_id`` is empty. The error
            names the field.
    """
    if not isinstance(payload, EventData):
        raise InvalidEvent(f"a payload must be an EventData, got {describe(payload)}", field="data")
    if timestamp is None:
        timestamp = datetime.now(UTC)
    else:
        _check_timestamp(timestamp, payload.event_type)
        timestamp = _to_utc(timestamp)
    if event_id is None:
        event_id = new_event_id()
    elif not isinstance(event_id, str) or not event_id:
        raise InvalidEvent(
            f"{payload.event_type}: event_id must be non-empty text, got {describe(event_id)}", field="event_id"
        )
    if labels is not None:
        _check_labels(labels, payload.event_type)
    return Event(payload.event_type, timestamp, payload, dict(labels) if labels else {}, event_id)


def decode_event(event: Event, payload_type: type[_Payload]) -> _Payload:
    """Return the event's payload as a ``payload_type``, so that a type checker knows its fields.

        decode_event(event, ToolCall).tool_name

    Raises:
        DecodeError: The payload has another type. The error names both types.
    """
    data = event.data
    if isinstance(data, payload_type):
        return data
    event_type: object = payload_type.event_type  # on the class UnknownPayload, this is a property object
    if data.event_type == event_type and (
        isinstance(data, UnknownPayload) or type(data).__qualname__ == payload_type.__qualname__
    ):
        # The class was registered, or its module reloaded, after the event was read.
        return payload_type.from_map(data.to_map())
    expected = f"a {event_type} " if event_type and isinstance(event_type, str) else ""
    raise DecodeError(
        f"event {event.seq or event.event_id} is a {event.type} ({type(data).__name__}), "
        f"not {expected}({payload_type.__name__})"
    )


def same_body(first: Event, second: Event) -> bool:
    """Return whether two events have the same body, which is their type, data and labels.

    Timestamp, id and seq are not compared. Data is compared as JSON: the order of keys does not matter, and 1, 1.0 and
    true are three different values.
    """
    return (
        first.type == second.type
        and dict(first.labels) == dict(second.labels)
        and encode_canonical(first.data.to_map()) == encode_canonical(second.data.to_map())
    )


def redacted_form(event: Event, reason: str) -> Event:
    """Return the redacted event that replaces ``event`` in the store.

    It has the same timestamp, id and seq, but no data and no labels. An event that is already redacted gets the new
    reason.
    """
    original_type = event.data.original_type if isinstance(event.data, Redacted) else str.__str__(event.type)
    return Event(
        Redacted.event_type,
        event.timestamp,
        Redacted(original_type=original_type, reason=reason),
        {},
        event.event_id,
        event.seq,
    )


class _IdSource:
    """The source of event ids. Ids of two processes differ, and ids of one process increase.

    Increasing ids keep a database index on them compact.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.prefix = secrets.token_urlsafe(9)
        self.numbers = itertools.count()


_ids = _IdSource()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.restart)


def new_event_id() -> str:
    """Return a new unique event id: 72 random bits for the process, then a counter."""
    return f"{_ids.prefix}{next(_ids.numbers):06x}"


_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt]((?:[01]\d|2[0-3]):[0-5]\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-](?:[01]\d|2[0-3]):[0-5]\d))",
    re.ASCII,
)


def format_timestamp(timestamp: datetime) -> str:
    """Return RFC 3339 text in UTC with six or no fractional digits, as in ``2026-11-21T09:30:00.000125Z``.

    Raises ``InvalidEvent`` if the time is outside the years 1 to 9999 in UTC.
    """
    in_utc = _to_utc(timestamp)
    if type(in_utc) is not datetime:  # msgspec has no text for a subclass, but takes a fifth of the time of isoformat
        return in_utc.isoformat().removesuffix("+00:00") + "Z"
    return cast("str", msgspec.to_builtins(in_utc))


def _to_utc(timestamp: datetime) -> datetime:
    try:
        return timestamp.astimezone(UTC)
    except OverflowError as error:
        raise InvalidEvent(
            f"the timestamp {timestamp.isoformat()} is outside the years 1 to 9999 in UTC", field="timestamp"
        ) from error


def _check_timestamp(timestamp: object, event_type: str) -> None:
    if not isinstance(timestamp, datetime) or timestamp.utcoffset() is None:
        raise InvalidEvent(
            f"{event_type}: timestamp must be a timezone-aware datetime, got {describe(timestamp)}",
            field="timestamp",
        )


def _check_labels(labels: object, event_type: str) -> None:
    if not isinstance(labels, Mapping):
        raise InvalidEvent(f"{event_type}: labels must be a map, got {describe(labels)}", field="labels")


def shift_time(timestamp: datetime, by: timedelta) -> datetime:
    """Return ``timestamp + by``, limited to the first and the last instant that a ``datetime`` can hold."""
    try:
        return timestamp + by
    except OverflowError:
        if by < timedelta(0):
            return datetime.min.replace(tzinfo=timestamp.tzinfo)
        return datetime.max.replace(tzinfo=timestamp.tzinfo)


def parse_timestamp(text: str) -> datetime:
    """Return the UTC time of RFC 3339 text with any offset, with the fraction cut to microseconds.

    Raises ``ValueError`` if the text is not RFC 3339, and ``OverflowError`` outside the years 1 to 9999.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not RFC 3339: expected date, T, time and offset, as in 2026-11-21T09:30:00.5Z")
    date, time, fraction, offset = match.groups()
    return datetime.fromisoformat(f"{date}T{time}.{(fraction or '0')[:6]:0<6}{offset or '+00:00'}").astimezone(UTC)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_microseconds(timestamp: datetime) -> int:
    """Return the exact number of microseconds since 1970-01-01T00:00Z. Raises ``TypeError`` for a naive datetime."""
    since = timestamp - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_microseconds(microseconds: int) -> datetime:
    """Return the exact UTC time of a number of microseconds since 1970-01-01T00:00Z."""
    return _EPOCH + timedelta(0, 0, microseconds)


def _get(data: Mapping[str, object], key: str) -> object:
    value = data.get(key)
    return data.get(key.capitalize()) if value is None else value


def _read_timestamp(value: object, event_type: str) -> datetime:
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise DecodeError(f"{event_type}: timestamp has no time zone, got {describe(value)}")
        try:
            return from_microseconds(to_microseconds(value))
        except OverflowError as error:
            raise DecodeError(
                f"{event_type}: timestamp {describe(value)}: outside the years 1 to 9999 in UTC"
            ) from error
    if not isinstance(value, str):
        raise DecodeError(f"{event_type}: timestamp must be RFC 3339 text, got {describe(value)}")
    try:
        return parse_timestamp(value)
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"{event_type}: timestamp {describe(value)}: {error}") from error


def _read_labels(value: object, event_type: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DecodeError(f"{event_type}: labels must be a map, got {describe(value)}")
    labels: dict[str, str] = {}
    for key, text in cast("Mapping[object, object]", value).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise DecodeError(f"{event_type}: labels must map text to text, got {describe(key)} to {describe(text)}")
        labels[str.__str__(key)] = str.__str__(text)
    return labels
