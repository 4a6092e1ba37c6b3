"""The synchronous surface: calls go straight to SQLite, with no event loop and no other thread between."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TypeVar

from agent_memory_log.backend_kit import (
    ChangeSignal,
    Prepared,
    SyncHandle,
    check_after,
    check_append,
    check_before,
    check_expiry,
    check_ids,
    check_limit,
    check_listing,
    check_meta,
    check_not_reserved,
    check_scope,
    check_seqs,
    check_types,
    prepare_batch,
    seconds_left,
)
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, BackupResult, CompactResult, ExpireResult, Flaw, RunHead, RunPage
from agent_memory_log_sqlite import checks, reads
from agent_memory_log_sqlite.backup import back_up
from agent_memory_log_sqlite.failures import FAILURES, translated
from agent_memory_log_sqlite.file import open_all
from agent_memory_log_sqlite.heads import Heads
from agent_memory_log_sqlite.rows import RunRow
from agent_memory_log_sqlite.schema import Settings, close_all
from agent_memory_log_sqlite.writes import Append, Writer

_T = TypeVar("_T")

BATCH_EVENTS = 16
"""A batch may have the bytes of this many events of the largest size."""

POLL_SECONDS = 0.01
"""How often a waiting follower asks SQLite whether another connection has written, which takes microseconds."""


class SyncSqliteStore(SyncHandle):
    """A ``SyncStore`` on an SQLite file. Use ``open_sync_store("sqlite:///…")``, or give the settings here."""

    def __init__(self, settings: Settings) -> None:
        """Open the file. Raises ``StoreUnavailable``, ``StoreCorrupt``, ``SchemaTooNew``."""
        super().__init__()
        self._settings = settings
        self._verify = settings.verify
        self._changed = ChangeSignal()
        self._held: list[threading.Lock] = []
        # Reads have a connection of their own: they see only what is committed, and do not wait for an fsync.
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        written, self._read_file = open_all(settings, 2)
        self._write_connection, self._read_connection = written.connection, self._read_file.connection
        self._writer = Writer(written)
        self._watch = reads.Watch(self._read_connection)
        self._heads = Heads(self._read_file, verify=settings.verify)

    def append_events(
        self,
        agent: str,
        run: str,
        *events: Event,
        expected_version: int | None = None,
        meta: Mapping[str, JsonValue] | None = None,
        first_seq: int | None = None,
        reserved: bool = False,
    ) -> AppendResult:
        """See ``Store.append_events``."""
        if self._unusable is not None:
            self._check_open()
        batch = checked_batch(self._settings, agent, run, events, expected_version, first_seq, reserved=reserved)
        owned_meta = None if meta is None else check_meta(meta)
        with self._writing:
            if self._unusable is not None:
                self._check_open()
            result = None
            if len(batch) == 1 and first_seq is None:
                result = self._writer.append_one(agent, run, batch[0], expected_version)
            if result is None:
                result = self._writer.append(Append(agent, run, batch, expected_version, owned_meta, first_seq))
        if result.inserted:
            self._changed.notify()
        return result

    def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Snapshot:
        """See ``Store.load_run``. Where ``types`` names one of the commonest, it walks the run from ``after`` on."""
        check_ids(agent, run)
        check_after(after)
        check_limit(limit)
        wanted = check_types(types)
        return self._read(
            lambda: reads.load(self._read_connection, agent, run, after, wanted, limit, verify=self._verify)
        )

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        """See ``Store.follow``."""
        check_ids(agent, run)
        check_after(after)
        last: RunRow | None = None
        while True:
            seen = self._changed.count
            version = self._read(self._watch.version)
            events, found = self._read(
                lambda: reads.follow_on(self._read_connection, agent, run, after, last, verify=self._verify)  # noqa: B023  # called at once
            )
            last = found
            for event in events:
                now = self._ask(self._watch.version)
                if now != version and not self._read(lambda: self._watch.stands(agent, run, found)):  # noqa: B023  # as above
                    break  # what was read has been redacted or deleted: read it again
                check_expiry(agent, run, found.expires_at)
                version, after = now, event.seq
                yield event
            if not events:
                self._wait(seen, version, found.expires_at)

    def _wait(self, seen: int, version: int, expires_at: int | None) -> None:
        """Wait until there may be news, or the run's end.

        At once for this handle's own writes, by polling for those of others.
        """
        left = seconds_left(expires_at)
        while left is None or left > 0:
            if self._changed.wait(seen, POLL_SECONDS if left is None else min(POLL_SECONDS, left)):
                return
            if self._read(self._watch.version) != version:
                return
            left = seconds_left(expires_at)

    def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``Store.list_runs``."""
        check_listing(agent, limit)
        return self._read(
            lambda: reads.list_runs(
                self._read_connection, agent, limit, cursor, include_reserved=include_reserved, verify=self._verify
            )
        )

    def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        check_ids(agent, run)
        wanted = check_seqs(seqs)
        return self._write(lambda: self._writer.redact(agent, run, wanted, reason))

    def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        check_ids(agent, run)
        self._write(lambda: self._writer.delete(agent, run))

    def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Store.expire_runs``. Removes in several transactions, between which others write."""
        until = check_before(before)
        if dry_run:
            return self._read(lambda: reads.count_expired(self._read_connection, until))
        runs = events = 0
        while (removed := self._write(lambda: self._writer.expire_some(until))).runs:
            runs, events = runs + removed.runs, events + removed.events
        return ExpireResult(runs, events)

    def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        wanted = self._heads.checked(runs)
        return self._read(lambda: self._heads.peek(wanted))

    def backup(self, target: str | os.PathLike[str]) -> BackupResult:
        """See ``BacksUp.backup``. Other reads of this handle wait for it."""
        return self._read(lambda: back_up(self._read_file, target))

    def compact(self) -> CompactResult:
        """See ``Compacts.compact``."""
        self._read(lambda: None)  # which ends what was interrupted: an open view would prevent it
        return self._write(self._writer.compact)

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> Iterator[Flaw]:
        """See ``Store.check``. Other reads of this handle wait while SQLite's integrity check runs."""
        check_scope(agent_id, run_id)
        found = checks.flaws(self._read_connection, agent_id, run_id)
        while (flaw := self._read(lambda: next(found, checks.END))) is not checks.END:
            if isinstance(flaw, Flaw):
                yield flaw

    def close(self) -> None:
        """See ``Store.aclose``."""
        if not self._mark_closed():
            return
        self._changed.notify()
        with self._writing, self._reading:
            close_all([self._read_connection, self._write_connection])

    def hold_still(self) -> None:
        """See ``Handle.hold_still``."""
        self._held = hold((self._writing, self._reading))

    def go_on(self) -> None:
        """See ``Handle.go_on``."""
        for lock in self._held:
            lock.release()

    def disown(self) -> None:
        """See ``Handle.disown``."""
        was_open = self._unusable is None
        super().disown()
        if was_open and len(self._held) == 2:  # noqa: PLR2004  # both
            close_all([self._read_connection, self._write_connection])
        self.go_on()

    def _read(self, work: Callable[[], _T]) -> _T:
        def look_and_read() -> _T:
            self._read_file.check()
            return work()

        return self._ask(look_and_read)

    def _ask(self, work: Callable[[], _T]) -> _T:
        """Read without a look at whether the file is still there."""
        self._check_open()
        with self._reading:
            self._check_open()
            try:
                if self._read_connection.in_transaction:
                    self._read_connection.execute("ROLLBACK")  # a signal's exception came before the last view ended
                return work()
            except FAILURES as error:
                raise translated(error, self._settings.path) from error

    def _write(self, work: Callable[[], _T]) -> _T:
        self._check_open()
        with self._writing:
            self._check_open()
            done = work()
        self._changed.notify()
        return done


