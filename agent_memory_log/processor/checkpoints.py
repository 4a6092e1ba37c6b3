"""Writes and reads checkpoints: ``Checkpoint`` events that name the events of a run's story by their ids.

A checkpoint copies no text, so text that is redacted later is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.context_payloads import Checkpoint
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.fields import describe
from agent_memory_log.processor.loops import MOST_POINTER_BYTES, Loop, LoopCheckpoint, Progress

PART_BYTES = 64 * 1024
"""About the most bytes of the ids in one event. A checkpoint with more ids has several events."""

MOST_PARTS = 64
"""The most events of a checkpoint. Stories are bounded, so that none has more, however long its ids are."""

RECENT_EVENTS = 2 * MOST_PARTS
"""The number of newest ``Checkpoint`` events of a run that are looked at first."""

LONGEST_REASON = 64
_FORM = "loop/1"
"""The form of ``Checkpoint.structured``. Checkpoints of other programs have another form."""


class _Part(msgspec.Struct, frozen=True, tag_field="form", tag=_FORM):
    """One event of a checkpoint. ``events`` has the ids of events; the other fields are those of ``LoopCheckpoint``."""

    part: int
    parts: Annotated[int, msgspec.Meta(ge=1, le=MOST_PARTS)]
    version: Annotated[int, msgspec.Meta(ge=0)]
    iteration: int
    utilization: float
    reason: str
    expires: Annotated[datetime, msgspec.Meta(tz=True)]
    events: tuple[str, ...] = ()


def checkpoint_of(
    loop: Loop,
    progress: Progress,
    sources: Sequence[Event],
    reason: str,
    retention_days: float,
    now: datetime,
    event_id: str | None,
) -> tuple[LoopCheckpoint, list[Event]]:
    """Return a checkpoint, and the events to append for it.

    Raises ``InvalidArgument`` if the reason or the id is too long, or if the time of the end is no date.
    """
    if not isinstance(reason, str) or len(reason) > LONGEST_REASON:
        raise InvalidArgument(f"reason must be text of at most {LONGEST_REASON} characters, got {describe(reason)}")
    if isinstance(retention_days, bool) or not isinstance(retention_days, (int, float)) or not retention_days > 0:
        raise InvalidArgument(f"retention_days must be a number above 0, got {describe(retention_days)}")
    try:
        expires = now + timedelta(days=retention_days)
    except OverflowError as error:
        raise InvalidArgument(f"retention_days={retention_days} ends after the year 9999") from error
    chunks = list(_chunks(event.event_id for event in sources)) or [()]
    first = new_event(Checkpoint(), event_id=event_id, timestamp=now)
    checkpoint = LoopCheckpoint(
        loop,
        first.event_id,
        progress.version,
        progress.iteration,
        progress.utilization,
        reason,
        first.timestamp,
        expires,
        len(chunks),
    )
    if len(checkpoint.pointer()) > MOST_POINTER_BYTES:
        raise InvalidArgument(f"event_id is too long for a pointer of less than 1 KiB, got {describe(event_id)}")
    events: list[Event] = []
    for number, chunk in enumerate(chunks):
        part = _Part(
            number,
            len(chunks),
            checkpoint.version,
            checkpoint.iteration,
            checkpoint.utilization,
            reason,
            expires,
            chunk,
        )
        data = Checkpoint(checkpoint.checkpoint_id, structured=msgspec.to_builtins(part))
        events.append(new_event(data, event_id=_part_id(first.event_id, number), timestamp=now))
    return checkpoint, events


def read_checkpoint(loop: Loop, event: Event | None) -> LoopCheckpoint | None:
    """Return the checkpoint that an event begins, or None if it begins no checkpoint of a loop."""
    part = _part_of(event)
    if event is None or part is None or part.part or part.version >= event.seq:
        return None
    return LoopCheckpoint(
        loop,
        event.event_id,
        part.version,
        part.iteration,
        part.utilization,
        part.reason,
        event.timestamp,
        part.expires,
        part.parts,
    )


def part_ids(checkpoint: LoopCheckpoint) -> list[str]:
    """Return the ids of the events of a checkpoint."""
    return [_part_id(checkpoint.checkpoint_id, number) for number in range(checkpoint.parts)]


def source_ids(parts: Iterable[Event | None]) -> list[str] | None:
    """Return the ids that the parts of a checkpoint name, or None if a part is missing or erased."""
    ids: list[str] = []
    for event in parts:
        part = _part_of(event)
        if part is None:
            return None
        ids += part.events
    return ids


def _part_of(event: Event | None) -> _Part | None:
    if event is None or not isinstance(event.data, Checkpoint):
        return None
    try:
        return msgspec.convert(event.data.structured, _Part)
    except msgspec.ValidationError:
        return None


def _part_id(checkpoint_id: str, number: int) -> str:
    return f"{checkpoint_id}.{number}" if number else checkpoint_id


def _chunks(ids: Iterable[str]) -> Iterable[tuple[str, ...]]:
    chunk: list[str] = []
    size = 0
    for event_id in ids:
        if chunk and size + len(event_id) > PART_BYTES:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(event_id)
        size += len(event_id) + 3
    if chunk:
        yield tuple(chunk)
