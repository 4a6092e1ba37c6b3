"""Reads runs: their heads, snapshots, events and meta.

Every query selects a range of one index after an equality (``preparing.py``). A read first looks up the newest commit
and reads up to it, so that a snapshot shows the run at one instant. If a deletion happens between two queries, the run
is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from agent_memory_log.backend_kit import check_expiry, check_load, now_microseconds
from agent_memory_log.errors import CursorOutOfRange, StoreCorrupt
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log.events.payloads import EventType
from agent_memory_log.snapshot import Snapshot, redactions_in
from agent_memory_log_mongo.documents.checksums import REMEDY, WITHOUT_EVENTS, compare, compare_run
from agent_memory_log_mongo.documents.commits import (
    HEAD_FIELDS,
    LAST_SEQ,
    Document,
    Head,
    Run,
    checked,
    head_of,
    is_sought,
    type_key,
)
from agent_memory_log_mongo.documents.events import decode_events, meta_of
from agent_memory_log_mongo.engine.call import Call, TryAgain
from agent_memory_log_mongo.engine.database import CHAIN, SOUGHT_TYPES

_REDACTION = EventType.REDACTION.value
_TYPES_OF = {"s": 1, "v": 1, "n": 1, "g": 1, "events.type": 1}
"""The projection of a commit to the types of its events."""

_MOST_COMMITS = 100_000
"""The largest limit of a query, in commits."""

_CHUNK = 512
"""The number of events that a filtered read with a limit examines at a time."""


async def find_head(call: Call, run: Run) -> Head | None:
    """Return the head of a run, or None if it has no commits.

    Raises ``TryAgain``, ``DecodeError`` or ``StoreCorrupt``.
    """
    remembered = call.database.heads.get(run.key)
    # With a remembered head, the query covers only newer commits. Otherwise it covers the run, newest commit first.
    floor = remembered.place if remembered is not None else 1
    newest = await _last(call, run, floor, None, call.database.head_fields)
    if newest is None and floor > 1:
        newest = await _last(call, run, 1, None, call.database.head_fields)
    if newest is None:
        return None
    head = head_of(newest, run.name)
    if head.is_blank:
        call.database.forget()
        # The tombstone was written before this commit was emptied, so it must exist now.
        if await _last(call, run, head.place + 1, None, call.database.head_fields):
            raise TryAgain
        raise StoreCorrupt(
            f"{run.name}: the events up to {head.version} were removed, but the run was not deleted: {REMEDY}"
        )
    call.database.heads[run.key] = head
    return head


async def _last(
    call: Call, run: Run, low: int, high: int | None, fields: Mapping[str, int] | None = None
) -> Document | None:
    """Return the last commit of a run at the positions from ``low`` to ``high``, or None."""
    bounds = {"$gte": low} if high is None else {"$gte": low, "$lte": high}
    where = {"k": run.key, "s": bounds}
    last = await call.find_one(call.database.commits, where, sort={"s": -1}, fields=fields)
    if last is not None and fields is WITHOUT_EVENTS:
        compare([last], run.name, required=call.database.all_have_sums)
    return last


async def current_head(call: Call, run: Run) -> Head:
    """Return the head of a run, or a head of zeros if it has no commits. Raises ``RunExpired``, ``TryAgain``."""
    head = await latest_head(call, run)
    check_expiry(run.agent, run.run, head.end)
    return head


async def latest_head(call: Call, run: Run) -> Head:
    """Return the head of a run as ``current_head`` does, even if the run has expired."""
    head = await find_head(call, run)
    if head is None or head.is_empty:
        removed = await removed_life(call, run, head)
        if removed is not None:
            return removed
    return head or Head()


async def removed_life(call: Call, run: Run, head: Head | None) -> Head | None:
    """Return the head of an expired run whose commits the server has removed, or None if the run is not such a run.

    ``head`` is the run's tombstone, or None. The version of the result is an upper bound of the run's version.
    """
    document = await call.find_one(call.database.runs, {"_id": run.key})
    if document is None:
        return None
    before = head or Head()
    if call.database.settings.verify:
        compare_run(document, run.name)
    # The end applies only if the run was not deleted after its document was written.
    end = document.get("end") if document.get("g", 0) == before.deletions else None
    if end is None or end > now_microseconds():
        return None
    version = max(int(document.get("ceiling", 0)), before.version + 1)
    return Head(0, version, before.deletions, before.base, 0, int(end))


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
    """Load the events after ``after`` in one query. Returns None if this query cannot tell the state of the run."""
    remembered = call.database.heads.get(run.key, Head())
    if (after and remembered.version == after) or after > LAST_SEQ:
        return None  # probably, no event is new
    place = max(after, remembered.base) + remembered.deletions + 1
    documents = await _range(call, run, place, None)
    if not documents:
        return None
    # Nothing follows the last commit, so it is the newest one.
    head = head_of(documents[-1], run.name)
    check_expiry(run.agent, run.run, head.end)
    begin = max(after, head.base)
    documents = await _from(call, run, documents, begin, place)
    first = documents[0]
    start = first["v"] - first["n"]
    try:
        _check_chain(call, documents, head, run, first["s"], start)
    except TryAgain:
        return None  # the run was deleted
    if not start <= begin <= head.version:
        return None
    call.database.heads[run.key] = head
    meta = _remembered_meta(call, run, head, first) if start == head.base else await meta_at(call, run, head)
    log = decode_events(documents, run.name, after)
    return Snapshot(run.agent, run.run, log, version=head.version, meta=meta, after=after, first_seq=head.base + 1)


async def commits_of(call: Call, run: Run, head: Head, after: int, upper: int) -> list[Document]:
    """Return the commits with the events after seq ``after`` up to ``upper``. ``after`` is at least ``head.base``."""
    if after >= upper:
        return []
    try:
        return await _gapless(call, run, head, after, upper)
    except TryAgain:
        await _check_deleted(call, run, head)
        raise StoreCorrupt(f"{run.name}: some of the events {after + 1} to {upper} are missing: {REMEDY}") from None


async def _check_deleted(call: Call, run: Run, head: Head) -> None:
    """Raise ``TryAgain`` if the run was deleted after ``head`` was read, which explains missing commits."""
    newest = await current_head(call, run)
    if newest.deletions != head.deletions or newest.version < head.version:
        raise TryAgain


async def _gapless(call: Call, run: Run, head: Head, after: int, upper: int) -> list[Document]:
    """Return the same commits as ``commits_of``. Raises ``TryAgain`` if some are missing."""
    place = after + head.deletions + 1
    documents = await _from(call, run, await _range(call, run, place, upper + head.deletions), after, place)
    if not documents:
        raise TryAgain
    first = documents[0]
    _check_chain(call, documents, head, run, first["s"], first["v"] - first["n"])
    if not first["v"] - first["n"] <= after < first["v"] or documents[-1]["v"] < upper:
        raise TryAgain
    return documents


async def _from(call: Call, run: Run, documents: list[Document], after: int, place: int) -> list[Document]:
    """Return the commits at and after ``place``, with the one before if the event after ``after`` is inside it."""
    if documents and documents[0]["v"] - documents[0]["n"] == after:
        return documents
    before = await _last(call, run, 1, place - 1)
    return [*verified(call, run, [before] if before is not None else []), *documents]


def verified(call: Call, run: Run, documents: list[Document]) -> list[Document]:
    """Return the commits after checking them. With ``verify``, the checksums are compared too."""
    checked(documents, run.name)
    if call.database.settings.verify:
        compare(documents, run.name, required=call.database.all_have_sums)
    return documents


async def _range(call: Call, run: Run, low: int, high: int | None) -> list[Document]:
    """Return the commits at the positions from ``low`` to ``high``, or to the newest commit without ``high``."""
    documents: list[Document] = []
    is_complete = False
    while not is_complete:
        bounds = {"$gte": low} if high is None else {"$gte": low, "$lte": high}
        more, is_complete = await call.find_range(call.database.commits, {"k": run.key, "s": bounds}, "s", CHAIN)
        if not more:
            break
        documents.extend(verified(call, run, more))
        low = head_of(more[-1], run.name).next_place
        if high is None and not is_complete:
            # The read ends at the commit that is the newest now. Otherwise it might never end while others append.
            newest = await _last(call, run, low, None, call.database.head_fields)
            if newest is None:
                break
            high = head_of(newest, run.name).place
    return documents


def _check_chain(call: Call, documents: Sequence[Document], head: Head, run: Run, at: int, version: int) -> None:
    """Check that commits follow each other without a gap.

    The first one must be at position ``at`` and begin after seq ``version``. Raises ``TryAgain`` if a commit was
    deleted, and ``StoreCorrupt`` for a gap.
    """
    has_sums = call.database.all_have_sums
    for document in documents:
        if document.get("g", 0) != head.deletions or not document["n"]:
            raise TryAgain
        if document["s"] != at or document["v"] - document["n"] != version:
            raise StoreCorrupt(
                f"{run.name}: event {version + 1} is missing: the next commit is not the one for position {at} of the "
                f"run's chain: {REMEDY}"
            )
        version = document["v"]
        if "sums" in document:
            has_sums = True
        elif has_sums:
            raise StoreCorrupt(f"{run.name}: the commit of the events up to {version} has lost its checksums: {REMEDY}")
        at = version + head.deletions + 1


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


async def commits_of_type(call: Call, run: Run, event_type: str, low: int, high: int) -> list[Document]:
    """Return the commits at the positions from ``low`` to ``high`` that have an event of an indexed type."""
    commits: list[Document] = []
    while low <= high:
        where = {"k": run.key, "t": type_key(run.key, event_type), "ts": {"$gte": low, "$lte": high}}
        more = await call.find(call.database.commits, where, sort={"ts": 1}, hint=SOUGHT_TYPES)
        if not more:
            break
        commits.extend(verified(call, run, more))
        low = more[-1]["s"] + 1
    return commits


async def _place_of(call: Call, run: Run, head: Head, after: int) -> int:
    """Return the position of the commit that has the event after seq ``after``."""
    first = await _last(call, run, 1, after + head.deletions + 1, {"s": 1})
    return int(first["s"]) if first is not None else 1


async def meta_at(call: Call, run: Run, head: Head) -> dict[str, JsonValue]:
    """Return the meta of a run from its first commit."""
    if head.is_empty:
        return {}
    stored = call.database.metas.get((run.key, head.deletions))
    if stored is not None:
        return cast("dict[str, JsonValue]", decode_json(stored))
    fields = call.database.head_fields if call.database.settings.verify else {**HEAD_FIELDS, "meta": 1, "meta_json": 1}
    document = await _last(call, run, 1, head.base + head.deletions + 1, fields)
    first = head_of(document, run.name) if document is not None else Head()
    if document is None or not first.count or first.deletions != head.deletions:
        await _check_deleted(call, run, head)
        raise StoreCorrupt(f"{run.name}: event {head.base + 1}, the run's first, is missing: {REMEDY}")
    return _remembered_meta(call, run, head, document)


def _remembered_meta(call: Call, run: Run, head: Head, first: Document) -> dict[str, JsonValue]:
    """Return the meta of a run from its first commit, and remember it."""
    meta = meta_of(first, run.name)
    call.database.metas[run.key, head.deletions] = encode_json(meta)
    return meta
