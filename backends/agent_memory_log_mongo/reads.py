"""Reading: what a store is asked, as operations on commits.

Every query is a range of one index behind an equality (see ``schema.py``). A run is read up to the newest commit found
first, so that a snapshot is the run at one instant; when a deletion comes between two queries, it is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TypeVar, cast

from agent_memory_log.backend_kit import check_expiry, now_microseconds
from agent_memory_log.errors import CursorOutOfRange, StoreCorrupt
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import EventType
from agent_memory_log.snapshot import Snapshot, redactions_in
from agent_memory_log_mongo.documents import (
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
from agent_memory_log_mongo.place import SOUGHT_TYPES, Place
from agent_memory_log_mongo.steps import Pause, Steps, find
from agent_memory_log_mongo.sums import REMEDY, WITHOUT_EVENTS, compare, compare_run

_T = TypeVar("_T")

_REDACTION = EventType.REDACTION.value
_IDS_AT_ONCE = 2_000
_CHUNK = 512
"""How many events a filtered read with a limit walks at a time."""


class Interfered(Exception):  # never leaves this package
    """A deletion came between two queries: begin again."""


def undisturbed(operation: Callable[[], Steps[_T]]) -> Steps[_T]:
    """Carry out an operation that may have to begin again."""
    while True:
        try:
            return (yield from operation())
        except Interfered:
            yield Pause()


def find_head(place: Place, run: Run) -> Steps[Head | None]:
    """The newest commit of a run, None when it has none. Raises ``Interfered``, ``DecodeError``."""
    known = place.known(run.key)
    # With what is remembered the range is as short as what is new; without, it is the whole run's, from its far end.
    floor = known.place if known is not None else 1
    found = yield from _last(place, run, floor, None, place.head_fields)
    if not found and floor > 1:
        found = yield from _last(place, run, 1, None, place.head_fields)
    if not found:
        return None
    head = head_of(found[0], run.name)
    if head.is_blank:
        place.forget()
        # Its tombstone was written before it was emptied, and so is there by now.
        if (yield from _last(place, run, head.place + 1, None, place.head_fields)):
            raise Interfered
        raise StoreCorrupt(
            f"{run.name}: the events up to {head.version} were taken away, and the run was not deleted: {REMEDY}"
        )
    place.remember(run.key, head)
    return head


def _last(
    place: Place, run: Run, low: int, high: int | None, fields: Mapping[str, int] | None = None
) -> Steps[list[Document]]:
    """The last commit of a run that begins at the places from ``low`` to ``high``."""
    bounds = {"$gte": low} if high is None else {"$gte": low, "$lte": high}
    where = {"k": run.key, "s": bounds}
    documents = yield from find(place.commits, where, place.level, sort={"s": -1}, limit=1, fields=fields)
    if fields is WITHOUT_EVENTS:
        compare(documents, run.name, required=place.all_have_sums)
    return documents


def current_head(place: Place, run: Run) -> Steps[Head]:
    """The newest commit of a run; one of all zeros when it has none. Raises ``RunExpired``, ``Interfered``."""
    head = yield from latest_head(place, run)
    check_expiry(run.agent, run.run, head.end)
    return head


def latest_head(place: Place, run: Run) -> Steps[Head]:
    """``current_head`` of a run whose end may have come."""
    head = yield from find_head(place, run)
    if head is None or head.is_empty:
        removed = yield from removed_life(place, run, head)
        if removed is not None:
            return removed
    return head or Head()


def removed_life(place: Place, run: Run, head: Head | None) -> Steps[Head | None]:
    """The end of a run's life, after the tombstone ``head`` if there is one, of which the server removed every commit.

    None where there was no such life. Its version is one that the run cannot have been beyond.
    """
    found = yield from find(place.runs, {"_id": run.key}, place.level, limit=1)
    before = head or Head()
    if place.settings.verify and found:
        compare_run(found[0], run.name)
    # The document of a life that a deletion ended has no end.
    end = found[0].get("end") if found and found[0].get("g", 0) == before.deletions else None
    if end is None or end > now_microseconds():
        return None
    version = max(int(found[0].get("ceiling", 0)), before.version + 1)
    return Head(0, version, before.deletions, before.base, 0, int(end))


def load(place: Place, run: Run, after: int, types: frozenset[str] | None, limit: int | None) -> Steps[Snapshot]:
    """See ``Store.load_run``."""
    return undisturbed(lambda: _load(place, run, after, types, limit))


def _load(place: Place, run: Run, after: int, types: frozenset[str] | None, limit: int | None) -> Steps[Snapshot]:
    if after == 0 and types is None and limit is None and place.known(run.key) is None:
        whole = yield from _whole(place, run)
        if whole is not None:
            return whole
    head = yield from current_head(place, run)
    if after > head.version:
        raise CursorOutOfRange(f"{run.name} is at version {head.version}; there is nothing after seq {after} yet")
    redactions: dict[int, str] | None = None
    if types is None:
        first = max(after, head.base)
        upper = head.version if limit is None else min(head.version, first + limit)
        log = decode_events((yield from commits_of(place, run, head, first, upper)), run.name, first, upper)
        last_seq = upper if upper > first else head.version
    else:
        log, markers, last_seq = yield from _of_types(place, run, head, after, types, limit)
        redactions = redactions_in(markers)
    return Snapshot(
        run.agent,
        run.run,
        log,
        version=head.version,
        last_seq=last_seq,
        meta=(yield from meta_at(place, run, head)),
        after=after,
        types=types,
        first_seq=head.base + 1,
        redactions=redactions,
    )


def _whole(place: Place, run: Run) -> Steps[Snapshot | None]:
    """All of a run of which nothing is known, in two queries; None where there is more to it than that."""
    documents = yield from _range(place, run, 1, None)
    if not documents or not all(document["n"] for document in documents):
        return None
    head = head_of(documents[-1], run.name)
    check_expiry(run.agent, run.run, head.end)
    _check_chain(place, documents, head, run, 1, head.base)
    place.remember(run.key, head)
    meta = meta_of(documents[0], run.name)
    log = decode_events(documents, run.name, 0)
    return Snapshot(run.agent, run.run, log, version=head.version, meta=meta, first_seq=head.base + 1)


def commits_of(place: Place, run: Run, head: Head, after: int, upper: int) -> Steps[list[Document]]:
    """The commits that hold the events after seq ``after``, which is not before ``head.base``, up to ``upper``."""
    if after >= upper:
        return []
    try:
        return (yield from _gapless(place, run, head, after, upper))
    except Interfered:
        yield from _check_deleted(place, run, head)
        raise StoreCorrupt(f"{run.name}: of the events {after + 1} to {upper}, some are missing: {REMEDY}") from None


def _check_deleted(place: Place, run: Run, head: Head) -> Steps[None]:
    """Look whether a run, of which something was missing, was deleted since ``head``. Raises ``Interfered`` if so."""
    newest = yield from current_head(place, run)
    if newest.deletions != head.deletions or newest.version < head.version:
        raise Interfered


def _gapless(place: Place, run: Run, head: Head, after: int, upper: int) -> Steps[list[Document]]:
    """``commits_of``; raises ``Interfered`` where some are missing."""
    documents = yield from _range(place, run, after + head.deletions + 1, upper + head.deletions)
    if not documents or documents[0]["v"] - documents[0]["n"] != after:
        # The first event stands inside a commit that begins before it.
        before = yield from _last(place, run, 1, after + head.deletions)
        documents = [*_sound(place, run, before), *documents]
    if not documents:
        raise Interfered
    first = documents[0]
    _check_chain(place, documents, head, run, first["s"], first["v"] - first["n"])
    if not first["v"] - first["n"] <= after < first["v"] or documents[-1]["v"] < upper:
        raise Interfered
    return documents


def _sound(place: Place, run: Run, documents: list[Document]) -> list[Document]:
    """Commits of a run with their events, checked; where that was asked for, against their sums too."""
    checked(documents, run.name)
    if place.settings.verify:
        compare(documents, run.name, required=place.all_have_sums)
    return documents


def _range(place: Place, run: Run, low: int, high: int | None) -> Steps[list[Document]]:
    """The commits that begin at the places from ``low`` to ``high``; None: to the end."""
    documents: list[Document] = []
    while high is None or low <= high:
        bounds = {"$gte": low} if high is None else {"$gte": low, "$lte": high}
        more = yield from find(place.commits, {"k": run.key, "s": bounds}, place.level, sort={"s": 1})
        if not more:
            break
        documents.extend(_sound(place, run, more))
        low = head_of(more[-1], run.name).next_place
        if high is None:
            # Up to what is the newest now: asking for more until there is none might never end while others append.
            newest = yield from _last(place, run, low, None, place.head_fields)
            if not newest:
                break
            high = head_of(newest[0], run.name).place
    return documents


def _check_chain(place: Place, documents: Sequence[Document], head: Head, run: Run, at: int, version: int) -> None:
    """Check that commits follow each other from the place ``at``, behind the event at seq ``version``.

    Raises ``Interfered`` when one was deleted, ``StoreCorrupt``.
    """
    has_sums = place.all_have_sums
    for document in documents:
        if document.get("g", 0) != head.deletions or not document["n"]:
            raise Interfered
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


def _of_types(
    place: Place, run: Run, head: Head, after: int, types: frozenset[str], limit: int | None
) -> Steps[tuple[list[Event], list[Event], int]]:
    """The events of some types, the redaction markers in what was examined, and the last seq examined."""
    wanted = types | {_REDACTION}
    low = max(after, head.base)
    found: list[Event] = []
    while low < head.version:
        if all(map(is_sought, types)):
            upper = head.version
            more = yield from _sought(place, run, head, low, wanted)
        else:
            upper = head.version if limit is None else min(head.version, low + max(limit, _CHUNK))
            commits = yield from commits_of(place, run, head, low, upper)
            more = decode_events(commits, run.name, low, upper, wanted)
        found.extend(more)
        low = upper
        if limit is not None and sum(event.type in types for event in found) >= limit:
            break
    log = [event for event in found if event.type in types]
    last_seq = head.version
    if limit is not None and len(log) >= limit:
        log = log[:limit]
        last_seq = log[-1].seq
    return log, [event for event in found if event.type == _REDACTION and event.seq <= last_seq], last_seq


def _sought(place: Place, run: Run, head: Head, after: int, wanted: frozenset[str]) -> Steps[list[Event]]:
    """The events after ``after`` of types that reads seek by: one range of the index for each type."""
    first = yield from _last(place, run, 1, after + head.deletions + 1, {"s": 1})
    high = head.version + head.deletions
    commits: dict[int, Document] = {}
    for event_type in sorted(wanted):
        low = int(first[0]["s"]) if first else 1
        while low <= high:
            # ``k`` says which shard to ask, and is a part of ``t``.
            where = {"k": run.key, "t": type_key(run.key, event_type), "ts": {"$gte": low, "$lte": high}}
            more = yield from find(place.commits, where, place.level, sort={"ts": 1}, hint=SOUGHT_TYPES)
            if not more:
                break
            commits.update((document["s"], document) for document in _sound(place, run, more))
            low = more[-1]["s"] + 1
    # A commit that a deletion emptied is in this index no more.
    if (yield from current_head(place, run)).deletions != head.deletions:
        raise Interfered
    chosen = [commits[at] for at in sorted(commits)]
    return decode_events(chosen, run.name, after, head.version, wanted)


def meta_at(place: Place, run: Run, head: Head) -> Steps[dict[str, JsonValue]]:
    """The meta of a run, from the commit that created it."""
    if head.is_empty:
        return {}
    meta = place.meta(run.key, head.deletions)
    if meta is None:
        verify = place.settings.verify
        fields = place.head_fields if verify else {**HEAD_FIELDS, "meta": 1, "meta_json": 1}
        found = yield from _last(place, run, 1, head.base + head.deletions + 1, fields)
        first = head_of(found[0], run.name) if found else Head()
        if not first.count or first.deletions != head.deletions:
            yield from _check_deleted(place, run, head)
            raise StoreCorrupt(f"{run.name}: event {head.base + 1}, the run's first, is missing: {REMEDY}")
        meta = meta_of(found[0], run.name)
        place.remember_meta(run.key, head.deletions, meta)
    return meta


def events_at(place: Place, run: Run, head: Head, seqs: Sequence[int]) -> Steps[dict[int, tuple[Event, Document]]]:
    """The events at ``seqs`` with the commits that hold them, by seq; those the run does not hold are left out."""
    found: dict[int, tuple[Event, Document]] = {}
    for seq in sorted(set(seqs)):
        if seq in found or not head.base < seq <= head.version:
            continue
        (commit,) = yield from commits_of(place, run, head, seq - 1, seq)
        # Decoding takes over what is mutable in a document, and whoever changes the commit needs it as it is.
        for event in decode_events([deepcopy(commit)], run.name, 0):
            found[event.seq] = (event, commit)
    return {seq: found[seq] for seq in seqs if seq in found}


def find_ids(place: Place, run: Run, ids: Sequence[str]) -> Steps[list[Document]]:
    """The commits of a run that hold events with these ids."""
    missing: list[str] = sorted(ids)
    documents: list[Document] = []
    while missing:
        # As many as a command holds, however long they are.
        asked = missing[:_IDS_AT_ONCE]
        where = {"k": run.key, "events.id": {"$in": asked}}
        more = _sound(place, run, (yield from find(place.commits, where, place.level)))
        found: set[object] = {_id_of(one) for document in more for one in document["events"]}
        if found.isdisjoint(asked):
            missing = missing[_IDS_AT_ONCE:]
            continue
        documents.extend(more)
        # A reply holds 16 MiB at most, and there may be more.
        missing = [event_id for event_id in missing if event_id not in found]
    return documents


def _id_of(event: object) -> object:
    return cast("Document", event).get("id") if isinstance(event, dict) else None
