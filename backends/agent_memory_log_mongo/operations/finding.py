"""Finds single events of a run, by their ids or by their seqs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import cast

from agent_memory_log.backend_kit import check_event_ids, check_ids
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import EventType
from agent_memory_log_mongo.documents.commits import Document, Head, Run
from agent_memory_log_mongo.documents.events import decode_events, masked
from agent_memory_log_mongo.engine.call import Call
from agent_memory_log_mongo.operations.reading import commits_of, commits_of_type, current_head, verified

_IDS_AT_ONCE = 2_000


async def find_events(call: Call, agent: str, run: str, event_ids: Iterable[str]) -> tuple[Event | None, ...]:
    """Return the event for each id, or None if the run has no such event."""
    check_ids(agent, run)
    ids = check_event_ids(event_ids)
    events = await call.until_done(lambda: _find(call, Run.of(agent, run), frozenset(ids)))
    return tuple(events.get(event_id) for event_id in ids)


async def _find(call: Call, run: Run, ids: frozenset[str]) -> dict[str, Event]:
    head = await current_head(call, run)
    # A commit up to the base belongs to a deleted run and is not emptied yet. The deleting process may have died.
    commits = [commit for commit in await find_ids(call, run, [*ids]) if commit["v"] > head.base]
    if not commits:
        return {}
    # A redaction whose process died has its marker, but the content may still be there.
    first = min(commit["s"] for commit in commits)
    markers = await commits_of_type(call, run, EventType.REDACTION, first, head.version + head.deletions)
    sought = [
        {"v": seq, "n": 1, "events": [stored]}
        for commit in commits
        for seq, stored in enumerate(commit["events"], commit["v"] - commit["n"] + 1)
        if _id_of(stored) in ids
    ]
    events = decode_events(sought, run.name, 0)
    events += decode_events(markers, run.name, 0, types=frozenset({EventType.REDACTION.value}))
    return {event.event_id: event for event in masked(events)}


async def events_at(call: Call, run: Run, head: Head, seqs: Sequence[int]) -> dict[int, tuple[Event, Document]]:
    """Return the events at ``seqs`` and their commits, by seq. Seqs that the run does not have are omitted."""
    events: dict[int, tuple[Event, Document]] = {}
    for seq in sorted(set(seqs)):
        if seq in events or not head.base < seq <= head.version:
            continue
        (commit,) = await commits_of(call, run, head, seq - 1, seq)
        # Decoding reuses mutable parts of the document, but the caller needs the commit unchanged.
        for event in decode_events([deepcopy(commit)], run.name, 0):
            events[event.seq] = (event, commit)
    return {seq: events[seq] for seq in seqs if seq in events}


async def find_ids(call: Call, run: Run, ids: Sequence[str]) -> list[Document]:
    """Return the commits of a run that have events with these ids."""
    missing: list[str] = sorted(ids)
    documents: list[Document] = []
    while missing:
        # So many ids fit in one command even if each has the maximum length.
        chunk = missing[:_IDS_AT_ONCE]
        where = {"k": run.key, "events.id": {"$in": chunk}}
        more = verified(call, run, (await call.find(call.database.commits, where)))
        stored: set[object] = {_id_of(event) for document in more for event in document["events"]}
        if stored.isdisjoint(chunk):
            missing = missing[_IDS_AT_ONCE:]
            continue
        documents.extend(more)
        # One reply has at most 16 MiB, so query again for the ids that it did not return.
        missing = [event_id for event_id in missing if event_id not in stored]
    return documents


def _id_of(event: object) -> object:
    return cast("Document", event).get("id") if isinstance(event, dict) else None
