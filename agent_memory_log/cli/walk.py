"""Going through a run event by event, past what cannot be read."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events import Event
from agent_memory_log.store import RunInfo, Store

_PAGE = 500


class Unreadable(msgspec.Struct, frozen=True):
    """An event at ``seq`` that the store holds and cannot read; ``reason`` is its own account."""

    seq: int
    reason: str


class Bounds(msgspec.Struct, frozen=True):
    """The seqs a run should hold: ``first`` to ``last``."""

    first: int
    last: int


async def bounds_of(store: Store, info: RunInfo) -> Bounds:
    """What the run should hold now; from its row alone when reading it fails."""
    try:
        # Asking for no type reads no event, and so cannot fail on one.
        snapshot = await store.load_run(info.agent, info.run, types=())
    except DecodeError:
        return Bounds(info.version - info.event_count + 1, info.version)
    return Bounds(snapshot.first_seq, snapshot.version)


async def each_event(store: Store, info: RunInfo, bounds: Bounds) -> AsyncIterator[Event | Unreadable]:
    """The run's events within ``bounds``, in append order; an ``Unreadable`` in place of each that cannot be read."""
    after, limit = bounds.first - 1, _PAGE
    failed: Unreadable | None = None
    while after < bounds.last:
        try:
            snapshot = await store.load_run(info.agent, info.run, after=after, limit=limit)
        except DecodeError as error:
            if limit > 1:
                limit //= 2
                continue
            after += 1
            # A missing event before the unreadable one fails with it, and alike: the last such failure is the event.
            if failed is not None and failed.reason != str(error):
                yield failed
            failed = Unreadable(after, str(error))
            continue
        if failed is not None:
            yield failed
            failed = None
        limit = min(_PAGE, limit * 2)
        for event in snapshot.log:
            if event.seq > bounds.last:
                return
            yield event
        after = snapshot.last_seq
    if failed is not None:
        yield failed
