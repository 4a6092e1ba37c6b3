"""Appends events: inserts one commit after the newest commit of the run.

Two unique indexes protect the run. The index on ``k`` and ``s`` accepts only one of several writers, and the index on
``k`` and ``events.id`` keeps an event from being stored twice. A refused writer reads the run again and retries. It
does not check which index refused, because servers report that differently.
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
    append_result,
    check_expiry,
    check_markers,
    check_version,
    expiry_of,
    new_in_batch,
    now_microseconds,
)
from agent_memory_log.errors import EventTooLarge, InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.store import AppendResult
from agent_memory_log_mongo.documents.commits import LAST_SEQ, Head, Run, commit_document, encode_commit
from agent_memory_log_mongo.documents.events import decode_events, meta_fields
from agent_memory_log_mongo.engine.call import Call, TryAgain
from agent_memory_log_mongo.operations.finding import events_at, find_ids
from agent_memory_log_mongo.operations.journal import note_erasure
from agent_memory_log_mongo.operations.reading import current_head, latest_head
from agent_memory_log_mongo.operations.removing import empty_deleted
from agent_memory_log_mongo.operations.run_documents import announce, correct, raise_ceiling
from agent_memory_log_mongo.settings import MAX_DOCUMENT_BYTES

_MAX_META_BYTES = MAX_DOCUMENT_BYTES - 16 * 1024
"""The size limit of meta.

