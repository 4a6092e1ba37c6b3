"""Following a run: its events as they come, each looked at once more before it is handed out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from agent_memory_log.backend_kit import check_after, check_ids
from agent_memory_log.errors import CursorOutOfRange, RunDeleted
from agent_memory_log.events.event import Event
from agent_memory_log_mongo.documents.commits import Document, Head, Run, decode_events
from agent_memory_log_mongo.engine.call import Call
from agent_memory_log_mongo.operations.reading import commits_of, current_head

_FOLLOW_EVENTS = 64


async def follow(call: Call, agent: str, run: str, after: int) -> AsyncGenerator[Event]:
    """See ``Store.follow``."""
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
        head, documents = await call.until_done(partial(_follow_on, call, run, after, deletions))
        if deletions is None:
            call.restart(endless=True)
        deletions = head.deletions
        handed_out = False
        upper = min(head.version, max(after, head.base) + _FOLLOW_EVENTS)
        for event in decode_events(documents, run.name, after, upper):
            # Whoever takes events may take his time, and what was redacted or deleted since must not be handed out.
            if handed_out and (await call.until_done(lambda: current_head(call, run))).place != head.place:
                break
            after, handed_out = event.seq, True
            yield event
        if not handed_out:
            call.database.watcher.start()
            await call.wait(signal, seen, call.database.signals.seconds_to_wait(run.key, head.end))


async def _follow_on(call: Call, run: Run, after: int, deletions: int | None) -> tuple[Head, list[Document]]:
    """The newest commit of a run that is followed, and the commits with the follower's next events.

    Raises ``RunDeleted`` when the run was deleted since it had ``deletions``, ``CursorOutOfRange`` at a follower's
    first call.
    """
    head = await current_head(call, run)
    if deletions is None and after > head.version:
        raise CursorOutOfRange(f"{run.name} is at version {head.version}; seq {after} is beyond it")
    if deletions is not None and head.deletions != deletions:
        raise RunDeleted(f"{run.name} was deleted while it was followed, after seq {after}")
    first = max(after, head.base)
    commits = await commits_of(call, run, head, first, min(head.version, first + _FOLLOW_EVENTS))
    return head, commits
