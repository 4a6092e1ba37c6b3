"""The data of an in-memory store, and every operation on it.

The operations run to the end under one lock and never wait, so the asynchronous store calls them as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from agent_memory_log.backend_kit import (
    Append,
    ChangeSignal,
    Prepared,
    check_expiry,
    check_markers,
    check_reached,
    check_version,
    decode_cursor,
    encode_cursor,
    expiry_of,
    is_reserved,
    new_in_batch,
    now_microseconds,
    placed,
    redaction_of,
    seconds_left,
)
from agent_memory_log.errors import CursorOutOfRange, RunDeleted
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.events.registry import decode_parts
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, ExpireResult, Flaw, RunHead, RunInfo, RunPage


class _Run:
    """A run's events; ``base`` is the version at its last deletion, so that ``events[0]`` has seq ``base + 1``."""

    __slots__ = ("base", "created", "deletions", "events", "expires_at", "meta", "order", "seqs")

    def __init__(self) -> None:
        self.base = 0
        self.deletions = 0
        self.created: datetime | None = None
        self.order = 0
        self.meta = b"{}"
        self.expires_at: int | None = None
        self.events: list[Prepared] = []
        self.seqs: dict[str, int] = {}

    @property
    def version(self) -> int:
        return self.base + len(self.events)

    def append(self, batch: Sequence[Prepared]) -> None:
        for event in batch:
            self.events.append(event)
            self.seqs[event.event_id] = self.base + len(self.events)

    def clear(self) -> None:
        self.base = self.version
        self.deletions += 1
        self.created = None
        self.meta = b"{}"
        self.expires_at = None
        self.events = []
        self.seqs = {}

    def find(self, seq: int) -> Event | None:
        """The event at ``seq``, None when the run does not hold it."""
        return self.event(seq) if self.base < seq <= self.version else None

    def event(self, seq: int) -> Event:
        """The event at ``seq``, sharing nothing mutable with what is kept."""
        kept = self.events[seq - self.base - 1]
        event = kept.placed(seq)
        if kept.immutable:
            return event
        return msgspec.structs.replace(event, data=decode_parts(kept.type, kept.text, kept.verbatim))


class Follower:
    """What a follower has seen of its run: the events up to ``after``, and at the last look its deletions and end."""

    __slots__ = ("after", "deletions", "expires_at")

    def __init__(self, after: int) -> None:
        self.after = after
        self.deletions: int | None = None
        self.expires_at: int | None = None

    def patience(self) -> float | None:
        """How many seconds to wait for a change before the next look; None: for ever."""
        return seconds_left(self.expires_at)


