"""Appending: one document behind the newest commit.

The unique index on ``k`` and ``s`` lets one of several writers through, the one on ``k`` and ``events.id`` keeps an
event from being stored twice, and whoever is refused looks again. Which of the two refused is not asked: servers differ
in what they report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import bson
import msgspec
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from agent_memory_log.backend_kit import (
    Append,
    Prepared,
    check_expiry,
    check_markers,
    check_version,
    expiry_of,
    new_in_batch,
    now_microseconds,
    placed,
)
from agent_memory_log.errors import EventTooLarge, InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.store import AppendResult
from agent_memory_log_mongo.documents.commits import (
    Head,
    Run,
    commit_document,
    decode_events,
    encode_commit,
    meta_fields,
)
from agent_memory_log_mongo.engine.call import Call, TryAgain
from agent_memory_log_mongo.operations.reading import current_head, events_at, find_ids, latest_head
from agent_memory_log_mongo.operations.removing import empty_deleted
from agent_memory_log_mongo.operations.run_documents import announce, mend, raise_ceiling
from agent_memory_log_mongo.settings import MAX_DOCUMENT_BYTES

LAST_SEQ = 2**53 - 1
"""The largest seq: what JSON, and queries in JavaScript, hold exactly."""

_MAX_META_BYTES = MAX_DOCUMENT_BYTES - 16 * 1024
"""The largest meta: beside it, the run's document holds the ids, and in a list of runs the newest commit's numbers."""


class _Attempt(msgspec.Struct, frozen=True, gc=False):
    """An insert whose outcome may come to light later: behind which version, of what, and what was stored before.

    ``contested`` is the run as it created it, where another writer's document of it stands.
    """

    start: int
    new: Sequence[Prepared]
    stored: Mapping[str, Event]
    contested: Head | None


async def append(call: Call, wanted: Append) -> AppendResult:
    """See ``Store.append_events``. The appends of one handle to a run wait for each other, and do not collide."""
    target = Run.of(wanted.agent, wanted.run)
    lock = call.database.lock(target.key)
    await call.acquire(lock, target.name)
    try:
        call.check_open()
        if not wanted.batch:
            head = await call.until_done(lambda: latest_head(call, target))
            return AppendResult(head.version, 0, ())
        result = await _Appending(call, target, wanted).steps()
    finally:
        lock.release()
    if result.inserted:
        call.database.signals.notify(target.key)
    return result


class _Appending:
    """An append under way."""

    def __init__(self, call: Call, run: Run, wanted: Append) -> None:
        self._call = call
        self._wanted = wanted
        self._run = run
        self._new: Sequence[Prepared] = wanted.batch if len(wanted.batch) == 1 else new_in_batch(wanted.batch, {})
        self._known: Head | None = None
        self._refused_behind: Head | None = None
        # By the commit's id, so that one whose reply was lost is known again when it is met.
        self._unknown: dict[ObjectId, _Attempt] = {}
        self._stored: dict[str, Event] = {}

    async def steps(self) -> AppendResult:
        """Insert, and as long as that is refused, look again."""
        rest = self._call.database.contention.rest(self._run.key)
        if rest:
            await self._call.pause(rest)
        # Otherwise what is remembered may be old, the run deleted and created anew since, and of that life nothing be
        # left.
        known = self._call.database.heads.get(self._run.key)
        if not rest and self._wanted.first_seq is None and known is not None and self._is_usable(known):
            self._known = known
        return await self._call.until_done(self._attempt)

    async def _attempt(self) -> AppendResult:
        """Insert behind the newest commit. Raises ``TryAgain`` where that was refused, or may have been."""
        wanted, run = self._wanted, self._run
        head, self._known = self._known, None
        if head is None:
            head = await current_head(self._call, run)
        # Ids are looked up only where they decide; elsewhere the index refuses what is stored already.
        if self._unknown or head == self._refused_behind or not self._is_expected(head) or wanted.first_seq is not None:
            done = await self._look_up(head)
            if done is not None:
                return done
            self._new = new_in_batch(wanted.batch, self._stored)
            if not self._new:
                version = max(head.version, *[event.seq for event in self._stored.values()])
                return AppendResult(version, 0, tuple(self._stored[event.event_id] for event in wanted.batch))
        events = head.version - head.base
        check_version(run.name, head.version, events, wanted.expected_version, wanted.first_seq)
        done = await self._insert(head, self._new)
        if done is not None:
            return done
        self._refused_behind = head
        rest = self._call.database.contention.refused(run.key)
        # Whoever does not know what became of an insert has rested already.
        raise TryAgain(0 if self._unknown else rest)

    def _is_usable(self, head: Head) -> bool:
        return self._is_expected(head) and not head.is_empty and not _is_over(head)

    def _is_expected(self, head: Head) -> bool:
        return self._wanted.expected_version is None or self._wanted.expected_version == head.version

    async def _insert(self, head: Head, new: Sequence[Prepared]) -> AppendResult | None:
        """Store ``new`` behind ``head``; None when that was refused, or nobody knows whether it was."""
        call, run, wanted = self._call, self._run, self._wanted
        creating, behind, meta = head.is_empty, head, wanted.meta or {}
        if creating:
            start = head.version if wanted.first_seq is None else wanted.first_seq - 1
            end, now = expiry_of(meta), now_microseconds()
            check_expiry(run.agent, run.run, end, now)
            _check_meta_size(run, meta)
            behind = Head(head.place, start, head.deletions, start, now, end)
        if behind.version + len(new) > LAST_SEQ:
            raise InvalidArgument(
                f"{run.name} would be at version {behind.version + len(new):,}; the last seq is {LAST_SEQ:,}"
            )
        if any(type(event.data) is Redaction for event in new):
            try:
                await self._check_markers(head, new, behind.version)
            except TryAgain:
                return None  # what is remembered was deleted since, and looking for it again would never end
        commit_id = ObjectId()
        document = commit_document(run, commit_id, head.next_place, behind, new, meta if creating else None)
        encoded = encode_commit(document, f"the append of {len(new)} events", "append it in parts")
        contested = False
        if creating:
            contested = await announce(call, run, behind, meta, len(new))
        elif behind.end is not None:
            await raise_ceiling(call, run, behind.version + len(new), behind.base)
        stored = await call.insert_once(call.database.commits, RawBSONDocument(encoded))
        after = msgspec.structs.replace(
            behind, place=head.next_place, version=behind.version + len(new), count=len(new)
        )
        if stored is None:
            self._unknown[commit_id] = _Attempt(behind.version, new, self._stored, after if contested else None)
        if not stored:
            return None
        call.database.heads[run.key] = after
        call.database.contention.stored(run.key)
        if contested:
            await mend(call, run, after, meta)
        return placed(behind.version, wanted.batch, new, self._stored)

    async def _look_up(self, head: Head) -> AppendResult | None:
        """Find which of the batch the run already holds; the result, if it was this very call that stored it."""
        run, wanted = self._run, self._wanted
        ids = {event.event_id for event in wanted.batch}
        self._stored = {}
        documents = await find_ids(self._call, run, sorted(ids))
        if any(document["v"] <= head.base for document in documents):
            # They belong to a deleted run, and whoever deleted it did not live to empty its commits, or is about to.
            await empty_deleted(self._call, run, head)
        for document in documents:
            attempt = self._unknown.get(document["_id"])
            if attempt is not None:
                if attempt.contested is not None:
                    await mend(self._call, run, attempt.contested, wanted.meta or {})
                return placed(attempt.start, wanted.batch, attempt.new, attempt.stored)
            if document["v"] > head.base:
                events = decode_events([document], run.name, 0)
                self._stored.update({event.event_id: event for event in events if event.event_id in ids})
        return None

    async def _check_markers(self, head: Head, new: Sequence[Prepared], start: int) -> None:
        named = [seq for event in new if isinstance(event.data, Redaction) for seq in event.data.seqs]
        found = await events_at(self._call, self._run, head, named)
        check_markers(new, start, {seq: event for seq, (event, _) in found.items()}.get)


def _check_meta_size(run: Run, meta: Mapping[str, JsonValue]) -> None:
    size = len(bson.encode(meta_fields(meta)))
    if size > _MAX_META_BYTES:
        raise EventTooLarge(
            f"{run.name}: meta has {size:,} bytes; the limit is {_MAX_META_BYTES:,}", size=size, limit=_MAX_META_BYTES
        )


def _is_over(head: Head) -> bool:
    return head.end is not None and head.end <= now_microseconds()
