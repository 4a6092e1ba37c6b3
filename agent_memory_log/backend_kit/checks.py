"""Checks of arguments and events before anything is written. They are the same for every backend."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec

from agent_memory_log.backend_kit.expiry import expiry_of
from agent_memory_log.errors import CursorOutOfRange, EventTooLarge, InvalidArgument, InvalidEvent
from agent_memory_log.events.event import Event, from_microseconds, new_event_id, to_microseconds
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, check_text, own_map
from agent_memory_log.events.payloads import EventData
from agent_memory_log.events.registry import encode_parts
from agent_memory_log.store import MAX_FIRST_SEQ

MAX_ID_LENGTH = 512
"""The most characters of an agent id, a run id or an event id."""

MAX_LABELS = 64
"""The most labels of an event."""

MAX_LABEL_KEY_LENGTH = 128
"""The most characters of a label key."""


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A checked event. It shares nothing mutable with the event that the caller passed.

    Attributes:
        type: The event type.
        timestamp: The time of the event in UTC.
        data: A payload that equals the caller's payload.
        immutable: Whether nothing in ``data`` can change.
        text: The payload's JSON without its verbatim text. ``decode_parts`` decodes both to a payload.
        verbatim: The payload's verbatim text, or None. See ``encode_parts``.
        labels: The labels, or None if there are no labels.
        event_id: The id of the event. It is not empty.
        size: The number of bytes of ``text``, ``verbatim`` and the labels.
    """

    type: str
    timestamp: datetime
    data: EventData
    immutable: bool
    text: bytes
    verbatim: str | None
    labels: dict[str, str] | None
    event_id: str
    size: int

    def to_event(self, seq: int) -> Event:
        """Return a new event with this seq and a copy of the labels."""
        labels = self.labels
        return Event(self.type, self.timestamp, self.data, labels.copy() if labels else {}, self.event_id, seq)


def prepare_batch(events: Sequence[Event], max_event_bytes: int, max_batch_bytes: int) -> list[Prepared]:
    """Check each event of an append and the size of the whole batch.

    Raises:
        InvalidEvent: An event cannot be stored. The error names the field.
        EventTooLarge: An event has more than ``max_event_bytes``, or the batch has more than ``max_batch_bytes``.
    """
    if len(events) == 1:
        return [prepare(events[0], max_event_bytes)]
    batch = [prepare(event, max_event_bytes) for event in events]
    total = sum([event.size for event in batch])
    if total > max_batch_bytes:
        raise EventTooLarge(
            f"the batch has {total:,} bytes in {len(batch)} events; the limit is {max_batch_bytes:,}: append it in "
            "parts",
            size=total,
            limit=max_batch_bytes,
        )
    return batch


def prepare(event: Event, max_bytes: int = sys.maxsize) -> Prepared:
    """Check an event before it is appended. An event without an ``event_id`` gets a new id.

    Raises:
        InvalidEvent: The event cannot be stored. The error names the field.
        EventTooLarge: Payload and labels have more than ``max_bytes``.
    """
    try:
        payload = event.data
        if event.type is not payload.event_type and not _equal_text(event.type, payload.event_type):
            raise InvalidEvent(
                f"the event's type is {describe(event.type)} but its payload is a {payload.event_type!r}",
                field="type",
            )
        text, verbatim, data = encode_parts(payload)
        labels = event.labels
        # type() first, because isinstance() of an abstract class takes as long as the rest of this function.
        owned_labels = None if type(event.labels) is dict and not labels else _own_labels(labels)
        event_id = event.event_id
        if type(event_id) is not str or not 0 < len(event_id) <= MAX_ID_LENGTH or not event_id.isascii():
            is_empty = isinstance(event_id, str) and not event_id
            event_id = new_event_id() if is_empty else _check_id(event_id, "event_id")
        timestamp = event.timestamp
        if timestamp.tzinfo is not UTC or type(timestamp) is not datetime:
            timestamp = from_microseconds(to_microseconds(timestamp))
        size = len(text)
        if verbatim is not None:
            size += len(verbatim) if verbatim.isascii() else len(verbatim.encode())
        if owned_labels:
            size += sum(len(key.encode()) + len(value.encode()) for key, value in owned_labels.items())
        if size > max_bytes:
            raise EventTooLarge(
                f"event {event_id!r}, a {event.type}, has {size:,} bytes; the limit is {max_bytes:,}",
                size=size,
                limit=max_bytes,
            )
        return Prepared(data.event_type, timestamp, data, data is payload, text, verbatim, owned_labels, event_id, size)
    except OverflowError as error:
        raise InvalidEvent(
            f"{event.type}: timestamp is outside the years 1 to 9999 in UTC", field="timestamp"
        ) from error
    except (AttributeError, TypeError) as error:
        raise _why_invalid(event, error) from error


def _equal_text(first: object, second: object) -> bool:
    return isinstance(first, str) and isinstance(second, str) and str.__str__(first) == str.__str__(second)


