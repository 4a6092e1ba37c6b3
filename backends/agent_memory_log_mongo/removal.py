"""Taking away: redactions, deletions, and runs whose end has come.

A deletion is a commit too, a tombstone at the next place of the chain, so that it is atomic, and a writer who does not
know of it yet is refused. The commits before it are emptied then, and stay: were they removed, a writer who knows an
old version could give its seqs again.
"""

from __future__ import annotations

from collections.abc import Sequence

import bson
import msgspec
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from agent_memory_log.backend_kit import Prepared, now_microseconds, redaction_of
from agent_memory_log.errors import CursorOutOfRange, EventTooLarge
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.store import AppendResult, ExpireResult
from agent_memory_log_mongo.documents import (
    BLANKING,
    Document,
    Head,
    Run,
    commit_document,
    encode_commit,
    event_document,
    tombstone_document,
    type_key,
)
from agent_memory_log_mongo.listing import RUNS_AT_ONCE, raise_ceiling, runs_with_heads, unlist
from agent_memory_log_mongo.place import CHAIN, Place
from agent_memory_log_mongo.reads import (
    Interfered,
    current_head,
    events_at,
    find_head,
    find_ids,
    removed_life,
    undisturbed,
)
from agent_memory_log_mongo.settings import MAX_DOCUMENT_BYTES
from agent_memory_log_mongo.steps import Onward, Pause, Steps, find, insert_once, update
from agent_memory_log_mongo.sums import encode_with_sums, event_sum

REMOVAL_DELAY_SECONDS = 24 * 60 * 60
"""How long after a run's end the server begins to remove its commits, one by one."""

_MARGIN_MICROSECONDS = 60 * 60 * 1_000_000
"""How far the clocks of this machine and of the server may be apart."""

_Update = tuple[Document, Document]


def redact(place: Place, run: Run, seqs: tuple[int, ...], reason: str) -> Steps[AppendResult]:
    """See ``Store.redact_events``.

    The marker comes first: should this process die between the two, warm readers have learnt of all that was named, and
    the call, made again, does the rest.
    """
    attempts: dict[str, _Planned] = {}
    planned: _Planned | None
    while True:
        # Each attempt was refused, or nobody knows: then its marker may be there by now.
        found = yield from find_ids(place, run, list(attempts))
        if found:
            seq = int(found[0]["v"])
            planned = attempts[found[0]["events"][0]["id"]]
            break
        head = yield from undisturbed(lambda: current_head(place, run))
        try:
            planned = yield from _plan(place, run, head, seqs, reason)
        except Interfered:
            yield Pause()
            continue
        if planned is None:
            return AppendResult(head.version, 0, ())
        document = commit_document(run, ObjectId(), head.next_place, head, [planned.marker])
        encoded = encode_commit(
            document, f"the marker that names {len(seqs)} events", "name fewer at once, or give a shorter reason"
        )
        if head.end is not None:
            yield from raise_ceiling(place, run, head.version + 1, head.base)
        attempts[planned.marker.event_id] = planned
        if (yield from insert_once(place.commits, RawBSONDocument(encoded), place.concern)):
            seq = head.version + 1
            place.remember(run.key, msgspec.structs.replace(head, place=head.next_place, version=seq, count=1))
            break
        yield Pause()
    for where, change in planned.updates:
        yield from update(place.commits, where, change, place.concern, hint=CHAIN)
    return AppendResult(seq, 1, (planned.marker.placed(seq),))


class _Planned(msgspec.Struct, frozen=True):
    marker: Prepared
    updates: list[_Update]


def _plan(place: Place, run: Run, head: Head, seqs: Sequence[int], reason: str) -> Steps[_Planned | None]:
    """What a redaction behind ``head`` comes to; None when all of it is redacted already."""
    for seq in seqs:
        if not head.base < seq <= head.version:
            raise CursorOutOfRange(f"{run.name} holds no event {seq}, and so none was redacted")
    found = yield from events_at(place, run, head, seqs)
    # A marker that is redacted hands on what it named.
    named = [seq for event, _ in found.values() if isinstance(event.data, Redaction) for seq in event.data.seqs]
    found.update((yield from events_at(place, run, head, named)))
    events = {seq: event for seq, (event, _) in found.items()}
    planned = redaction_of([events[seq] for seq in seqs], reason, events.get)
    if planned is None:
        return None
    masks, marker = planned
    return _Planned(marker, _updates(run, [commit for _, commit in found.values()], masks))


