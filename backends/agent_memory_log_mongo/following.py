"""Following a run: its events as they come, each looked at once more before it is handed out."""

from __future__ import annotations

from functools import partial

from agent_memory_log.errors import CursorOutOfRange, RunDeleted
from agent_memory_log_mongo.documents import Document, Head, Run, decode_events
from agent_memory_log_mongo.place import Place
from agent_memory_log_mongo.reads import commits_of, current_head, undisturbed
from agent_memory_log_mongo.steps import Count, News, Settled, Steps

_FOLLOW_EVENTS = 64


def follow(place: Place, run: Run, after: int) -> Steps[None]:
    """See ``Store.follow``: the events are among the requests, for whoever runs this to hand out."""
    deletions: int | None = None
    while True:
        seen: int = yield Count(run.key)
        head, documents = yield from undisturbed(partial(_follow_on, place, run, after, deletions))
        if deletions is None:
            yield Settled()
        deletions = head.deletions
        handed_out = False
        upper = min(head.version, max(after, head.base) + _FOLLOW_EVENTS)
        for event in decode_events(documents, run.name, after, upper):
            # Whoever takes events may take his time, and what was redacted or deleted since must not be handed out.
            if handed_out and (yield from undisturbed(lambda: current_head(place, run))).place != head.place:
                break
            after, handed_out = event.seq, True
            yield event
        if not handed_out:
            yield News(run.key, seen, head.end)


def _follow_on(place: Place, run: Run, after: int, deletions: int | None) -> Steps[tuple[Head, list[Document]]]:
    """The newest commit of a run that is followed, and the commits with the follower's next events.

    Raises ``RunDeleted`` when the run was deleted since it had ``deletions``, ``CursorOutOfRange`` at a follower's
    first call.
    """
    head = yield from current_head(place, run)
    if deletions is None and after > head.version:
        raise CursorOutOfRange(f"{run.name} is at version {head.version}; seq {after} is beyond it")
    if deletions is not None and head.deletions != deletions:
        raise RunDeleted(f"{run.name} was deleted while it was followed, after seq {after}")
    first = max(after, head.base)
    commits = yield from commits_of(place, run, head, first, min(head.version, first + _FOLLOW_EVENTS))
    return head, commits
