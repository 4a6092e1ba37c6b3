"""Checks of what callers pass in, the same for every backend, made before anything is written."""

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
"""The longest agent, run or event id, in characters."""

MAX_LABELS = 64
"""The most labels an event may have."""

MAX_LABEL_KEY_LENGTH = 128
"""The longest label key, in characters."""


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A checked event, sharing nothing mutable with the one it was made from.

    ``text`` is the payload's JSON without its JSON text, which is ``verbatim`` (None: it has none); ``decode_parts``
    makes a payload of the two. ``data`` is an equal payload, ``immutable`` says that nothing in it can change,
    ``labels`` is None when there are none, ``timestamp`` in UTC, ``size`` the bytes of all that.
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

    def placed(self, seq: int) -> Event:
        """A new event at ``seq``, with labels of its own."""
        labels = self.labels
        return Event(self.type, self.timestamp, self.data, labels.copy() if labels else {}, self.event_id, seq)


def prepare_batch(events: Sequence[Event], max_event_bytes: int, max_batch_bytes: int) -> list[Prepared]:
    """Check the events of an append, each by itself and the size of all. Raises ``InvalidEvent``, ``EventTooLarge``."""
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
    """Check an event that is to be appended; one without an ``event_id`` gets a new one.

    Raises ``InvalidEvent`` naming the field, ``EventTooLarge`` when payload and labels have more than ``max_bytes``.
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
        # type() before isinstance(): asking an abstract class takes as long as the rest of this function's own lines.
        owned_labels = None if type(event.labels) is dict and not labels else _own_labels(labels)
        event_id = event.event_id
        if not event_id and isinstance(event_id, str):
            event_id = new_event_id()
        elif type(event_id) is not str or len(event_id) > MAX_ID_LENGTH or not event_id.isascii():
            event_id = _check_id(event_id, "event_id")
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


def _equal_text(given: object, known: object) -> bool:
    return isinstance(given, str) and isinstance(known, str) and str.__str__(given) == str.__str__(known)


def _why_invalid(event: object, error: Exception) -> InvalidEvent:
    if not isinstance(event, Event):
        return InvalidEvent(f"only events can be appended, found {describe(event)}: make one with new_event", field="")
    if not isinstance(event.data, EventData):
        return InvalidEvent(f"a payload must be an EventData, found {describe(event.data)}", field="data")
    if not isinstance(event.timestamp, datetime) or event.timestamp.utcoffset() is None:
        return InvalidEvent(
            f"{event.type}: timestamp must be a timezone-aware datetime, found {describe(event.timestamp)}",
            field="timestamp",
        )
    return InvalidEvent(f"{event.type}: cannot be stored: {error}", field="")


def _own_labels(labels: object) -> dict[str, str] | None:
    if type(labels) is not dict and not isinstance(labels, Mapping):
        raise InvalidEvent(f"labels must be a map, found {describe(labels)}", field="labels")
    given = cast("Mapping[object, object]", labels)
    if len(given) > MAX_LABELS:
        raise InvalidEvent(f"an event may have {MAX_LABELS} labels, found {len(given)}", field="labels")
    owned: dict[str, str] = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise InvalidEvent(f"a label's key must be text, found {describe(key)}", field="labels")
        name = str.__str__(key)
        if not isinstance(value, str):
            raise InvalidEvent(f"the label {name!r} must be text, found {describe(value)}", field=f"labels.{name}")
        if len(key) > MAX_LABEL_KEY_LENGTH:
            raise InvalidEvent(
                f"a label's key may have {MAX_LABEL_KEY_LENGTH} characters, found {len(key)}", field=f"labels.{name}"
            )
        try:
            check_text(key, "")
            check_text(value, "")
        except NotJson as error:
            raise InvalidEvent(f"the label {name!r} {error}", field=f"labels.{name}") from error
        owned[name] = str.__str__(value)
    return owned or None


def check_ids(agent: str, run: str) -> None:
    """Check the two ids that name a run: non-empty text, at most 512 characters. Raises ``InvalidEvent``."""
    # The common case, without two more calls.
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
            f"{field} must be non-empty text of at most {MAX_ID_LENGTH} characters, found {describe(value)}",
            field=field,
        )
    text = str.__str__(value)
    try:
        check_text(text, "")
    except NotJson as error:
        raise InvalidEvent(f"{field} {error}", field=field) from error
    return text


def check_runs(runs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs of agent and run asked for. Raises ``InvalidArgument`` for what is none, ``InvalidEvent`` for an id."""
    if isinstance(runs, str) or not isinstance(runs, Iterable):
        raise InvalidArgument(f"runs must be several pairs of agent and run, found {describe(runs)}")
    wanted = list(runs)
    for one in wanted:
        if not isinstance(one, tuple) or len(one) != 2:  # noqa: PLR2004  # a pair
            raise InvalidArgument(f"a run must be named by a pair of agent and run, found {describe(one)}")
        check_ids(*one)
    return wanted


