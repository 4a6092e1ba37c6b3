"""Reading: what a store is asked, as operations on commits.

Every query is a range of one index behind an equality (see ``preparing.py``). A run is read up to the newest commit
found first, so that a snapshot is the run at one instant; when a deletion comes between two queries, it is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
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
    Document,
    Head,
    Run,
    checked,
    decode_events,
    head_of,
    is_sought,
    meta_of,
    type_key,
)
from agent_memory_log_mongo.engine.call import Call, TryAgain
from agent_memory_log_mongo.engine.database import SOUGHT_TYPES

_REDACTION = EventType.REDACTION.value
_IDS_AT_ONCE = 2_000
_CHUNK = 512
"""How many events a filtered read with a limit walks at a time."""


async def find_head(call: Call, run: Run) -> Head | None:
    """The newest commit of a run, None when it has none. Raises ``TryAgain``, ``DecodeError``."""
    known = call.database.heads.get(run.key)
    # With what is remembered the range is as short as what is new; without, it is the whole run's, from its far end.
    floor = known.place if known is not None else 1
    newest = await _last(call, run, floor, None, call.database.head_fields)
    if newest is None and floor > 1:
        newest = await _last(call, run, 1, None, call.database.head_fields)
    if newest is None:
        return None
    head = head_of(newest, run.name)
    if head.is_blank:
        call.database.forget()
        # Its tombstone was written before it was emptied, and so is there by now.
        if await _last(call, run, head.place + 1, None, call.database.head_fields):
            raise TryAgain
        raise StoreCorrupt(
            f"{run.name}: the events up to {head.version} were taken away, and the run was not deleted: {REMEDY}"
        )
    call.database.heads[run.key] = head
    return head


async def _last(
    call: Call, run: Run, low: int, high: int | None, fields: Mapping[str, int] | None = None
) -> Document | None:
    """The last commit of a run that begins at the places from ``low`` to ``high``."""
    bounds = {"$gte": low} if high is None else {"$gte": low, "$lte": high}
    where = {"k": run.key, "s": bounds}
    last = await call.find_one(call.database.commits, where, sort={"s": -1}, fields=fields)
    if last is not None and fields is WITHOUT_EVENTS:
        compare([last], run.name, required=call.database.all_have_sums)
    return last


async def current_head(call: Call, run: Run) -> Head:
    """The newest commit of a run; one of all zeros when it has none. Raises ``RunExpired``, ``TryAgain``."""
    head = await latest_head(call, run)
    check_expiry(run.agent, run.run, head.end)
    return head


async def latest_head(call: Call, run: Run) -> Head:
    """``current_head`` of a run whose end may have come."""
    head = await find_head(call, run)
    if head is None or head.is_empty:
        removed = await removed_life(call, run, head)
        if removed is not None:
            return removed
    return head or Head()


async def removed_life(call: Call, run: Run, head: Head | None) -> Head | None:
    """The end of a run's life, after the tombstone ``head`` if there is one, of which the server removed every commit.

    None where there was no such life. Its version is one that the run cannot have been beyond.
    """
    document = await call.find_one(call.database.runs, {"_id": run.key})
    if document is None:
        return None
    before = head or Head()
    if call.database.settings.verify:
        compare_run(document, run.name)
    # The document of a life that a deletion ended has no end.
    end = document.get("end") if document.get("g", 0) == before.deletions else None
    if end is None or end > now_microseconds():
        return None
    version = max(int(document.get("ceiling", 0)), before.version + 1)
    return Head(0, version, before.deletions, before.base, 0, int(end))


async def load(
    call: Call, agent: str, run: str, after: int, types: Iterable[str] | None, limit: int | None
) -> Snapshot:
    """See ``Store.load_run``."""
    wanted = check_load(agent, run, after, types, limit)
    return await call.until_done(lambda: _load(call, Run.of(agent, run), after, wanted, limit))


async def _load(call: Call, run: Run, after: int, types: frozenset[str] | None, limit: int | None) -> Snapshot:
    if after == 0 and types is None and limit is None and call.database.heads.get(run.key) is None:
        whole = await _whole(call, run)
        if whole is not None:
            return whole
    head = await current_head(call, run)
    if after > head.version:
        raise CursorOutOfRange(f"{run.name} is at version {head.version}; there is nothing after seq {after} yet")
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


async def _whole(call: Call, run: Run) -> Snapshot | None:
    """All of a run of which nothing is known, in two queries; None where there is more to it than that."""
    documents = await _range(call, run, 1, None)
    if not documents or not all(document["n"] for document in documents):
        return None
    head = head_of(documents[-1], run.name)
    check_expiry(run.agent, run.run, head.end)
    _check_chain(call, documents, head, run, 1, head.base)
    call.database.heads[run.key] = head
    meta = meta_of(documents[0], run.name)
    log = decode_events(documents, run.name, 0)
    return Snapshot(run.agent, run.run, log, version=head.version, meta=meta, first_seq=head.base + 1)


async def commits_of(call: Call, run: Run, head: Head, after: int, upper: int) -> list[Document]:
    """The commits that hold the events after seq ``after``, which is not before ``head.base``, up to ``upper``."""
    if after >= upper:
        return []
    try:
        return await _gapless(call, run, head, after, upper)
    except TryAgain:
        await _check_deleted(call, run, head)
        raise StoreCorrupt(f"{run.name}: of the events {after + 1} to {upper}, some are missing: {REMEDY}") from None


async def _check_deleted(call: Call, run: Run, head: Head) -> None:
    """Look whether a run, of which something was missing, was deleted since ``head``. Raises ``TryAgain`` if so."""
    newest = await current_head(call, run)
    if newest.deletions != head.deletions or newest.version < head.version:
        raise TryAgain


async def _gapless(call: Call, run: Run, head: Head, after: int, upper: int) -> list[Document]:
    """``commits_of``; raises ``TryAgain`` where some are missing."""
    documents = await _range(call, run, after + head.deletions + 1, upper + head.deletions)
    if not documents or documents[0]["v"] - documents[0]["n"] != after:
        # The first event stands inside a commit that begins before it.
        before = await _last(call, run, 1, after + head.deletions)
        documents = [*_sound(call, run, [before] if before is not None else []), *documents]
    if not documents:
        raise TryAgain
    first = documents[0]
    _check_chain(call, documents, head, run, first["s"], first["v"] - first["n"])
    if not first["v"] - first["n"] <= after < first["v"] or documents[-1]["v"] < upper:
        raise TryAgain
    return documents


def _sound(call: Call, run: Run, documents: list[Document]) -> list[Document]:
    """Commits of a run with their events, checked; where that was asked for, against their sums too."""
    checked(documents, run.name)
    if call.database.settings.verify:
        compare(documents, run.name, required=call.database.all_have_sums)
    return documents


async def _range(call: Call, run: Run, low: int, high: int | None) -> list[Document]:
    """The commits that begin at the places from ``low`` to ``high``; None: to the end."""
    documents: list[Document] = []
    while high is None or low <= high:
        bounds = {"$gte": low} if high is None else {"$gte": low, "$lte": high}
        more = await call.find(call.database.commits, {"k": run.key, "s": bounds}, sort={"s": 1})
        if not more:
            break
        documents.extend(_sound(call, run, more))
        low = head_of(more[-1], run.name).next_place
        if high is None:
            # Up to what is the newest now: asking for more until there is none might never end while others append.
            newest = await _last(call, run, low, None, call.database.head_fields)
            if newest is None:
                break
            high = head_of(newest, run.name).place
    return documents


def _check_chain(call: Call, documents: Sequence[Document], head: Head, run: Run, at: int, version: int) -> None:
    """Check that commits follow each other from the place ``at``, behind the event at seq ``version``.

    Raises ``TryAgain`` when one was deleted, ``StoreCorrupt``.
    """
    has_sums = call.database.all_have_sums
    for document in documents:
        if document.get("g", 0) != head.deletions or not document["n"]:
            raise TryAgain
        if document["s"] != at or document["v"] - document["n"] != version:
            raise StoreCorrupt(
                f"{run.name}: event {version + 1} is missing: what is found behind event {version} is not the commit "
                f"that belongs at place {at} of the run's chain: {REMEDY}"
            )
        version = document["v"]
        if "sums" in document:
            has_sums = True
        elif has_sums:
            raise StoreCorrupt(f"{run.name}: the commit of the events up to {version} has lost its checksums: {REMEDY}")
        at = version + head.deletions + 1


async def _of_types(
    call: Call, run: Run, head: Head, after: int, types: frozenset[str], limit: int | None
) -> tuple[list[Event], list[Event], int]:
    """The events of some types, the redaction markers in what was examined, and the last seq examined."""
    wanted = types | {_REDACTION}
    low = max(after, head.base)
    events: list[Event] = []
    while low < head.version:
        if all(map(is_sought, types)):
            upper = head.version
            more = await _sought(call, run, head, low, wanted)
        else:
            upper = head.version if limit is None else min(head.version, low + max(limit, _CHUNK))
            commits = await commits_of(call, run, head, low, upper)
            more = decode_events(commits, run.name, low, upper, wanted)
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


async def _sought(call: Call, run: Run, head: Head, after: int, wanted: frozenset[str]) -> list[Event]:
    """The events after ``after`` of types that reads seek by: one range of the index for each type."""
    first = await _last(call, run, 1, after + head.deletions + 1, {"s": 1})
    high = head.version + head.deletions
    commits: dict[int, Document] = {}
    for event_type in sorted(wanted):
        low = int(first["s"]) if first is not None else 1
        while low <= high:
            # ``k`` says which shard to ask, and is a part of ``t``.
            where = {"k": run.key, "t": type_key(run.key, event_type), "ts": {"$gte": low, "$lte": high}}
            more = await call.find(call.database.commits, where, sort={"ts": 1}, hint=SOUGHT_TYPES)
            if not more:
                break
            commits.update((document["s"], document) for document in _sound(call, run, more))
            low = more[-1]["s"] + 1
    # A commit that a deletion emptied is in this index no more.
    if (await current_head(call, run)).deletions != head.deletions:
        raise TryAgain
    chosen = [commits[at] for at in sorted(commits)]
    return decode_events(chosen, run.name, after, head.version, wanted)


async def meta_at(call: Call, run: Run, head: Head) -> dict[str, JsonValue]:
    """The meta of a run, from the commit that created it."""
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
    meta = meta_of(document, run.name)
    call.database.metas[run.key, head.deletions] = encode_json(meta)
    return meta


async def events_at(call: Call, run: Run, head: Head, seqs: Sequence[int]) -> dict[int, tuple[Event, Document]]:
    """The events at ``seqs`` with the commits that hold them, by seq; those the run does not hold are left out."""
    found: dict[int, tuple[Event, Document]] = {}
    for seq in sorted(set(seqs)):
        if seq in found or not head.base < seq <= head.version:
            continue
        (commit,) = await commits_of(call, run, head, seq - 1, seq)
        # Decoding takes over what is mutable in a document, and whoever changes the commit needs it as it is.
        for event in decode_events([deepcopy(commit)], run.name, 0):
            found[event.seq] = (event, commit)
    return {seq: found[seq] for seq in seqs if seq in found}


async def find_ids(call: Call, run: Run, ids: Sequence[str]) -> list[Document]:
    """The commits of a run that hold events with these ids."""
    missing: list[str] = sorted(ids)
    documents: list[Document] = []
    while missing:
        # As many as a command holds, however long they are.
        wanted = missing[:_IDS_AT_ONCE]
        where = {"k": run.key, "events.id": {"$in": wanted}}
        more = _sound(call, run, (await call.find(call.database.commits, where)))
        stored: set[object] = {_id_of(event) for document in more for event in document["events"]}
        if stored.isdisjoint(wanted):
            missing = missing[_IDS_AT_ONCE:]
            continue
        documents.extend(more)
        # A reply holds 16 MiB at most, and there may be more.
        missing = [event_id for event_id in missing if event_id not in stored]
    return documents


def _id_of(event: object) -> object:
    return cast("Document", event).get("id") if isinstance(event, dict) else None
