"""The data of an in-memory store, and the operations on it.

Each operation runs under one lock and never waits, so the asynchronous store calls it directly.
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
    append_result,
    check_expiry,
    check_journal_reached,
    check_markers,
    check_reached,
    check_version,
    decode_cursor,
    encode_cursor,
    expiry_of,
    is_reserved,
    new_in_batch,
    now_microseconds,
    plan_redaction,
    seconds_left,
)
from agent_memory_log.errors import CursorOutOfRange, RunDeleted
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.events.registry import decode_parts
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, Erasure, Erasures, ExpireResult, Flaw, RunHead, RunInfo, RunPage


class _Run:
    """The data of a run. ``base`` is the version at the last deletion, so ``events[0]`` has seq ``base + 1``."""

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
        """Return the event at ``seq``, or None if the run does not have it."""
        return self.event(seq) if self.base < seq <= self.version else None

    def before_last(self, count: int, after: int, types: frozenset[str] | None) -> int:
        """Return the seq before the newest ``count`` events of ``types`` after ``after``, or ``after`` if there are
        fewer.
        """
        for seq in range(self.version, max(after, self.base), -1):
            count -= types is None or self.events[seq - self.base - 1].type in types
            if not count:
                return seq - 1
        return after

    def event(self, seq: int) -> Event:
        """Return the event at ``seq``. It shares no mutable value with the stored event."""
        prepared = self.events[seq - self.base - 1]
        event = prepared.to_event(seq)
        if prepared.immutable:
            return event
        return msgspec.structs.replace(event, data=decode_parts(prepared.type, prepared.text, prepared.verbatim))


class Follower:
    """The position of a follower: its last seq, and the run's deletions and end at its last read."""

    __slots__ = ("after", "deletions", "expires_at")

    def __init__(self, after: int) -> None:
        self.after = after
        self.deletions: int | None = None
        self.expires_at: int | None = None

    def patience(self) -> float | None:
        """Return the longest time to wait for a change, in seconds, or None for no limit."""
        return seconds_left(self.expires_at)


