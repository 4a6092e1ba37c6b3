"""Redacts events, deletes runs, and deletes expired runs.

A deletion inserts a tombstone, a commit at the next position of the chain. So it is atomic, and a writer with an
outdated head is refused. Then the earlier commits are emptied, but they stay. If they were removed, a writer with an
outdated head could assign their seqs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import bson
import msgspec
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from agent_memory_log.backend_kit import (
    Prepared,
    check_before,
    check_ids,
    check_seqs,
    now_microseconds,
    plan_redaction,
)
from agent_memory_log.errors import CursorOutOfRange, EventTooLarge
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.store import AppendResult, ExpireResult
from agent_memory_log_mongo.documents.checksums import encode_with_sums, event_sum
from agent_memory_log_mongo.documents.commits import (
    BLANKING,
    Document,
    Head,
    Run,
    commit_document,
    encode_commit,
    tombstone_document,
    type_key,
)
from agent_memory_log_mongo.documents.events import event_document
from agent_memory_log_mongo.engine.call import Call, TryAgain
from agent_memory_log_mongo.engine.database import CHAIN
from agent_memory_log_mongo.operations.finding import events_at, find_ids
from agent_memory_log_mongo.operations.journal import note_erasure
from agent_memory_log_mongo.operations.reading import (
    current_head,
    find_head,
    removed_life,
)
from agent_memory_log_mongo.operations.run_documents import RUNS_AT_ONCE, raise_ceiling, runs_with_heads, unlist
from agent_memory_log_mongo.settings import MAX_DOCUMENT_BYTES

REMOVAL_DELAY_SECONDS = 24 * 60 * 60
"""The time between a run's end and the removal of its commits by the server."""

_MARGIN_MICROSECONDS = 60 * 60 * 1_000_000
"""The largest supported difference between the clocks of this machine and of the server."""

_Update = tuple[Document, Document]


async def redact(call: Call, agent: str, run: str, seqs: Iterable[int], reason: str) -> AppendResult:
    """Redact events: append a marker, then replace the content.

    If this process dies between the two steps, readers already apply the marker, and a repeated call finishes the work.
    """
    check_ids(agent, run)
    redacted, seq_list = Run.of(agent, run), check_seqs(seqs)
    attempts: dict[str, _Planned] = {}

    async def attempt() -> AppendResult:
        # An earlier attempt may have stored its marker although its outcome was unknown.
        stored = await find_ids(call, redacted, list(attempts))
        if stored:
            return await _mask(call, attempts[stored[0]["events"][0]["id"]], int(stored[0]["v"]))
        head = await current_head(call, redacted)
        planned = await _plan(call, redacted, head, seq_list, reason)
        if planned is None:
            return AppendResult(head.version, 0, ())
        is_noted = planned.seqs in [earlier.seqs for earlier in attempts.values()]
        attempts[planned.marker.event_id] = planned
        await _insert_marker(call, redacted, head, planned, len(seq_list), is_noted=is_noted)
        return await _mask(call, planned, head.version + 1)

    result = await call.until_done(attempt)
    call.database.signals.notify(redacted.key)
    return result


async def _insert_marker(call: Call, run: Run, head: Head, planned: _Planned, count: int, *, is_noted: bool) -> None:
    document = commit_document(run, ObjectId(), head.next_place, head, [planned.marker])
    encoded = encode_commit(
        document, f"the marker that names {count} events", "redact fewer events at once, or use a shorter reason"
    )
    if not is_noted:
        await note_erasure(call, run, seqs=planned.seqs)
    if head.end is not None:
        await raise_ceiling(call, run, head.version + 1, head.base)
    if not (await call.insert_once(call.database.commits, RawBSONDocument(encoded))):
        raise TryAgain
    call.database.heads[run.key] = msgspec.structs.replace(
        head, place=head.next_place, version=head.version + 1, count=1
    )


async def _mask(call: Call, planned: _Planned, seq: int) -> AppendResult:
    """Replace the content of the events that the marker at ``seq`` names."""
    for where, change in planned.updates:
        await call.update(call.database.commits, where, change, hint=CHAIN)
    return AppendResult(seq, 1, (planned.marker.to_event(seq),))


class _Planned(msgspec.Struct, frozen=True):
    marker: Prepared
    seqs: tuple[int, ...]
    updates: list[_Update]


async def _plan(call: Call, run: Run, head: Head, seqs: Sequence[int], reason: str) -> _Planned | None:
    """Return the marker and the updates of a redaction, or None if all the events are redacted already."""
    for seq in seqs:
        if not head.base < seq <= head.version:
            raise CursorOutOfRange(f"{run.name} has no event {seq}; no event was redacted")
    targets = await events_at(call, run, head, seqs)
    # If a marker is redacted, the new marker also names the events of the old one.
    marker_targets = [
        seq for event, _ in targets.values() if isinstance(event.data, Redaction) for seq in event.data.seqs
    ]
    targets.update(await events_at(call, run, head, marker_targets))
    events = {seq: event for seq, (event, _) in targets.items()}
    planned = plan_redaction([events[seq] for seq in seqs], reason, events.get)
    if planned is None:
        return None
    masks, marker = planned
    assert isinstance(marker.data, Redaction)  # noqa: S101  # plan_redaction returns only this type
    return _Planned(marker, marker.data.seqs, _updates(run, [commit for _, commit in targets.values()], masks))