def _why_invalid(event: object, error: Exception) -> InvalidEvent:
    if not isinstance(event, Event):
        return InvalidEvent(f"expected an Event, got {describe(event)}: create it with new_event", field="")
    if not isinstance(event.data, EventData):
        return InvalidEvent(f"a payload must be an EventData, got {describe(event.data)}", field="data")
    if not isinstance(event.timestamp, datetime) or event.timestamp.utcoffset() is None:
        return InvalidEvent(
            f"{event.type}: timestamp must be a timezone-aware datetime, got {describe(event.timestamp)}",
            field="timestamp",
        )
    return InvalidEvent(f"{event.type}: cannot be stored: {error}", field="")


def _own_labels(labels: object) -> dict[str, str] | None:
    if type(labels) is not dict and not isinstance(labels, Mapping):
        raise InvalidEvent(f"labels must be a map, got {describe(labels)}", field="labels")
    label_map = cast("Mapping[object, object]", labels)
    if len(label_map) > MAX_LABELS:
        raise InvalidEvent(f"the event has {len(label_map)} labels; the limit is {MAX_LABELS}", field="labels")
    owned: dict[str, str] = {}
    for key, value in label_map.items():
        if not isinstance(key, str):
            raise InvalidEvent(f"a label's key must be text, got {describe(key)}", field="labels")
        name = str.__str__(key)
        if not isinstance(value, str):
            raise InvalidEvent(f"the label {name!r} must be text, got {describe(value)}", field=f"labels.{name}")
        if len(key) > MAX_LABEL_KEY_LENGTH:
            raise InvalidEvent(
                f"the label {name!r} has {len(key)} characters; the limit is {MAX_LABEL_KEY_LENGTH}",
                field=f"labels.{name}",
            )
        try:
            check_text(key, "")
            check_text(value, "")
        except NotJson as error:
            raise InvalidEvent(f"the label {name!r} {error}", field=f"labels.{name}") from error
        owned[name] = str.__str__(value)
    return owned or None


def check_ids(agent: str, run: str) -> None:
    """Check that agent and run are non-empty text of at most 512 characters. Raises ``InvalidEvent``."""
    # This is the common case. It saves two calls.
    if (
        type(agent) is str
        and type(run) is str
        and 0 < len(agent) <= MAX_ID_LENGTH
        and 0 < len(run) <= MAX_ID_LENGTH
        and agent.isascii()
        and run.isascii()
    ):
        return
    _check_id(agent, "agent")
    _check_id(run, "run")


def _check_id(value: object, field: str) -> str:
    if not isinstance(value, str) or not value or len(value) > MAX_ID_LENGTH:
        raise InvalidEvent(
            f"{field} must be non-empty text of at most {MAX_ID_LENGTH} characters, got {describe(value)}",
            field=field,
        )
    text = str.__str__(value)
    try:
        check_text(text, "")
    except NotJson as error:
        raise InvalidEvent(f"{field} {error}", field=field) from error
    return text