16 KiB of the largest document stay free for the ids, and for the numbers of the newest commit in a list of runs.
"""


class _Attempt(msgspec.Struct, frozen=True, gc=False):
    """An insert with an unknown outcome.

    Attributes:
        start: the run's version before the insert.
        new: the inserted events.
        stored: the events of the batch that the run already had, by id.
        contested: the head after the insert, if the insert creates the run and another writer had already written the
            run's document; else None.
    """

    start: int
    new: Sequence[Prepared]
    stored: Mapping[str, Event]
    contested: Head | None


async def append(call: Call, request: Append) -> AppendResult:
    """Append events. The appends of one handle to the same run wait for each other, so they do not collide."""
    target = Run.of(request.agent, request.run)
    lock = call.database.lock(target.key)
    await call.acquire(lock, target)
    try:
        call.check_open()
        if not request.batch:
            head = await call.until_done(lambda: latest_head(call, target))
            return AppendResult(head.version, 0, ())
        result = await _Appending(call, target, request).steps()
    finally:
        lock.release()
    if result.inserted:
        call.database.signals.notify(target.key)
    return result


class _Appending:
    """An append in progress."""

    def __init__(self, call: Call, run: Run, request: Append) -> None:
        self._call = call
        self._request = request
        self._run = run
        self._new: Sequence[Prepared] = request.batch if len(request.batch) == 1 else new_in_batch(request.batch, {})
        self._has_markers = any(type(event.data) is Redaction for event in request.batch)
        self._remembered_head: Head | None = None
        self._refused_behind: Head | None = None
        # The key is the commit's id, by which a later read recognizes a commit whose reply was lost.
        self._unknown: dict[ObjectId, _Attempt] = {}
        self._stored: dict[str, Event] = {}

    async def steps(self) -> AppendResult:
        """Insert the events. While another writer is faster, read the run again and retry."""
        rest = self._call.database.contention.rest(self._run.key)
        if rest:
            await self._call.pause(rest)
        # The remembered head may be outdated: another writer may have deleted and recreated the run. If an
        # outdated head could lead to a wrong result, the append reads the head again.
        remembered = self._call.database.heads.get(self._run.key)
        if not rest and self._request.first_seq is None and remembered is not None and self._is_usable(remembered):
            self._remembered_head = remembered
        return await self._call.until_done(self._attempt)

    async def _attempt(self) -> AppendResult:
        """Insert after the newest commit. Raises ``TryAgain`` if the insert was refused or its outcome is unknown."""
        request, run = self._request, self._run
        head, self._remembered_head = self._remembered_head, None
        if head is None:
            head = await current_head(self._call, run)
        # Ids are looked up only if the result depends on them. Otherwise the index refuses events already stored.
        if (
            self._unknown
            or head == self._refused_behind
            or not self._is_expected(head)
            or request.first_seq is not None
            or self._has_markers  # the journal must not name a marker twice
        ):
            done = await self._look_up(head)
            if done is not None:
                return done
            self._new = new_in_batch(request.batch, self._stored)
            if not self._new:
                version = max(head.version, *[event.seq for event in self._stored.values()])
                return AppendResult(version, 0, tuple(self._stored[event.event_id] for event in request.batch))
        events = head.version - head.base
        check_version(run.name, head.version, events, request.expected_version, request.first_seq)
        done = await self._insert(head, self._new)
        if done is not None:
            return done
        self._refused_behind = head
        rest = self._call.database.contention.refused(run.key)
        # After an insert with an unknown outcome, the call has rested already.
        raise TryAgain(0 if self._unknown else rest)

    def _is_usable(self, head: Head) -> bool:
        return self._is_expected(head) and not head.is_empty and not _is_over(head)

    def _is_expected(self, head: Head) -> bool:
        return self._request.expected_version is None or self._request.expected_version == head.version

    async def _insert(self, head: Head, new: Sequence[Prepared]) -> AppendResult | None:
        """Insert ``new`` after ``head``. Returns None if that was refused or its outcome is unknown."""
        call, run, request = self._call, self._run, self._request
        creating, behind, meta = head.is_empty, head, request.meta or {}
        if creating:
            start = head.version if request.first_seq is None else request.first_seq - 1
            end, now = expiry_of(meta), now_microseconds()
            check_expiry(run.agent, run.run, end, now)
            _check_meta_size(run, meta)
            behind = Head(head.place, start, head.deletions, start, now, end)
        if behind.version + len(new) > LAST_SEQ:
            raise InvalidArgument(
                f"{run.name} would be at version {behind.version + len(new):,}; the limit is {LAST_SEQ:,}"
            )
        if self._has_markers:
            try:
                await self._check_markers(head, new, behind.version)
            except TryAgain:
                return None  # the remembered head is outdated; another attempt with it would fail again
        commit_id, place = ObjectId(), head.next_place
        document = commit_document(run, commit_id, place, behind, new, meta if creating else None)
        encoded = encode_commit(document, f"the append of {len(new)} events", "append it in parts")
        await self._note_markers(new)
        contested = False
        if creating:
            contested = await announce(call, run, behind, meta, len(new))
        elif behind.end is not None:
            await raise_ceiling(call, run, behind.version + len(new), behind.base)
        stored = await call.insert_once(call.database.commits, RawBSONDocument(encoded))
        version = behind.version + len(new)
        after = Head(place, version, behind.deletions, behind.base, behind.created, behind.end, len(new))
        if stored is None:
            self._unknown[commit_id] = _Attempt(behind.version, new, self._stored, after if contested else None)
        if not stored:
            return None
        call.database.heads[run.key] = after
        call.database.contention.stored(run.key)
        if contested:
            await correct(call, run, after, meta)
        return append_result(behind.version, request.batch, new, self._stored)

    async def _note_markers(self, new: Sequence[Prepared]) -> None:
        for event in new if self._has_markers else ():
            if isinstance(event.data, Redaction):
                await note_erasure(self._call, self._run, seqs=event.data.seqs)

    async def _look_up(self, head: Head) -> AppendResult | None:
        """Look up the events of the batch that the run already has.

        Returns the result of the append if this call itself stored them, else None.
        """
        run, request = self._run, self._request
        ids = {event.event_id for event in request.batch}
        self._stored = {}
        documents = await find_ids(self._call, run, sorted(ids))
        if any(document["v"] <= head.base for document in documents):
            # They belong to a deleted run whose commits are not emptied yet. The deleting process may have died.
            await empty_deleted(self._call, run, head)
        for document in documents:
            attempt = self._unknown.get(document["_id"])
            if attempt is not None:
                if attempt.contested is not None:
                    await correct(self._call, run, attempt.contested, request.meta or {})
                return append_result(attempt.start, request.batch, attempt.new, attempt.stored)
            if document["v"] > head.base:
                events = decode_events([document], run.name, 0)
                self._stored.update({event.event_id: event for event in events if event.event_id in ids})
        return None

    async def _check_markers(self, head: Head, new: Sequence[Prepared], start: int) -> None:
        seqs = [seq for event in new if isinstance(event.data, Redaction) for seq in event.data.seqs]
        events = await events_at(self._call, self._run, head, seqs)
        check_markers(new, start, {seq: event for seq, (event, _) in events.items()}.get)


def _check_meta_size(run: Run, meta: Mapping[str, JsonValue]) -> None:
    size = len(bson.encode(meta_fields(meta)))
    if size > _MAX_META_BYTES:
        raise EventTooLarge(
            f"{run.name}: meta has {size:,} bytes; the limit is {_MAX_META_BYTES:,}", size=size, limit=_MAX_META_BYTES
        )


def _is_over(head: Head) -> bool:
    return head.end is not None and head.end <= now_microseconds()
