"""What an append and a redaction come to, once the store has looked up what is there: the same for every backend.

An event id whose event was redacted counts as stored for every new body, because the store keeps no digest of an erased
body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agent_memory_log.backend_kit.checks import Prepared, prepare
from agent_memory_log.errors import EventConflict, InvalidEvent, VersionConflict
from agent_memory_log.events.event import Event, new_event, redacted_form, same_body
from agent_memory_log.events.payloads import Redacted, Redaction
from agent_memory_log.events.reserved import TOMBSTONE_TYPE
from agent_memory_log.store import AppendResult


def new_in_batch(batch: Sequence[Prepared], known: Mapping[str, Event]) -> list[Prepared]:
    """The events of ``batch`` that are to be stored: those whose id is neither in ``known`` nor earlier in the batch.

    ``known`` maps the batch's ids that the run already holds to the stored events. Raises ``EventConflict`` when one of
    them, or an earlier one in the batch, has another body. A redacted event's body is not compared.
    """
    new: dict[str, Prepared] = {}
    for event in batch:
        stored = known.get(event.event_id)
        if stored is None and event.event_id not in new:
            new[event.event_id] = event
            continue
        first = stored if stored is not None else new[event.event_id].placed(0)
        if not isinstance(first.data, Redacted) and not same_body(first, event.placed(0)):
            where = f"at seq {first.seq}" if first.seq else "earlier in the batch"
            raise EventConflict(
                f"an event with the id {event.event_id!r} and another body is already there, {where}: "
                "give the new one an id of its own",
                event_id=event.event_id,
                seq=first.seq,
            )
    return list(new.values())


def placed(start: int, batch: Sequence[Prepared], new: Sequence[Prepared], stored: Mapping[str, Event]) -> AppendResult:
    """The result of an append of ``batch`` that put ``new`` behind version ``start`` and found ``stored`` there."""
    version = start + len(new)
    if new is batch:
        return AppendResult(version, len(new), tuple([event.placed(seq) for seq, event in enumerate(batch, start + 1)]))
    seqs = {event.event_id: seq for seq, event in enumerate(new, start + 1)}
    events = tuple(stored.get(event.event_id) or event.placed(seqs[event.event_id]) for event in batch)
    return AppendResult(version, len(new), events)


def check_version(
    name: str, version: int, event_count: int, expected_version: int | None, first_seq: int | None
) -> None:
    """Check that an append that stores something may go on from ``version``. Raises ``VersionConflict``."""
    if expected_version is not None and expected_version != version:
        raise VersionConflict(
            f"{name} is at version {version}, not {expected_version}: load what is new and decide again",
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
    """Check the ``Redaction`` markers in an append of ``new`` behind version ``start``, as an import makes.

    Each event they name must be redacted already, in the run (``event_at`` gives what stands at a seq) or in ``new``,
    or the marker would mask for a warm reader what a new one still sees. Raises ``InvalidEvent``.
    """
    for event in new:
        if not isinstance(event.data, Redaction):
            continue
        for seq in event.data.seqs:
            named = new[seq - start - 1].data if start < seq <= start + len(new) else None
            stored = event_at(seq) if named is None else None
            if not isinstance(stored.data if stored is not None else named, Redacted):
                raise InvalidEvent(
                    f"redaction: event {seq} is not a redacted one: events are redacted with redact_events, which "
                    "appends the marker itself",
                    field="data.seqs",
                )


def redaction_of(
    events: Sequence[Event], reason: str, event_at: Callable[[int], Event | None]
) -> tuple[list[Prepared], Prepared] | None:
    """What takes the place of ``events``, less those already redacted, and the marker to append; None if all are.

    Where a marker is itself redacted, the new one stands for what that one named too, with the new reason, or a reader
    that has not seen the old one would never learn of it; ``event_at`` gives what stands at a seq. Raises
    ``InvalidEvent`` when ``reason`` cannot be stored, and for a ``memory_tombstone``.
    """
    masked = {event.seq: event for event in events if not isinstance(event.data, Redacted)}
    if not masked:
        return None
    for event in list(masked.values()):
        for seq in event.data.seqs if isinstance(event.data, Redaction) else ():
            named = event_at(seq)
            if named is not None:
                masked.setdefault(seq, named)
    for seq, event in masked.items():
        if event.type == TOMBSTONE_TYPE:
            raise InvalidEvent(
                f"seq {seq} is a {TOMBSTONE_TYPE}, which is never redacted: memory would learn again what it was told "
                "to forget; leave it out, or delete the whole run",
                field="seqs",
            )
    marker = prepare(new_event(Redaction(seqs=tuple(sorted(masked)), reason=reason)))
    return [prepare(redacted_form(masked[seq], reason)) for seq in sorted(masked)], marker
