"""The event: a typed payload with its time, labels, id and place in a run.

``new_event`` makes one, ``Event.to_map`` and ``Event.from_map`` are its wire shape, ``decode_event`` gives the payload
back with its type known to a type checker.
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
    """One thing that happened in a run.

    - ``type``: the event type; always the payload's ``event_type``.
    - ``timestamp``: when it happened; timezone-aware, to the microsecond. Events out of a store are in UTC.
    - ``data``: the payload.
    - ``labels``: text to text, at most 64, keys to 128 characters.
    - ``event_id``: the idempotency key within a run, to 512 characters; ``""`` until a store assigns one.
    - ``seq``: the place in the run, from 1; 0 until a store assigns it.
    """

    type: str
    timestamp: datetime
    data: EventData
    # msgspec knows dict, and would have to call dict[str, str].
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    event_id: str = ""
    seq: int = 0

    def to_map(self) -> dict[str, JsonValue]:
        """The event as a new map ``{type, timestamp, data, labels, event_id, seq}``.

        ``timestamp`` is RFC 3339 text in UTC, ``data`` always there; empty ``labels`` and an ``event_id`` or ``seq``
        not yet assigned are left out. Raises ``InvalidEvent`` naming the field.
        """
        if not isinstance(self.type, str):
            raise InvalidEvent(f"an event's type must be text, found {describe(self.type)}", field="type")
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
        """Read an event's map: ours, or the original's with ``Type``, ``Timestamp``, ``Data`` and ``Labels``.

        ``timestamp`` may be RFC 3339 text with any offset and any number of fractional digits, cut to the microsecond,
        or an aware datetime. Absent or null ``labels`` are none; absent or null ``data`` is an error. Raises
        ``DecodeError`` naming the event type, the field and what was found.
        """
        if not isinstance(data, Mapping):
            raise DecodeError(f"an event must be a map, found {describe(data)}")
        event_type = _top(data, "type")
        if not isinstance(event_type, str) or not event_type:
            raise DecodeError(f"an event's type must be non-empty text, found {describe(event_type)}")
        event_type = str.__str__(event_type)
        payload = _top(data, "data")
        if payload is None:
            raise DecodeError(f"{event_type}: data is {'null' if 'data' in data or 'Data' in data else 'absent'}")
        event_id = data.get("event_id")
        if event_id is not None and not isinstance(event_id, str):
            raise DecodeError(f"{event_type}: event_id must be text, found {describe(event_id)}")
        number = data.get("seq")
        seq = 0 if number is None else read_int64(number, f"{event_type}: seq")
        if seq < 0:
            raise DecodeError(f"{event_type}: seq must be an integer from 0, found {describe(seq)}")
        return cls(
            type=event_type,
            timestamp=_read_timestamp(_top(data, "timestamp"), event_type),
            data=payload_from_map(event_type, payload),
            labels=_read_labels(_top(data, "labels"), event_type),
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
    """Make an event of ``payload``, ready to be appended.

    ``timestamp`` must be timezone-aware and defaults to now; ``event_id`` is the idempotency key within a run and
    defaults to a new unique one, so that appending the same event again stores it once. Raises ``InvalidEvent`` naming
    the field. The payload's own values are checked when the event is appended.

        new_event(UserMessage(message="Where is my order?"), labels={"role": "user"})
    """
    if not isinstance(payload, EventData):
        raise InvalidEvent(f"a payload must be an EventData, found {describe(payload)}", field="data")
    if timestamp is None:
        timestamp = datetime.now(UTC)
    else:
        _check_timestamp(timestamp, payload.event_type)
        timestamp = _to_utc(timestamp)
    if event_id is None:
        event_id = new_event_id()
    elif not isinstance(event_id, str) or not event_id:
        raise InvalidEvent(
            f"{payload.event_type}: event_id must be non-empty text, found {describe(event_id)}", field="event_id"
        )
    if labels is not None:
        _check_labels(labels, payload.event_type)
    return Event(payload.event_type, timestamp, payload, dict(labels) if labels else {}, event_id)


def decode_event(event: Event, payload_type: type[_Payload]) -> _Payload:
    """The event's payload as a ``payload_type``, typed. Raises ``DecodeError`` naming both types when it is another.

    decode_event(event, ToolCall).tool_name
    """
    data = event.data
    if isinstance(data, payload_type):
        return data
    event_type: object = payload_type.event_type  # of UnknownPayload itself it is a property
    if data.event_type == event_type and (
        isinstance(data, UnknownPayload) or type(data).__qualname__ == payload_type.__qualname__
    ):
        return payload_type.from_map(data.to_map())  # registered, or its module reloaded, after the event was read
    expected = f"a {event_type} " if event_type and isinstance(event_type, str) else ""
    raise DecodeError(
        f"event {event.seq or event.event_id} is a {event.type} ({type(data).__name__}), "
        f"not {expected}({payload_type.__name__})"
    )


def same_body(first: Event, second: Event) -> bool:
    """Whether two events have the same body: type, data and labels; the time is not part of it.

    Data is compared as JSON: key order does not matter, and 1, 1.0 and true are three values.
    """
    return (
        first.type == second.type
        and dict(first.labels) == dict(second.labels)
        and encode_canonical(first.data.to_map()) == encode_canonical(second.data.to_map())
    )


def redacted_form(event: Event, reason: str) -> Event:
    """What stands where ``event`` was once it is redacted: time, id and seq stay; data and labels go.

    One that was redacted before gets the new reason.
    """
    was = event.data.original_type if isinstance(event.data, Redacted) else str.__str__(event.type)
    return Event(
        Redacted.event_type,
        event.timestamp,
        Redacted(original_type=was, reason=reason),
        {},
        event.event_id,
        event.seq,
    )


class _IdSource:
    """Event ids that are unique among processes and increase within one, which keeps an index on them compact."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.prefix = secrets.token_urlsafe(9)
        self.numbers = itertools.count()