class MemoryData:
    """All runs of a store. Any thread may call any method."""

    def __init__(self) -> None:
        self.changed = ChangeSignal()
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, str], _Run] = {}
        self._journal: list[Erasure] = []
        self._created = 0
        self._resets = 0

    def reset(self) -> None:
        """Remove all runs, including their versions."""
        with self._lock:
            self._runs.clear()
            self._journal.clear()
            self._resets += 1
        self.changed.notify()

    def append(self, append: Append) -> AppendResult:
        """See ``Store.append_events``."""
        agent, run, batch = append.agent, append.run, append.batch
        with self._lock:
            run_data = self._runs.get((agent, run)) or _Run()
            if run_data.expires_at is not None and batch:
                check_expiry(agent, run, run_data.expires_at)
            stored_before = run_data.events
            if stored_before and len(batch) == 1 and append.expected_version is None and append.first_seq is None:
                event, seqs = batch[0], run_data.seqs
                if event.event_id not in seqs and type(event.data) is not Redaction:
                    # This common case would take twice as long in the general code below.
                    stored_before.append(event)
                    seqs[event.event_id] = seq = run_data.base + len(stored_before)
                    self.changed.notify()
                    return AppendResult(seq, 1, (event.to_event(seq),))
            if not batch:
                return AppendResult(run_data.version, 0, ())
            if not run_data.events:
                check_expiry(agent, run, expiry_of(append.meta))
            stored = self._stored_events(run_data, batch)
            new = new_in_batch(batch, stored) if stored or len(batch) > 1 else batch
            if new:
                first_seq = append.first_seq
                check_version(
                    f"{agent}/{run}", run_data.version, len(run_data.events), append.expected_version, first_seq
                )
                start = run_data.version if run_data.events or first_seq is None else first_seq - 1
                check_markers(new, start, run_data.find)
                if not run_data.events:
                    self._create(run_data, append, start)
                run_data.append(new)
                for event in new:
                    self._note_redaction(agent, run, event)
            else:
                start = run_data.version
            result = append_result(start, batch, new, stored)
        if new:
            self.changed.notify()
        return result

    def _stored_events(self, run_data: _Run, batch: Sequence[Prepared]) -> dict[str, Event]:
        return {
            event.event_id: run_data.event(run_data.seqs[event.event_id])
            for event in batch
            if event.event_id in run_data.seqs
        }

    def _create(self, run_data: _Run, append: Append, base: int) -> None:
        self._runs[append.agent, append.run] = run_data
        self._created += 1
        run_data.order = self._created
        run_data.created = datetime.now(UTC)
        run_data.meta = encode_json(append.meta or {})
        run_data.expires_at = expiry_of(append.meta)
        run_data.base = base

    def load(
        self, agent: str, run: str, after: int, types: frozenset[str] | None, limit: int | None, last: int | None
    ) -> Snapshot:
        """See ``Store.load_run``."""
        with self._lock:
            run_data = self._unexpired(agent, run)
            check_reached(agent, run, after, run_data.version)
            if last is not None:
                after = run_data.before_last(last, after, types)
            log: list[Event] = []
            redactions: dict[int, str] = {}
            last_seq = run_data.version
            for seq in range(max(after, run_data.base) + 1, run_data.version + 1):
                stored = run_data.events[seq - run_data.base - 1]
                if isinstance(stored.data, Redaction):
                    redactions.update(dict.fromkeys(stored.data.seqs, stored.data.reason))
                if types is None or stored.type in types:
                    log.append(run_data.event(seq))
                    if len(log) == limit:
                        last_seq = seq
                        break
            return Snapshot(
                agent,
                run,
                log,
                version=run_data.version,
                last_seq=last_seq,
                meta=_meta(run_data),
                after=after,
                types=types,
                first_seq=run_data.base + 1,
                redactions=redactions,
            )

    def find(self, agent: str, run: str, event_ids: Sequence[str]) -> tuple[Event | None, ...]:
        """See ``Store.find_events``."""
        with self._lock:
            run_data = self._unexpired(agent, run)
            # A seq that no run has stands for an unknown id.
            return tuple(run_data.find(run_data.seqs.get(event_id, 0)) for event_id in event_ids)

    def peek(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        now = now_microseconds()
        never = _Run()
        with self._lock:
            heads = [self._runs.get(name, never) for name in runs]
            return tuple(
                RunHead(run_data.version, run_data.base + 1)
                if run_data.expires_at is None or run_data.expires_at > now
                else None
                for run_data in heads
            )

    def next_event(self, agent: str, run: str, follower: Follower) -> Event | None:
        """Return the next event of a follower and move the follower past it, or return None if there is no next event.

        Raises ``RunExpired``. Raises ``RunDeleted`` if the run was deleted since the previous call. Only the first call
        raises ``CursorOutOfRange``.
        """
        with self._lock:
            # Check the earlier end first, because the run may have been deleted after it expired.
            check_expiry(agent, run, follower.expires_at)
            run_data = self._runs.get((agent, run)) or _Run()
            deletions = run_data.deletions + self._resets
            if follower.deletions is not None and deletions != follower.deletions:
                raise RunDeleted(f"{agent}/{run} was deleted while it was followed, after seq {follower.after}")
            check_expiry(agent, run, run_data.expires_at)
            if follower.deletions is None:
                check_reached(agent, run, follower.after, run_data.version)
            follower.deletions, follower.expires_at = deletions, run_data.expires_at
            seq = max(follower.after, run_data.base) + 1
            if seq > run_data.version:
                return None
            follower.after = seq
            return run_data.event(seq)

    def list_runs(self, agent: str | None, limit: int, cursor: str | None, *, include_reserved: bool) -> RunPage:
        """See ``Store.list_runs``."""
        before = decode_cursor(cursor)[1] if cursor is not None else None
        now = now_microseconds()
        with self._lock:
            matches = sorted(
                (
                    (run_data.order, name, run_data)
                    for name, run_data in self._runs.items()
                    if run_data.events
                    and (run_data.expires_at is None or run_data.expires_at > now)
                    and (agent is None or name[0] == agent)
                    and (agent is not None or include_reserved or not is_reserved(name[0]))
                    and (before is None or run_data.order < before)
                ),
                key=lambda item: item[0],
                reverse=True,
            )
            page = matches[:limit]
            more = len(matches) > limit
            return RunPage(
                tuple(
                    RunInfo(
                        name[0],
                        name[1],
                        run_data.version,
                        run_data.created,
                        run_data.events[-1].timestamp,
                        len(run_data.events),
                        _meta(run_data),
                    )
                    for _, name, run_data in page
                    if run_data.created is not None
                ),
                encode_cursor(0, page[-1][0]) if more else None,
            )

    def redact(self, agent: str, run: str, seqs: tuple[int, ...], reason: str) -> AppendResult:
        """See ``Store.redact_events``."""
        with self._lock:
            run_data = self._unexpired(agent, run)
            for seq in seqs:
                if not run_data.base < seq <= run_data.version:
                    raise CursorOutOfRange(f"{agent}/{run} has no event {seq}, so no event was redacted")
            redaction = plan_redaction([run_data.event(seq) for seq in seqs], reason, run_data.find)
            if redaction is None:
                return AppendResult(run_data.version, 0, ())
            masks, marker = redaction
            for mask in masks:
                run_data.events[run_data.seqs[mask.event_id] - run_data.base - 1] = mask
            run_data.append([marker])
            self._note_redaction(agent, run, marker)
            result = AppendResult(run_data.version, 1, (run_data.event(run_data.version),))
        self.changed.notify()
        return result

    def delete(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        with self._lock:
            run_data = self._runs.get((agent, run))
            if run_data is None or not run_data.events:
                return
            self._journal.append(Erasure(len(self._journal) + 1, agent, run, up_to=run_data.version))
            run_data.clear()
        self.changed.notify()

    def _note_redaction(self, agent: str, run: str, event: Prepared) -> None:
        if isinstance(event.data, Redaction):
            self._journal.append(Erasure(len(self._journal) + 1, agent, run, event.data.seqs))

    def erasures(self, after: int, runs: Sequence[tuple[str, str]] | None, limit: int | None) -> Erasures:
        """See ``Store.erasures``."""
        chosen = None if runs is None else frozenset(runs)
        with self._lock:
            position = len(self._journal)
            check_journal_reached(after, position)
            new = self._journal[after:] if chosen is None or chosen else []
        entries = [entry for entry in new if chosen is None or (entry.agent, entry.run) in chosen][:limit]
        return Erasures(entries[-1].position if len(entries) == limit else position, tuple(entries))

    def count_expired(self, before: int) -> ExpireResult:
        """Count the runs and events that ``expire_runs`` would remove. ``before`` is in microseconds."""
        with self._lock:
            return _sum_of(self._expired(before))

    def expire_some(self, before: int) -> ExpireResult:
        """See ``Writes.expire_some``. Removes all expired runs at once."""
        with self._lock:
            expired = self._expired(before)
            removed = _sum_of(expired)
            for run_data in expired:
                run_data.clear()
        if expired:
            self.changed.notify()
        return removed

    def _expired(self, before: int) -> list[_Run]:
        return [
            run_data
            for run_data in self._runs.values()
            if run_data.expires_at is not None and run_data.expires_at <= before
        ]

    def flaws(self, agent: str | None, run: str | None) -> Iterator[Flaw | None]:
        """See ``Store.check``. Memory has no checksums and no indexes that could differ from the data."""
        del agent, run
        return iter(())

    def _unexpired(self, agent: str, run: str) -> _Run:
        """Return the data of a run, or empty data if the run does not exist. Raises ``RunExpired``."""
        run_data = self._runs.get((agent, run)) or _Run()
        check_expiry(agent, run, run_data.expires_at)
        return run_data


def _sum_of(runs: list[_Run]) -> ExpireResult:
    return ExpireResult(len(runs), sum(len(run_data.events) for run_data in runs))


def _meta(run_data: _Run) -> dict[str, JsonValue]:
    meta: dict[str, JsonValue] = decode_json(run_data.meta)
    return meta
