"""Checks an append, and decides its result or that of a redaction from the stored events, for every backend.

If a stored event was redacted, every new event with its id counts as already stored. The bodies cannot be compared,
because the store keeps no digest of an erased body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from agent_memory_log.backend_kit.checks import (
    Prepared,
    check_append,
    check_ids,
    check_meta,
    prepare,
    prepare_batch,
)
from agent_memory_log.errors import EventConflict, InvalidEvent, VersionConflict
from agent_memory_log.events.event import Event, new_event, redacted_form, same_body
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import Redacted, Redaction
from agent_memory_log.events.reserved import TOMBSTONE_TYPE, check_not_reserved
from agent_memory_log.store import AppendResult

DEFAULT_MAX_EVENT_BYTES = 64 * 1024 * 1024
"""The default limit for the encoded size of one event, in bytes."""

_BATCH_EVENTS = 16
"""The default limit for a batch, in events of the largest size."""


class Append(msgspec.Struct, frozen=True, gc=False):
    """The checked arguments of an append. See ``Store.append_events``.

    Attributes:
        agent: The id of the agent.
        run: The id of the run.
        batch: The checked events.
        expected_version: The version that the run must have, or None for any version.
        meta: The checked meta of a new run, or None.
        first_seq: The seq of the first event of a new run, or None.
    """

    agent: str
    run: str
    batch: Sequence[Prepared]
    expected_version: int | None
    meta: Mapping[str, JsonValue] | None
    first_seq: int | None


def checked_append(
    agent: str,
    run: str,
    events: Sequence[Event],
    expected_version: int | None,
    meta: Mapping[str, JsonValue] | None,
    first_seq: int | None,
    *,
    reserved: bool,
    max_event_bytes: int,
    max_batch_bytes: int | None = None,
) -> Append:
    """Check the arguments of ``Store.append_events``.

    Args:
        agent: The id of the agent.
        run: The id of the run.
        events: The events to append.
        expected_version: The version that the run must have, or None for any version.
        meta: The meta of a new run, or None.
        first_seq: The seq of the first event of a new run, or None.
        reserved: Whether reserved agents and event types are allowed.
        max_event_bytes: The most bytes of one encoded event.
        max_batch_bytes: The most bytes of all encoded events. The default is 16 times ``max_event_bytes``.

    Returns:
        The checked append.

    Raises:
        InvalidEvent: An id, an event or ``meta`` cannot be stored. The error names the field.
        InvalidArgument: ``expected_version`` or ``first_seq`` is not a valid number.
        EventTooLarge: An event or the batch is too large.
    """
    check_ids(agent, run)
    if expected_version is not None or first_seq is not None:
        check_append(expected_version, first_seq)
    batch = prepare_batch(events, max_event_bytes, max_batch_bytes or max_event_bytes * _BATCH_EVENTS)
    check_not_reserved(agent, batch, reserved=reserved)
    return Append(agent, run, batch, expected_version, None if meta is None else check_meta(meta), first_seq)


def new_in_batch(batch: Sequence[Prepared], stored: Mapping[str, Event]) -> Sequence[Prepared]:
    """Return the new events of ``batch``, whose ids are neither stored nor used earlier in the batch.

    ``stored`` maps those ids of the batch that the run already holds to the stored events. Raises ``EventConflict`` if
    an event with the same id has a different body. The body of a redacted event is not compared.
    """
    new: dict[str, Prepared] = {}
    for event in batch:
        stored_event = stored.get(event.event_id)
        if stored_event is None and event.event_id not in new:
            new[event.event_id] = event
            continue
        first = stored_event if stored_event is not None else new[event.event_id].to_event(0)
        if not isinstance(first.data, Redacted) and not same_body(first, event.to_event(0)):
            position = f"is stored at seq {first.seq}" if first.seq else "is earlier in the batch"
            raise EventConflict(
                f"an event with the id {event.event_id!r} and a different body {position}: give the new event another "
                "id",
                event_id=event.event_id,
                seq=first.seq,
            )
    return batch if len(new) == len(batch) else list(new.values())


def append_result(
    start: int, batch: Sequence[Prepared], new: Sequence[Prepared], stored: Mapping[str, Event]
) -> AppendResult:
    """Return the result of an append.

    Args:
        start: The run's version before the append.
        batch: The events of the append.
        new: The events of ``batch`` that were inserted.
        stored: The events of the run that were stored before with an id of ``batch``, by that id.
    """
    version = start + len(new)
    if new is batch:
        return AppendResult(
            version, len(new), tuple([event.to_event(seq) for seq, event in enumerate(batch, start + 1)])
        )
    seqs = {event.event_id: seq for seq, event in enumerate(new, start + 1)}
    events = tuple(stored.get(event.event_id) or event.to_event(seqs[event.event_id]) for event in batch)
    return AppendResult(version, len(new), events)


def check_version(
    name: str, version: int, event_count: int, expected_version: int | None, first_seq: int | None
) -> None:
    """Check that new events may be appended to a run.

    Args:
        name: The agent and the run, for the message.
        version: The run's version.
        event_count: How many events the run holds.
        expected_version: The version that the caller expects, or None for any version.
        first_seq: The seq at which the caller wants the run to begin, or None.

    Raises:
        VersionConflict: The run is not at ``expected_version``, or cannot begin at ``first_seq``.
    """
    if expected_version is not None and expected_version != version:
        raise VersionConflict(
            f"{name} is at version {version}, not {expected_version}: load the new events and retry",
            expected=expected_version,
            actual=version,
        )
    if first_seq is not None and (event_count or first_seq <= version):
        raise VersionConflict(
            f"{name} is at version {version} and holds {event_count} events: it cannot start at seq {first_seq}",
            expected=first_seq - 1,
            actual=version,
        )


def check_markers(new: Sequence[Prepared], start: int, event_at: Callable[[int], Event | None]) -> None:
    """Check the ``Redaction`` markers in an append of ``new`` to a run at version ``start``.

    Imports append such markers. Each event that a marker names must be redacted in the run or in ``new``. Otherwise the
    marker would mask the event in extended snapshots, but not in new ones. ``event_at`` returns the stored event at a
    seq. Raises ``InvalidEvent``.
    """
    for event in new:
        if not isinstance(event.data, Redaction):
            continue
        for seq in event.data.seqs:
            data = new[seq - start - 1].data if start < seq <= start + len(new) else None
            stored = event_at(seq) if data is None else None
            if not isinstance(stored.data if stored is not None else data, Redacted):
                raise InvalidEvent(
                    f"redaction: event {seq} is not redacted: redact it with redact_events, which appends the marker "
                    "itself",
                    field="data.seqs",
                )


def plan_redaction(
    events: Sequence[Event], reason: str, event_at: Callable[[int], Event | None]
) -> tuple[list[Prepared], Prepared] | None:
    """Return the redacted forms of ``events`` and the marker to append, or None if all events are already redacted.

    Events that are already redacted are left out. If one of ``events`` is a marker itself, the new marker also names
    the events of the old one, with the new reason. Otherwise a reader that did not see the old marker would miss them.
    ``event_at`` returns the stored event at a seq. Raises ``InvalidEvent`` if ``reason`` cannot be stored, or if one of
    the events is a ``memory_tombstone``.
    """
    masked = {event.seq: event for event in events if not isinstance(event.data, Redacted)}
    if not masked:
        return None
    for event in list(masked.values()):
        for seq in event.data.seqs if isinstance(event.data, Redaction) else ():
            stored = event_at(seq)
            if stored is not None:
                masked.setdefault(seq, stored)
    for seq, event in masked.items():
        if event.type == TOMBSTONE_TYPE:
            raise InvalidEvent(
                f"event {seq} is a {TOMBSTONE_TYPE}, which cannot be redacted, because memory would then learn the "
                "forgotten facts again: leave out this seq, or delete the whole run",
                field="seqs",
            )
    marker = prepare(new_event(Redaction(seqs=tuple(sorted(masked)), reason=reason)))
    return [prepare(redacted_form(masked[seq], reason)) for seq in sorted(masked)], marker