def _updates(run: Run, commits: Sequence[Document], masks: Sequence[Prepared]) -> list[_Update]:
    """Return the updates that replace events by their ``masks``, one update for each commit."""
    by_id = {mask.event_id: event_document(mask) for mask in masks}
    updates: dict[int, _Update] = {}
    for commit in commits:
        masked = {number: by_id[event["id"]] for number, event in enumerate(commit["events"]) if event["id"] in by_id}
        if not masked or commit["s"] in updates:
            continue
        events = [masked.get(number, event) for number, event in enumerate(commit["events"])]
        key = type_key(run.key, "redacted")
        sought = [*(stored for stored in commit.get("t", ()) if stored != key), key]
        size = len(bson.encode({**commit, "events": events, "t": sought, "ts": commit["s"]}))
        if size > MAX_DOCUMENT_BYTES:
            raise EventTooLarge(
                f"{run.name}: with this reason, the commit up to event {commit['v']} would have {size:,} bytes; "
                f"MongoDB's limit is {MAX_DOCUMENT_BYTES:,}: use a shorter reason",
                size=size,
                limit=MAX_DOCUMENT_BYTES,
            )
        # The filter includes n, so a commit that a deletion has emptied in the meantime stays empty.
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


async def delete(call: Call, agent: str, run: str) -> None:
    """Delete a run."""
    check_ids(agent, run)
    deleted = Run.of(agent, run)
    await _delete(call, deleted)
    call.database.signals.notify(deleted.key)


async def _delete(call: Call, run: Run, ended_by: int | None = None) -> int:
    """Delete a run and return its number of events. With ``ended_by``, delete it only if it ended by that time."""
    count = 0
    deletions: int | None = None

    async def attempt() -> Head | None:
        """Return the head after the deletion, or None if the run must not be deleted."""
        nonlocal count, deletions
        head, events = await _head_to_delete(call, run)
        if head is None or (ended_by is not None and not head.is_empty and (head.end is None or head.end > ended_by)):
            count = 0
            return None
        if deletions is not None and head.deletions > deletions:
            return head  # this call's tombstone was stored, or that of another caller
        deletions = head.deletions
        if head.is_empty and head.place:
            return head
        count = max(count, events)
        if ended_by is None:
            await note_erasure(call, run, up_to=head.version)
        tombstone = RawBSONDocument(encode_with_sums(*tombstone_document(run, ObjectId(), head)))
        stored = await call.insert_once(call.database.commits, tombstone)
        call.database.heads.pop(run.key, None)
        if not stored:
            raise TryAgain
        return Head(head.next_place, head.version, head.deletions + 1, head.version)

    head = await call.until_done(attempt)
    if head is not None:
        # This also finishes an earlier deletion whose process died after it inserted the tombstone.
        await empty_deleted(call, run, head)
        await unlist(call, run, head.deletions)
    return count


async def _head_to_delete(call: Call, run: Run) -> tuple[Head | None, int]:
    """Return the head of a run, even an expired one, and its number of events.

    A run that never existed has no head. If the server may have begun to remove the commits, the head's version
    is an upper bound of the run's version.
    """
    head = await find_head(call, run)
    if head is None or head.is_empty:
        return (await removed_life(call, run, head)) or head, 0
    count = head.version - head.base
    if head.end is None or now_microseconds() < head.end + REMOVAL_DELAY_SECONDS * 1_000_000 - _MARGIN_MICROSECONDS:
        return head, count
    document = await call.find_one(call.database.runs, {"_id": run.key}) or {}
    ceiling = int(document.get("ceiling", 0))
    return msgspec.structs.replace(head, version=max(head.version, ceiling)), count


async def empty_deleted(call: Call, run: Run, head: Head) -> None:
    """Empty the commits of a run from before its last deletion."""
    where = {
        "k": run.key,
        "s": {"$lte": head.base + head.deletions},
        "v": {"$lte": head.base},
        "n": {"$gt": 0},
    }
    await call.update(call.database.commits, where, BLANKING, many=True, hint=CHAIN)


async def expire(call: Call, ended_by: datetime | None, *, dry_run: bool) -> ExpireResult:
    """Delete expired runs.

    There may be many, so each search and each deletion has the full time of a call.
    """
    before = check_before(ended_by)
    result = await _expire(call, before, dry_run=dry_run)
    call.database.signals.notify_all()
    return result


async def _expire(call: Call, before: int, *, dry_run: bool) -> ExpireResult:
    runs = events = 0
    low: Document = {"end": {"$lte": before}}
    while True:
        call.restart()
        ended, more = await runs_with_heads(call, low, {"end": 1, "_id": 1}, RUNS_AT_ONCE)
        for document, head in ended:
            # Continue with the other runs that ended at the same instant.
            low = {"end": document["end"], "_id": {"$gt": document["_id"]}}
            if head is not None and head.is_empty and head.deletions == document.get("g", 0):
                head = None  # noqa: PLW2901  # the server removed the commits after that deletion
            if head is not None and (head.end is None or head.end > before):
                continue  # it was deleted, and perhaps recreated, after its document was written
            run = Run(document["agent"], document["run"], document["_id"])
            count = head.version - head.base if head is not None else 0
            if not dry_run:
                call.restart()
                count = await _delete(call, run, before)
            runs += 1
            events += count
        if not more and "_id" not in low:
            return ExpireResult(runs, events)
        if not more:
            # All runs that ended at that instant are done.
            low = {"end": {"$gt": low["end"], "$lte": before}}
