"""Follows a run: yields its events as they are appended, and checks for deletions and redactions before each one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from agent_memory_log.backend_kit import check_after, check_ids
from agent_memory_log.errors import CursorOutOfRange, RunDeleted
from agent_memory_log.events.event import Event
from agent_memory_log_mongo.documents.commits import Document, Head, Run
from agent_memory_log_mongo.documents.events import decode_events
from agent_memory_log_mongo.engine.call import Call
from agent_memory_log_mongo.operations.reading import commits_of, current_head

_FOLLOW_EVENTS = 64


async def follow(call: Call, agent: str, run: str, after: int) -> AsyncGenerator[Event]:
    """Yield the run's events after ``after``, and wait for new ones."""
    check_ids(agent, run)
    check_after(after)
    followed = Run.of(agent, run)
    call.database.signals.add(followed.key)
    try:
        async with aclosing(_follow(call, followed, after)) as events:
            async for event in events:
                yield event
    finally:
        call.database.signals.remove(followed.key)


async def _follow(call: Call, run: Run, after: int) -> AsyncGenerator[Event]:
    signal = call.database.signals.of(run.key)
    deletions: int | None = None
    while True:
        seen = signal.count
        head, documents = await call.until_done(partial(_next_commits, call, run, after, deletions))
        if deletions is None:
            call.restart(endless=True)
        deletions = head.deletions
        handed_out = False
        upper = min(head.version, max(after, head.base) + _FOLLOW_EVENTS)
        for event in decode_events(documents, run.name, after, upper):
            # The consumer may be slow. An event that was redacted or deleted in the meantime must not be yielded.
            if handed_out and (await call.until_done(lambda: current_head(call, run))).place != head.place:
                break
            after, handed_out = event.seq, True
            yield event
        if not handed_out:
            call.database.watcher.start()
            await call.wait(signal, seen, call.database.signals.seconds_to_wait(run.key, head.end))


async def _next_commits(call: Call, run: Run, after: int, deletions: int | None) -> tuple[Head, list[Document]]:
    """Return the head of a followed run and the commits with the follower's next events.

    ``deletions`` is None at the first call. Raises ``RunDeleted`` if the run's number of deletions has changed since
    then. Raises ``CursorOutOfRange`` if ``after`` is above the version at the first call.
    """
    head = await current_head(call, run)
    if deletions is None and after > head.version:
        raise CursorOutOfRange(f"{run.name} is at version {head.version}; seq {after} is above it")
    if deletions is not None and head.deletions != deletions:
        raise RunDeleted(f"{run.name} was deleted while it was followed, after seq {after}")
    first = max(after, head.base)
    commits = await commits_of(call, run, head, first, min(head.version, first + _FOLLOW_EVENTS))
    return head, commits