def _updates(run: Run, commits: Sequence[Document], masks: Sequence[Prepared]) -> list[_Update]:
    """The updates that put ``masks`` in place of the events they stand for, one for each commit."""
    by_id = {mask.event_id: event_document(mask) for mask in masks}
    updates: dict[int, _Update] = {}
    for commit in commits:
        masked = {number: by_id[event["id"]] for number, event in enumerate(commit["events"]) if event["id"] in by_id}
        if not masked or commit["s"] in updates:
            continue
        events = [masked.get(number, event) for number, event in enumerate(commit["events"])]
        key = type_key(run.key, "redacted")
        sought = [*(one for one in commit.get("t", ()) if one != key), key]
        size = len(bson.encode({**commit, "events": events, "t": sought, "ts": commit["s"]}))
        if size > MAX_DOCUMENT_BYTES:
            raise EventTooLarge(
                f"{run.name}: with this reason, what was appended together up to event {commit['v']} would have "
                f"{size:,} bytes; MongoDB holds {MAX_DOCUMENT_BYTES:,} in a document: give a shorter reason",
                size=size,
                limit=MAX_DOCUMENT_BYTES,
            )
        # A commit that a deletion has emptied meanwhile stays empty.
        where: Document = {"k": run.key, "s": commit["s"], "n": commit["n"]}
        fields: Document = {f"events.{number}": event for number, event in masked.items()}
        if "sums" in commit:
            first = commit["v"] - commit["n"] + 1
            fields |= {f"sums.{number}": event_sum(run.key, first + number, mask) for number, mask in masked.items()}
        change: Document = {
            "$set": {**fields, "ts": commit["s"]},
            "$addToSet": {"t": key},
        }
        updates[commit["s"]] = (where, change)
    return list(updates.values())


def delete(place: Place, run: Run, ended_by: int | None = None) -> Steps[int]:
    """See ``Store.delete_run``; with ``ended_by``, only if its end was at or before that. How many events it held."""
    held = 0
    deletions: int | None = None
    while True:
        head, events = yield from _head_to_delete(place, run)
        if head is None or (ended_by is not None and not head.is_empty and (head.end is None or head.end > ended_by)):
            return 0
        if deletions is not None and head.deletions > deletions:
            break  # it was this call's tombstone that was stored, or another's at the same time
        deletions = head.deletions
        if head.is_empty and head.place:
            break
        held = max(held, events)
        tombstone = RawBSONDocument(encode_with_sums(tombstone_document(run, ObjectId(), head)))
        stored = yield from insert_once(place.commits, tombstone, place.concern)
        place.forget_run(run.key)
        if stored:
            head = Head(head.next_place, head.version, head.deletions + 1, head.version)
            break
        yield Pause()
    # Also where it was deleted before: whoever did that may not have lived to do the rest.
    yield from empty_deleted(place, run, head)
    yield from unlist(place, run, head.deletions)
    return held


def _head_to_delete(place: Place, run: Run) -> Steps[tuple[Head | None, int]]:
    """The newest commit of a run, whether its end has come or not, None for a run that never was; and how many events.

    Where the server has begun to remove commits it is at a version that the run cannot have been beyond.
    """
    head = yield from undisturbed(lambda: find_head(place, run))
    if head is None or head.is_empty:
        return (yield from removed_life(place, run, head)) or head, 0
    held = head.version - head.base
    if head.end is None or now_microseconds() < head.end + REMOVAL_DELAY_SECONDS * 1_000_000 - _MARGIN_MICROSECONDS:
        return head, held
    found = yield from find(place.runs, {"_id": run.key}, place.level, limit=1)
    ceiling = int(found[0].get("ceiling", 0)) if found else 0
    return msgspec.structs.replace(head, version=max(head.version, ceiling)), held


def empty_deleted(place: Place, run: Run, head: Head) -> Steps[None]:
    """Empty the commits of a run before its last deletion."""
    where = {
        "k": run.key,
        "s": {"$lte": head.base + head.deletions},
        "v": {"$lte": head.base},
        "n": {"$gt": 0},
    }
    yield from update(place.commits, where, BLANKING, place.concern, many=True, hint=CHAIN)


def expire(place: Place, before: int, dry_run: bool) -> Steps[ExpireResult]:
    """See ``Store.expire_runs``. There may be many runs: each deletion, and each look for some, has a call's time."""
    runs = events = 0
    low: Document = {"end": {"$lte": before}}
    while True:
        yield Onward()
        found, more = yield from runs_with_heads(place, low, {"end": 1, "_id": 1}, RUNS_AT_ONCE)
        for document, head in found:
            # Of those that ended at the same instant, first the rest.
            low = {"end": document["end"], "_id": {"$gt": document["_id"]}}
            if head is not None and head.is_empty and head.deletions == document.get("g", 0):
                head = None  # noqa: PLW2901  # what the server has removed of it came after that deletion
            if head is not None and (head.end is None or head.end > before):
                continue  # it was deleted, and perhaps created anew, since its document was written
            run = Run(document["agent"], document["run"], document["_id"])
            held = head.version - head.base if head is not None else 0
            if not dry_run:
                yield Onward()
                held = yield from delete(place, run, before)
            runs += 1
            events += held
        if not more and "_id" not in low:
            return ExpireResult(runs, events)
        if not more:
            # Those that ended at that instant are done.
            low = {"end": {"$gt": low["end"], "$lte": before}}