_ids = _IdSource()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.restart)


def new_event_id() -> str:
    """A new unique event id: 72 random bits for the process, then a number that counts up."""
    return f"{_ids.prefix}{next(_ids.numbers):06x}"


_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt]((?:[01]\d|2[0-3]):[0-5]\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-](?:[01]\d|2[0-3]):[0-5]\d))",
    re.ASCII,
)


def format_timestamp(timestamp: datetime) -> str:
    """RFC 3339 text in UTC, with six fractional digits or none: ``2026-11-21T09:30:00.000125Z``.

    Raises ``InvalidEvent`` for a time whose offset leads out of the years 1 to 9999.
    """
    return _to_utc(timestamp).isoformat().removesuffix("+00:00") + "Z"


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
            f"{event_type}: timestamp must be a timezone-aware datetime, found {describe(timestamp)}",
            field="timestamp",
        )


def _check_labels(labels: object, event_type: str) -> None:
    if not isinstance(labels, Mapping):
        raise InvalidEvent(f"{event_type}: labels must be a map, found {describe(labels)}", field="labels")


def moved(timestamp: datetime, by: timedelta) -> datetime:
    """``timestamp + by``, or the first or last instant that a datetime holds where that is beyond it."""
    try:
        return timestamp + by
    except OverflowError:
        if by < timedelta(0):
            return datetime.min.replace(tzinfo=timestamp.tzinfo)
        return datetime.max.replace(tzinfo=timestamp.tzinfo)


def parse_timestamp(text: str) -> datetime:
    """Read RFC 3339 text with any offset, cutting the fraction to the microsecond. Raises ``ValueError``."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not RFC 3339: a date, T, a time and an offset, as in 2026-11-21T09:30:00.5Z")
    date, time, fraction, offset = match.groups()
    return datetime.fromisoformat(f"{date}T{time}.{(fraction or '0')[:6]:0<6}{offset or '+00:00'}").astimezone(UTC)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_microseconds(timestamp: datetime) -> int:
    """Whole microseconds since 1970-01-01T00:00Z, exact. Raises ``TypeError`` for a naive datetime."""
    since = timestamp - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_microseconds(microseconds: int) -> datetime:
    """The UTC time of ``to_microseconds``, exact."""
    return _EPOCH + timedelta(0, 0, microseconds)


def _top(data: Mapping[str, object], key: str) -> object:
    value = data.get(key)
    return data.get(key.capitalize()) if value is None else value


def _read_timestamp(value: object, event_type: str) -> datetime:
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise DecodeError(f"{event_type}: timestamp has no time zone, found {describe(value)}")
        try:
            return from_microseconds(to_microseconds(value))
        except OverflowError as error:
            raise DecodeError(
                f"{event_type}: timestamp {describe(value)}: outside the years 1 to 9999 in UTC"
            ) from error
    if not isinstance(value, str):
        raise DecodeError(f"{event_type}: timestamp must be RFC 3339 text, found {describe(value)}")
    try:
        return parse_timestamp(value)
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"{event_type}: timestamp {describe(value)}: {error}") from error


def _read_labels(value: object, event_type: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DecodeError(f"{event_type}: labels must be a map, found {describe(value)}")
    labels: dict[str, str] = {}
    for key, text in cast("Mapping[object, object]", value).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise DecodeError(f"{event_type}: labels must be text to text, found {describe(key)} to {describe(text)}")
        labels[str.__str__(key)] = str.__str__(text)
    return labels