FORK_PATIENCE_SECONDS = 10.0
"""How long a fork waits for a thread that is writing. One that still is keeps the child from closing what it has."""


def hold(locks: Iterable[threading.Lock]) -> list[threading.Lock]:
    """Acquire locks before a fork; those that could be.

    A forked child shares the parent's file locks in its memory, but not in the kernel's: were it to open the same file
    while it still has the parent's connections, SQLite would take none for it, and both would write as if alone. So the
    child closes them, which it can if no other thread is inside SQLite at that moment.
    """
    return [lock for lock in locks if lock.acquire(timeout=FORK_PATIENCE_SECONDS)]


def checked_batch(
    settings: Settings,
    agent: str,
    run: str,
    events: tuple[Event, ...],
    expected_version: int | None,
    first_seq: int | None,
    *,
    reserved: bool,
) -> list[Prepared]:
    """Check an append before anything is written. Raises ``InvalidEvent``, ``InvalidArgument``, ``EventTooLarge``."""
    check_ids(agent, run)
    if expected_version is not None or first_seq is not None:
        check_append(expected_version, first_seq)
    batch = prepare_batch(events, settings.max_event_bytes, settings.max_event_bytes * BATCH_EVENTS)
    check_not_reserved(agent, batch, reserved=reserved)
    return batch