def check_runs(runs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs of agent and run as a checked list.

    Raises ``InvalidArgument`` if an item is not a pair, and ``InvalidEvent`` if an id is invalid.
    """
    if isinstance(runs, str) or not isinstance(runs, Iterable):
        raise InvalidArgument(f"runs must be an iterable of pairs (agent, run), got {describe(runs)}")
    pairs = list(runs)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:  # noqa: PLR2004  # a pair
            raise InvalidArgument(f"expected a pair (agent, run), got {describe(pair)}")
        check_ids(*pair)
    return pairs


def check_erasures(
    after: int, runs: Iterable[tuple[str, str]] | None, limit: int | None
) -> list[tuple[str, str]] | None:
    """Check the arguments of ``Store.erasures`` and return the pairs. Raises ``InvalidEvent``, ``InvalidArgument``."""
    if type(after) is not int or after < 0:
        raise InvalidArgument(f"after must be a position from 0, got {describe(after)}")
    check_limit(limit)
    return None if runs is None else check_runs(runs)


def check_journal_reached(after: int, position: int) -> None:
    """Check that a journal that ends at ``position`` can be read after ``after``. Raises ``CursorOutOfRange``."""
    if after > position:
        raise CursorOutOfRange(f"the erasure journal ends at position {position}; position {after} is above it")


def check_append(expected_version: int | None, first_seq: int | None) -> None:
    """Check the numbers of an append. Raises ``InvalidArgument``."""
    if expected_version is not None and (type(expected_version) is not int or expected_version < 0):
        raise InvalidArgument(f"expected_version must be an integer from 0, got {describe(expected_version)}")
    if first_seq is not None and (type(first_seq) is not int or not 1 <= first_seq <= MAX_FIRST_SEQ):
        raise InvalidArgument(f"first_seq must be an integer from 1 to {MAX_FIRST_SEQ:,}, got {describe(first_seq)}")


def check_meta(meta: Mapping[str, JsonValue] | None) -> dict[str, JsonValue]:
    """Return a checked copy of a run's meta. It shares nothing with ``meta``.

    Raises ``InvalidEvent`` with the field, for example ``meta.expires_at`` if ``expiry_of`` cannot read its time.
    """
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        raise InvalidEvent(f"meta must be a map, got {describe(meta)}", field="meta")
    try:
        owned = own_map(meta)
    except NotJson as error:
        raise InvalidEvent(f"meta{error.path} {error}", field=f"meta{error.path}") from error
    expiry_of(owned)
    return owned


def check_after(after: int) -> None:
    """Check that ``after`` is an integer from 0. Raises ``InvalidArgument``."""
    if type(after) is not int or after < 0:
        raise InvalidArgument(f"after must be a seq from 0, got {describe(after)}")


def check_reached(agent: str, run: str, after: int, version: int) -> None:
    """Check that a run at ``version`` can be read after seq ``after``. Raises ``CursorOutOfRange``."""
    if after > version:
        raise CursorOutOfRange(f"{agent}/{run} is at version {version}: no event can follow seq {after} yet")


def check_limit(limit: int | None, name: str = "limit") -> None:
    """Check that the limit is None or an integer from 1. Raises ``InvalidArgument``, which has ``name``."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidArgument(f"{name} must be an integer from 1, got {describe(limit)}")


def check_load(
    agent: str, run: str, after: int, types: Iterable[str] | None, limit: int | None, last: int | None
) -> frozenset[str] | None:
    """Check the arguments of ``load_run`` and return the event types. Raises ``InvalidEvent``, ``InvalidArgument``."""
    check_ids(agent, run)
    check_after(after)
    check_limit(limit)
    check_limit(last, "last")
    if limit is not None and last is not None:
        raise InvalidArgument("limit selects the oldest events and last the newest ones: pass only one of them")
    return check_types(types)


def check_event_ids(event_ids: Iterable[str]) -> list[str]:
    """Return the event ids as a checked list.

    Raises ``InvalidArgument`` if ``event_ids`` is no iterable of ids, and ``InvalidEvent`` if an id is invalid.
    """
    if isinstance(event_ids, str) or not isinstance(event_ids, Iterable):
        raise InvalidArgument(f"event_ids must be an iterable of event ids, got {describe(event_ids)}")
    return [_check_id(event_id, "event_id") for event_id in event_ids]


def check_listing(agent: str | None, limit: int) -> None:
    """Check the arguments of ``list_runs``.

    Raises ``InvalidEvent`` if the agent is invalid, and ``InvalidArgument`` if the limit is invalid.
    """
    if agent is not None:
        _check_id(agent, "agent")
    if type(limit) is not int or limit < 1:
        raise InvalidArgument(f"limit must be an integer from 1, got {describe(limit)}")


def check_scope(agent: str | None, run: str | None) -> None:
    """Check the arguments of ``Store.check``, which checks the whole store, the runs of an agent, or one run.

    Raises ``InvalidArgument`` if there is a run without its agent, and ``InvalidEvent`` if an id is invalid.
    """
    if agent is not None:
        _check_id(agent, "agent")
    elif run is not None:
        raise InvalidArgument(f"the run {describe(run)} needs its agent's id: pass agent_id too")
    if run is not None:
        _check_id(run, "run")


def check_types(types: Iterable[str] | None) -> frozenset[str] | None:
    """Return the event types as a checked set, or None for all types. Raises ``InvalidArgument``."""
    if types is None:
        return None
    if isinstance(types, str):
        raise InvalidArgument(f"types must be an iterable of event types, got the text {types!r}: pass [{types!r}]")
    if not isinstance(types, Iterable):
        raise InvalidArgument(f"types must be an iterable of event types, got {describe(types)}")
    event_types = list(types)
    for event_type in event_types:
        if not isinstance(event_type, str):
            raise InvalidArgument(f"an event type must be text, got {describe(event_type)}")
        try:
            check_text(event_type, "")
        except NotJson as error:
            raise InvalidArgument(f"an event type {error}") from error
    return frozenset(str.__str__(event_type) for event_type in event_types)


def check_seqs(seqs: Iterable[int]) -> tuple[int, ...]:
    """Return the seqs to redact in ascending order, without duplicates.

    Raises ``InvalidArgument`` if a seq is not an integer, and ``CursorOutOfRange`` if it is below 1.
    """
    if not isinstance(seqs, Iterable):
        raise InvalidArgument(f"seqs must be an iterable of integers, got {describe(seqs)}")
    numbers = list(seqs)
    for seq in numbers:
        if type(seq) is not int:
            raise InvalidArgument(f"a seq must be an integer, got {describe(seq)}")
        if seq < 1:
            raise CursorOutOfRange(f"a seq must be at least 1, got {seq}")
    return tuple(sorted(set(numbers)))
