"""Loads a run, or a part of it, as a snapshot.

A snapshot shows the run at one instant, at which one commit is the newest. The read of all events, or of all new ones,
is one query, and its last commit is the newest. Other reads look up the newest commit first.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent_memory_log.backend_kit import check_expiry, check_load
from agent_memory_log.errors import CursorOutOfRange
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import EventType
from agent_memory_log.snapshot import Snapshot, redactions_in
from agent_memory_log_mongo.documents.commits import (
    LAST_SEQ,
    Document,
    Head,
    Run,
    checked,
    head_of,
    is_sought,
    type_key,
)
from agent_memory_log_mongo.documents.events import decode_events
from agent_memory_log_mongo.engine.call import Call, TryAgain
from agent_memory_log_mongo.engine.database import CHAIN, SOUGHT_TYPES
from agent_memory_log_mongo.operations.reading import (
    check_chain,
    commits_between,
    commits_of,
    commits_of_type,
    current_head,
    from_the_commit_of,
    last_commit,
    meta_at,
    remembered_meta,
)

_REDACTION = EventType.REDACTION.value
_TYPES_OF = {"s": 1, "v": 1, "n": 1, "g": 1, "events.type": 1}
"""The projection of a commit to the types of its events."""

_MOST_COMMITS = 100_000
"""The largest limit of a query, in commits."""

_CHUNK = 512
"""The number of events that a filtered read with a limit examines at a time."""


async def load(
    call: Call,
    agent: str,
    run: str,
    after: int,
    types: Iterable[str] | None,
    limit: int | None,
    last: int | None,
) -> Snapshot:
    """Return a snapshot of a run."""
    checked_types = check_load(agent, run, after, types, limit, last)
    return await call.until_done(lambda: _load(call, Run.of(agent, run), after, checked_types, limit, last))


async def _load(
    call: Call, run: Run, after: int, types: frozenset[str] | None, limit: int | None, last: int | None
) -> Snapshot:
    if types is None and limit is None and last is None:
        snapshot = await _load_at_once(call, run, after)
        if snapshot is not None:
            return snapshot
    head = await current_head(call, run)
    if after > head.version:
        raise CursorOutOfRange(f"{run.name} is at version {head.version}; seq {after} is above it")
    if last is not None:
        return await _load_newest(call, run, head, after, types, last)
    return await _read(call, run, head, after, types, limit)


async def _read(
    call: Call, run: Run, head: Head, after: int, types: frozenset[str] | None, limit: int | None
) -> Snapshot:
    redactions: dict[int, str] | None = None
    if types is None:
        first = max(after, head.base)
        upper = head.version if limit is None else min(head.version, first + limit)
        log = decode_events((await commits_of(call, run, head, first, upper)), run.name, first, upper)
        last_seq = upper if upper > first else head.version
    else:
        log, markers, last_seq = await _of_types(call, run, head, after, types, limit)
        redactions = redactions_in(markers)
    return Snapshot(
        run.agent,
        run.run,
        log,
        version=head.version,
        last_seq=last_seq,
        meta=(await meta_at(call, run, head)),
        after=after,
        types=types,
        first_seq=head.base + 1,
        redactions=redactions,
    )


async def _load_at_once(call: Call, run: Run, after: int) -> Snapshot | None:
    """Load the events after ``after`` in one query. Returns None if other queries are needed."""
    remembered = call.database.heads.get(run.key, Head())
    if (after and remembered.version == after) or after > LAST_SEQ:
        return None  # probably no event is new
    place = max(after, remembered.base) + remembered.deletions + 1
    documents = await commits_between(call, run, place, None)
    if not documents:
        return None
    # Nothing follows the last commit, so it is the newest one.
    head = head_of(documents[-1], run.name)
    check_expiry(run.agent, run.run, head.end)
    begin = max(after, head.base)
    documents = await from_the_commit_of(call, run, documents, begin, place)
    first = documents[0]
    start = first["v"] - first["n"]
    try:
        check_chain(call, documents, head, run, first["s"], start)
    except TryAgain:
        return None  # the run was deleted
    if not start <= begin <= head.version:
        return None
    call.database.heads[run.key] = head
    meta = remembered_meta(call, run, head, first) if start == head.base else await meta_at(call, run, head)
    log = decode_events(documents, run.name, after)
    return Snapshot(run.agent, run.run, log, version=head.version, meta=meta, after=after, first_seq=head.base + 1)


async def _load_newest(
    call: Call, run: Run, head: Head, after: int, types: frozenset[str] | None, last: int
) -> Snapshot:
    count = last
    while True:
        begin = await _before_last(call, run, head, after, types, count)
        snapshot = await _read(call, run, head, begin, types, None)
        missing = last - len(snapshot.log)
        if missing < 0:
            begin = snapshot.log[-last].seq - 1
            return await _read(call, run, head, begin, types, None)
        if not missing or begin == after:
            return snapshot
        count += missing  # a redaction that is not finished changed the type of events that were counted


async def _before_last(call: Call, run: Run, head: Head, after: int, types: frozenset[str] | None, count: int) -> int:
    """Return the seq before the newest ``count`` events of ``types`` after ``after``, or ``after`` if there are
    fewer.
    """
    floor = max(after, head.base)
    if types is None:
        return head.version - count if head.version - floor >= count else after
    low = await _place_of(call, run, head, floor)
    if all(map(is_sought, types)):
        # ``t`` includes the key. ``k`` is in the filter too, so that only one shard receives the query.
        ranges = [({"k": run.key, "t": type_key(run.key, name)}, "ts", SOUGHT_TYPES, {name}) for name in types]
    else:
        ranges = [({"k": run.key}, "s", CHAIN, {*types})]
    newest: list[int] = []
    for where, place, hint, some_types in ranges:
        seqs: list[int] = []
        high, size = head.version + head.deletions, count
        while low <= high and len(seqs) < count:
            size = min(size, _MOST_COMMITS)
            bounded = {**where, place: {"$gte": low, "$lte": high}}
            page = await call.find(
                call.database.commits, bounded, sort={place: -1}, limit=size, fields=_TYPES_OF, hint=hint
            )
            if not page:
                break
            seqs += [
                document["v"] - number
                for document in checked(page, run.name)
                for number, event in enumerate(reversed(document["events"]))
                if floor < document["v"] - number <= head.version and event.get("type") in some_types
            ]
            high, size = page[-1]["s"] - 1, size * 2
        newest = sorted([*newest, *seqs])[-count:]
    return newest[0] - 1 if len(newest) == count else after


async def _of_types(
    call: Call, run: Run, head: Head, after: int, types: frozenset[str], limit: int | None
) -> tuple[list[Event], list[Event], int]:
    """Return the events of some types, the redaction markers up to the last examined seq, and that seq."""
    read_types = types | {_REDACTION}
    low = max(after, head.base)
    events: list[Event] = []
    while low < head.version:
        if all(map(is_sought, types)):
            upper = head.version
            more = await _sought(call, run, head, low, read_types)
        else:
            upper = head.version if limit is None else min(head.version, low + max(limit, _CHUNK))
            commits = await commits_of(call, run, head, low, upper)
            more = decode_events(commits, run.name, low, upper, read_types)
        events.extend(more)
        low = upper
        if limit is not None and sum(event.type in types for event in events) >= limit:
            break
    log = [event for event in events if event.type in types]
    last_seq = head.version
    if limit is not None and len(log) >= limit:
        log = log[:limit]
        last_seq = log[-1].seq
    return log, [event for event in events if event.type == _REDACTION and event.seq <= last_seq], last_seq


async def _sought(call: Call, run: Run, head: Head, after: int, read_types: frozenset[str]) -> list[Event]:
    """Return the events of indexed types after ``after``. Each type is one range of the index."""
    low = await _place_of(call, run, head, after)
    commits: dict[int, Document] = {}
    for event_type in sorted(read_types):
        commits_in_range = await commits_of_type(call, run, event_type, low, head.version + head.deletions)
        commits.update((document["s"], document) for document in commits_in_range)
    # A deletion removes a commit from this index, so check that none happened.
    if (await current_head(call, run)).deletions != head.deletions:
        raise TryAgain
    chosen = [commits[at] for at in sorted(commits)]
    return decode_events(chosen, run.name, after, head.version, read_types)


async def _place_of(call: Call, run: Run, head: Head, after: int) -> int:
    """Return the position of the commit that has the event after seq ``after``."""
    first = await last_commit(call, run, 1, after + head.deletions + 1, {"s": 1})
    return int(first["s"]) if first is not None else 1