def check_append(expected_version: int | None, first_seq: int | None) -> None:
    """Check an append's numbers; a time is not a version. Raises ``InvalidArgument``."""
    if expected_version is not None and (type(expected_version) is not int or expected_version < 0):
        raise InvalidArgument(f"expected_version must be an integer from 0, found {describe(expected_version)}")
    if first_seq is not None and (type(first_seq) is not int or not 1 <= first_seq <= MAX_FIRST_SEQ):
        raise InvalidArgument(f"first_seq must be an integer from 1 to {MAX_FIRST_SEQ:,}, found {describe(first_seq)}")


def check_meta(meta: Mapping[str, JsonValue] | None) -> dict[str, JsonValue]:
    """A run's meta as a new map that shares nothing with ``meta``.

    Raises ``InvalidEvent`` naming the field, which is ``meta.expires_at`` for an end that ``expiry_of`` cannot read.
    """
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        raise InvalidEvent(f"meta must be a map, found {describe(meta)}", field="meta")
    try:
        owned = own_map(meta)
    except NotJson as error:
        raise InvalidEvent(f"meta{error.path} {error}", field=f"meta{error.path}") from error
    expiry_of(owned)
    return owned


def check_after(after: int) -> None:
    """Check the form of a seq to read after. Raises ``InvalidArgument``."""
    if type(after) is not int or after < 0:
        raise InvalidArgument(f"after must be a seq from 0, found {describe(after)}")


def check_reached(agent: str, run: str, after: int, version: int) -> None:
    """Check that a run at ``version`` can be read after seq ``after``. Raises ``CursorOutOfRange``."""
    if after > version:
        raise CursorOutOfRange(f"{agent}/{run} is at version {version}; there is nothing after seq {after} yet")


def check_limit(limit: int | None) -> None:
    """Check a limit on how many events to return, None for all. Raises ``InvalidArgument``."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidArgument(f"limit must be an integer from 1, found {describe(limit)}")


def check_listing(agent: str | None, limit: int) -> None:
    """Check what ``list_runs`` is asked for.

    Raises ``InvalidEvent`` for the agent, ``InvalidArgument`` for the limit.
    """
    if agent is not None:
        _check_id(agent, "agent")
    if type(limit) is not int or limit < 1:
        raise InvalidArgument(f"limit must be an integer from 1, found {describe(limit)}")


def check_scope(agent: str | None, run: str | None) -> None:
    """Check what is to be checked: all, an agent's runs or one run. Raises ``InvalidArgument``, ``InvalidEvent``."""
    if agent is not None:
        _check_id(agent, "agent")
    elif run is not None:
        raise InvalidArgument(f"the run {describe(run)} needs its agent's id: pass agent_id too")
    if run is not None:
        _check_id(run, "run")


def check_types(types: Iterable[str] | None) -> frozenset[str] | None:
    """The event types asked for, None for all. Raises ``InvalidArgument``."""
    if types is None:
        return None
    if isinstance(types, str):
        raise InvalidArgument(f"types must be several event types, found the text {types!r}: pass [{types!r}]")
    if not isinstance(types, Iterable):
        raise InvalidArgument(f"types must be several event types, found {describe(types)}")
    wanted = list(types)
    for one in wanted:
        if not isinstance(one, str):
            raise InvalidArgument(f"an event type must be text, found {describe(one)}")
        try:
            check_text(one, "")
        except NotJson as error:
            raise InvalidArgument(f"an event type {error}") from error
    return frozenset(str.__str__(one) for one in wanted)


def check_seqs(seqs: Iterable[int]) -> tuple[int, ...]:
    """The seqs to redact, each once, ascending. Raises ``InvalidArgument``, ``CursorOutOfRange`` for one below 1."""
    if not isinstance(seqs, Iterable):
        raise InvalidArgument(f"seqs must be several integers, found {describe(seqs)}")
    wanted = list(seqs)
    for seq in wanted:
        if type(seq) is not int:
            raise InvalidArgument(f"a seq must be an integer, found {describe(seq)}")
        if seq < 1:
            raise CursorOutOfRange(f"seqs start at 1, found {seq}")
    return tuple(sorted(set(wanted)))