class MemoryData:
    """All runs of a store. Every method may be called from any thread."""

    def __init__(self) -> None:
        self.changed = ChangeSignal()
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, str], _Run] = {}
        self._created = 0
        self._resets = 0

    def reset(self) -> None:
        """Forget everything, versions included."""
        with self._lock:
            self._runs.clear()
            self._resets += 1
        self.changed.notify()

    def append(self, append: Append) -> AppendResult:
        """See ``Store.append_events``."""
        agent, run, batch = append.agent, append.run, append.batch
        with self._lock:
            kept = self._runs.get((agent, run)) or _Run()
            if kept.expires_at is not None and batch:
                check_expiry(agent, run, kept.expires_at)
            if len(batch) == 1 and append.expected_version is None and append.first_seq is None and kept.events:
                event = batch[0]
                if event.event_id not in kept.seqs and type(event.data) is not Redaction:
                    # The common case, which would cost twice as much by the general way below.
                    kept.events.append(event)
                    kept.seqs[event.event_id] = seq = kept.base + len(kept.events)
                    self.changed.notify()
                    return AppendResult(seq, 1, (event.placed(seq),))
            if not batch:
                return AppendResult(kept.version, 0, ())
            if not kept.events:
                check_expiry(agent, run, expiry_of(append.meta))
            stored = self._known(kept, batch)
            new = new_in_batch(batch, stored) if stored or len(batch) > 1 else batch
            if new:
                first_seq = append.first_seq
                check_version(f"{agent}/{run}", kept.version, len(kept.events), append.expected_version, first_seq)
                start = kept.version if kept.events or first_seq is None else first_seq - 1
                check_markers(new, start, kept.find)
                if not kept.events:
                    self._create(kept, append, start)
                kept.append(new)
            else:
                start = kept.version
            result = placed(start, batch, new, stored)
        if new:
            self.changed.notify()
        return result

    def _known(self, kept: _Run, batch: Sequence[Prepared]) -> dict[str, Event]:
        return {event.event_id: kept.event(kept.seqs[event.event_id]) for event in batch if event.event_id in kept.seqs}

    def _create(self, kept: _Run, append: Append, base: int) -> None:
        self._runs[append.agent, append.run] = kept
        self._created += 1
        kept.order = self._created
        kept.created = datetime.now(UTC)
        kept.meta = encode_json(append.meta or {})
        kept.expires_at = expiry_of(append.meta)
        kept.base = base

    def load(self, agent: str, run: str, after: int, types: frozenset[str] | None, limit: int | None) -> Snapshot:
        """See ``Store.load_run``."""
        with self._lock:
            kept = self._unexpired(agent, run)
            check_reached(agent, run, after, kept.version)
            log: list[Event] = []
            redactions: dict[int, str] = {}
            last_seq = kept.version
            for seq in range(max(after, kept.base) + 1, kept.version + 1):
                stored = kept.events[seq - kept.base - 1]
                if isinstance(stored.data, Redaction):
                    redactions.update(dict.fromkeys(stored.data.seqs, stored.data.reason))
                if types is None or stored.type in types:
                    log.append(kept.event(seq))
                    if len(log) == limit:
                        last_seq = seq
                        break
            return Snapshot(
                agent,
                run,
                log,
                version=kept.version,
                last_seq=last_seq,
                meta=_meta(kept),
                after=after,
                types=types,
                first_seq=kept.base + 1,
                redactions=redactions,
            )

    def peek(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        now = now_microseconds()
        never = _Run()
        with self._lock:
            found = [self._runs.get(one, never) for one in runs]
            return tuple(
                RunHead(kept.version, kept.base + 1) if kept.expires_at is None or kept.expires_at > now else None
                for kept in found
            )

    def next_event(self, agent: str, run: str, follower: Follower) -> Event | None:
        """The next event of a follower, which is moved past it; None: not yet.

        Raises ``RunExpired``; ``RunDeleted`` when the run was deleted since the last look; ``CursorOutOfRange`` at the
        first.
        """
        with self._lock:
            # First what it followed: that may have been deleted because it had expired.
            check_expiry(agent, run, follower.expires_at)
            kept = self._runs.get((agent, run)) or _Run()
            deletions = kept.deletions + self._resets
            if follower.deletions is not None and deletions != follower.deletions:
                raise RunDeleted(f"{agent}/{run} was deleted while it was followed, after seq {follower.after}")
            check_expiry(agent, run, kept.expires_at)
            if follower.deletions is None:
                check_reached(agent, run, follower.after, kept.version)
            follower.deletions, follower.expires_at = deletions, kept.expires_at
            seq = max(follower.after, kept.base) + 1
            if seq > kept.version:
                return None
            follower.after = seq
            return kept.event(seq)

    def list_runs(self, agent: str | None, limit: int, cursor: str | None, *, include_reserved: bool) -> RunPage:
        """See ``Store.list_runs``."""
        before = decode_cursor(cursor)[1] if cursor is not None else None
        now = now_microseconds()
        with self._lock:
            found = sorted(
                (
                    (kept.order, name, kept)
                    for name, kept in self._runs.items()
                    if kept.events
                    and (kept.expires_at is None or kept.expires_at > now)
                    and (agent is None or name[0] == agent)
                    and (agent is not None or include_reserved or not is_reserved(name[0]))
                    and (before is None or kept.order < before)
                ),
                key=lambda item: item[0],
                reverse=True,
            )
            page = found[:limit]
            more = len(found) > limit
            return RunPage(
                tuple(
                    RunInfo(name[0], name[1], kept.version, kept.created, len(kept.events), _meta(kept))
                    for _, name, kept in page
                    if kept.created is not None
                ),
                encode_cursor(0, page[-1][0]) if more else None,
            )

    def redact(self, agent: str, run: str, seqs: tuple[int, ...], reason: str) -> AppendResult:
        """See ``Store.redact_events``."""
        with self._lock:
            kept = self._unexpired(agent, run)
            for seq in seqs:
                if not kept.base < seq <= kept.version:
                    raise CursorOutOfRange(f"{agent}/{run} holds no event {seq}, and so none was redacted")
            redaction = redaction_of([kept.event(seq) for seq in seqs], reason, kept.find)
            if redaction is None:
                return AppendResult(kept.version, 0, ())
            masks, marker = redaction
            for mask in masks:
                kept.events[kept.seqs[mask.event_id] - kept.base - 1] = mask
            kept.append([marker])
            result = AppendResult(kept.version, 1, (kept.event(kept.version),))
        self.changed.notify()
        return result

    def delete(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        with self._lock:
            kept = self._runs.get((agent, run))
            if kept is None or not kept.events:
                return
            kept.clear()
        self.changed.notify()

    def count_expired(self, before: int) -> ExpireResult:
        """What ``expire_runs`` would remove; ``before`` in microseconds."""
        with self._lock:
            return _sum_of(self._expired(before))

    def expire_some(self, before: int) -> ExpireResult:
        """See ``Writes.expire_some``; removes all of them at once."""
        with self._lock:
            expired = self._expired(before)
            removed = _sum_of(expired)
            for kept in expired:
                kept.clear()
        if expired:
            self.changed.notify()
        return removed

    def _expired(self, before: int) -> list[_Run]:
        return [kept for kept in self._runs.values() if kept.expires_at is not None and kept.expires_at <= before]

    def flaws(self, agent: str | None, run: str | None) -> Iterator[Flaw | None]:
        """See ``Store.check``. Memory has neither checksums nor indexes that could differ from what is stored."""
        del agent, run
        return iter(())

    def _unexpired(self, agent: str, run: str) -> _Run:
        """A run to read, empty when there is none. Raises ``RunExpired``."""
        kept = self._runs.get((agent, run)) or _Run()
        check_expiry(agent, run, kept.expires_at)
        return kept


def _sum_of(runs: list[_Run]) -> ExpireResult:
    return ExpireResult(len(runs), sum(len(kept.events) for kept in runs))


def _meta(kept: _Run) -> dict[str, JsonValue]:
    meta: dict[str, JsonValue] = decode_json(kept.meta)
    return meta
