"""Reads of a store that a server answers in parts: each is put together to the result of one read at one instant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec

from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, StoreUnavailable
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import EventType
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.store_operations import FindEvents, LoadRun, PeekRuns, ReadErasures
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, StoreCall
from agent_memory_log.store import Erasure, Erasures, RunHead

_Result = TypeVar("_Result")

_MOST_LAST = 64
_MOST_IDS = 500
_MOST_RUNS = 2_000
"""The largest ``last``, and the most event ids and runs, in one request. A server with its defaults takes more."""

_MOST_RESTARTS = 10

REDACTIONS = (EventType.REDACTION.value,)
"""The type of the markers, which name the redacted events."""


def send(operation: Operation[_Result]) -> Steps[_Result]:
    """Send one operation. See ``RemoteStore.call``."""
    return cast("_Result", (yield StoreCall("call", (operation,), {})))


def load_run(operation: LoadRun) -> Steps[Snapshot]:
    """Return the snapshot of a read, which shows the run as it is when the last part is read."""
    last = operation.last
    if last is not None and last > _MOST_LAST:
        return (yield from _load_newest(operation, last))
    for _ in range(_MOST_RESTARTS):
        snapshot = yield from _load_parts(operation)
        if snapshot is not None:
            break
    else:
        raise StoreUnavailable(
            f"{operation.agent}/{operation.run}: events were redacted during each of {_MOST_RESTARTS} reads: try again"
        )
    if last is not None and len(snapshot.log) > last:  # events were appended between two parts
        return _newest(snapshot, last)
    return snapshot


def _load_parts(operation: LoadRun) -> Steps[Snapshot | None]:
    """Read a run part by part. Returns None if the parts do not fit together."""
    limit = operation.limit
    parts = [(yield from send(operation))]
    while True:
        newest = parts[-1]
        missing = None if limit is None else limit - sum(len(part.log) for part in parts)
        if newest.last_seq >= newest.version or missing == 0:
            if len(parts) == 1:
                return newest
            changes = newest
            if newest.last_seq < newest.version > parts[0].version:
                # The marker of a redaction in an earlier part may come after the last part.
                rest = msgspec.structs.replace(
                    operation, after=newest.last_seq, types=REDACTIONS, limit=None, last=None
                )
                changes = yield from load_run(rest)
            joined = _joined(parts, changes)
            # A deletion or redaction took events from earlier parts, so a read with this limit would continue.
            if joined is None or limit is None or len(joined.log) == limit or joined.last_seq >= joined.version:
                return joined
            parts = [joined]
            continue
        part = yield from send(
            msgspec.structs.replace(operation, after=newest.last_seq, limit=missing, last=None)  # the rest of the run
        )
        if part.last_seq <= newest.last_seq:
            raise StoreUnavailable(f"{operation.agent}/{operation.run}: the server sent a part without an end")
        parts.append(part)


def _joined(parts: Sequence[Snapshot], changes: Snapshot) -> Snapshot | None:
    """Return the snapshot of a read at the time of ``changes``, or None if a part lacks an event of it.

    The run can have changed between the parts. As for every later read, ``Snapshot.extend`` masks events that were
    redacted since, and leaves out deleted ones.

    Args:
        parts: The parts, in order.
        changes: The last part, or a later read of the redactions after it.
    """
    first, last_seq = parts[0], parts[-1].last_seq
    events = Snapshot(
        first.agent,
        first.run,
        [event for part in parts for event in part.log],
        version=changes.version,
        last_seq=last_seq,
        after=first.after,
        types=first.types,
        first_seq=first.first_seq,
        redactions=first.redactions,
    )
    since = Snapshot(
        first.agent,
        first.run,
        version=changes.version,
        last_seq=last_seq,
        meta=changes.meta,
        after=last_seq,
        types=first.types,
        first_seq=changes.first_seq,
        redactions={seq: reason for part in (*parts[1:], changes) for seq, reason in part.redactions.items()},
    )
    try:
        return events.extend(since)
    except CursorOutOfRange:
        return None


def _load_newest(operation: LoadRun, last: int) -> Steps[Snapshot]:
    """Return the ``last`` newest events. Reads from ever further back until it has enough of them."""
    head = yield from send(msgspec.structs.replace(operation, types=(), last=1))
    count = last
    while True:
        begin = head.version - count
        if begin <= max(operation.after, head.first_seq - 1):
            begin = operation.after
        snapshot = yield from load_run(msgspec.structs.replace(operation, after=begin, last=None))
        if len(snapshot.log) >= last:
            return _newest(snapshot, last)
        if begin == operation.after:
            return snapshot
        count *= 2


def _newest(snapshot: Snapshot, last: int) -> Snapshot:
    """Return the snapshot of a read that begins with the ``last`` newest events."""
    log = snapshot.log[-last:]
    return Snapshot(
        snapshot.agent,
        snapshot.run,
        log,
        version=snapshot.version,
        meta=snapshot.meta,
        after=log[0].seq - 1,
        types=snapshot.types,
        first_seq=snapshot.first_seq,
        redactions=snapshot.redactions,
    )


def find_events(operation: FindEvents) -> Steps[tuple[Event | None, ...]]:
    """Return the events with the given ids."""
    events: list[Event | None] = []
    for some in _parts_of(operation.event_ids, _MOST_IDS):
        events += yield from _find_some(msgspec.structs.replace(operation, event_ids=some))
    return tuple(events)


def _find_some(operation: FindEvents) -> Steps[tuple[Event | None, ...]]:
    ids = operation.event_ids
    try:
        events = yield from send(operation)
    except InvalidArgument:
        # The ids were checked here, so the server refuses them only if their events are too large for one answer.
        if len(ids) == 1:
            raise
        middle = len(ids) // 2
        halves = [msgspec.structs.replace(operation, event_ids=half) for half in (ids[:middle], ids[middle:])]
        return (yield from _find_some(halves[0])) + (yield from _find_some(halves[1]))
    return _checked(events, len(ids))


def peek_runs(operation: PeekRuns) -> Steps[tuple[RunHead | None, ...]]:
    """Return the heads of runs."""
    heads: list[RunHead | None] = []
    for some in _parts_of(operation.runs, _MOST_RUNS):
        heads += _checked((yield from send(PeekRuns(some))), len(some))
    return tuple(heads)


def erasures(operation: ReadErasures) -> Steps[Erasures]:
    """Read the erasure journal up to its end, or up to a limit."""
    limit = operation.limit
    entries: list[Erasure] = []
    position = operation.after
    while True:
        missing = None if limit is None else limit - len(entries)
        part = yield from send(msgspec.structs.replace(operation, after=position, limit=missing))
        entries += part.entries
        # Only a part that goes no further proves that the journal has no more entries.
        is_end = part.position <= position or operation.runs == () or len(entries) == limit
        position = max(position, part.position)
        if is_end:
            return Erasures(position, tuple(entries))


def _parts_of(items: tuple[Any, ...], most: int) -> list[tuple[Any, ...]]:
    """Return the items in parts, at least one, because the server checks the call even without items."""
    return [items[start : start + most] for start in range(0, max(len(items), 1), most)]


def _checked(values: tuple[_Result, ...], count: int) -> tuple[_Result, ...]:
    if len(values) != count:
        raise StoreUnavailable(f"the server sent {len(values):,} values for {count:,} ids or runs")
    return values
