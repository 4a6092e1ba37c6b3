"""The asynchronous surface: a thread that writes, committing what waits together with one fsync, and one that reads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import Self, TypeVar

from agent_memory_log.backend_kit import (
    AsyncHandle,
    ChangeSignal,
    check_after,
    check_before,
    check_expiry,
    check_ids,
    check_limit,
    check_listing,
    check_meta,
    check_scope,
    check_seqs,
    check_types,
    seconds_left,
)
from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, BackupResult, CompactResult, ExpireResult, Flaw, RunHead, RunPage
from agent_memory_log_sqlite import checks, reads
from agent_memory_log_sqlite.backup import back_up
from agent_memory_log_sqlite.failures import FAILURES, translated, translating
from agent_memory_log_sqlite.file import OpenFile, open_all
from agent_memory_log_sqlite.heads import Heads
from agent_memory_log_sqlite.rows import RunRow
from agent_memory_log_sqlite.schema import Settings, close_all
from agent_memory_log_sqlite.sync import POLL_SECONDS, checked_batch, hold
from agent_memory_log_sqlite.worker import Worker, call_each
from agent_memory_log_sqlite.writes import Append, Writer

_T = TypeVar("_T")

_MOST_APPENDS_A_COMMIT = 256


class SqliteStore(AsyncHandle):
    """A ``Store`` on an SQLite file. Use ``open_store("sqlite:///…")``, or ``SqliteStore.open(settings)``."""

    def __init__(
        self,
        settings: Settings,
        written: OpenFile,
        read: OpenFile,
        watched: OpenFile,
    ) -> None:
        """Take over three connections, which ``open`` makes: one for each thread, and one for the event loop's."""
        super().__init__()
        self._settings = settings
        self._verify = settings.verify
        self._changed = ChangeSignal()
        self._waiting: dict[object, int] = {}
        self._poller: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._held: list[threading.Lock] = []
        self._watching = threading.Lock()
        self._write_connection = written.connection
        self._read_connection = read.connection
        self._watch_connection = watched.connection
        self._read_file = read
        self._watched_file = watched
        self._watch = reads.Watch(watched.connection)
        self._heads = Heads(read, verify=settings.verify)
        self._writer = Writer(written)
        self._writes: Worker[Append | Callable[[], object]] = Worker(
            "amlog-sqlite-write", self._carry_out, _MOST_APPENDS_A_COMMIT, written.connection.close
        )
        self._reads: Worker[Callable[[], object]] = Worker("amlog-sqlite-read", call_each, 1, read.connection.close)

    @classmethod
    async def open(cls, settings: Settings) -> Self:
        """Open the file. Raises ``StoreUnavailable``, ``StoreCorrupt``, ``SchemaTooNew``."""
        opening = asyncio.ensure_future(asyncio.to_thread(open_all, settings, 3))
        try:
            written, read, watched = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        # It is used on the event loop's own thread, where nothing may wait.
        watched.connection.execute("PRAGMA busy_timeout = 0")
        return cls(settings, written, read, watched)

    async def append_events(
        self,
        agent: str,
        run: str,
        *events: Event,
        expected_version: int | None = None,
        meta: Mapping[str, JsonValue] | None = None,
        first_seq: int | None = None,
        reserved: bool = False,
    ) -> AppendResult:
        """See ``Store.append_events``. Appends that wait together, of any runs, share an fsync.

        A cancelled call may or may not have stored its events; append them again to know.
        """
        self._check_open()
        batch = checked_batch(self._settings, agent, run, events, expected_version, first_seq, reserved=reserved)
        owned_meta = None if meta is None else check_meta(meta)
        result: AppendResult = await self._writes.do(Append(agent, run, batch, expected_version, owned_meta, first_seq))
        if result.inserted:
            self._changed.notify()
        return result

    async def load_run(
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
        return await self._read(
            lambda: reads.load(self._read_connection, agent, run, after, wanted, limit, verify=self._verify)
        )

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """See ``Store.follow``."""
        check_ids(agent, run)
        check_after(after)
        last: RunRow | None = None
        while True:
            seen = self._changed.count
            version = self._version()
            events, found = await self._read(
                lambda: reads.follow_on(self._read_connection, agent, run, after, last, verify=self._verify)  # noqa: B023  # called at once
            )
            last = found
            for event in events:
                now = self._version()
                if now != version and not self._stands(agent, run, found):
                    break  # what was read has been redacted or deleted: read it again
                check_expiry(agent, run, found.expires_at)
                version, after = now, event.seq
                yield event
            if not events:
                await self._wait(seen, version, found.expires_at)

    def _version(self) -> int:
        self._check_open()
        with self._watching, translating(self._settings.path):
            return self._watch.version()

    def _stands(self, agent: str, run: str, found: RunRow) -> bool:
        with self._watching, translating(self._settings.path):
            return self._watch.stands(agent, run, found)

    async def _wait(self, seen: int, version: int, expires_at: int | None) -> None:
        """Wait until there may be news, or the run's end.

        At once for this handle's own writes, by polling for those of others.
        """
        key = object()
        self._waiting[key] = version
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            await self._changed.wait_async(seen, seconds_left(expires_at))
        finally:
            del self._waiting[key]

    async def _poll(self) -> None:
        """One poll for all followers that wait."""
        try:
            while self._waiting:
                await asyncio.sleep(POLL_SECONDS)
                version = self._version()
                self._watched_file.check_place()
                if any(waited != version for waited in self._waiting.values()):
                    self._changed.notify()
        except AgentMemoryLogError:
            return  # each follower that waits meets it itself
        finally:
            self._poller = None
            self._changed.notify()

    async def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``Store.list_runs``."""
        check_listing(agent, limit)
        return await self._read(
            lambda: reads.list_runs(
                self._read_connection, agent, limit, cursor, include_reserved=include_reserved, verify=self._verify
            )
        )

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        check_ids(agent, run)
        wanted = check_seqs(seqs)
        return await self._write(lambda: self._writer.redact(agent, run, wanted, reason))

    async def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        check_ids(agent, run)
        await self._write(lambda: self._writer.delete(agent, run))

    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Store.expire_runs``. Removes in several transactions, between which others write."""
        until = check_before(before)
        if dry_run:
            return await self._read(lambda: reads.count_expired(self._read_connection, until))
        runs = events = 0
        while (removed := await self._write(lambda: self._writer.expire_some(until))).runs:
            runs, events = runs + removed.runs, events + removed.events
        return ExpireResult(runs, events)

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        wanted = self._heads.checked(runs)
        return await self._read(lambda: self._heads.peek(wanted))

    async def backup(self, target: str | os.PathLike[str]) -> BackupResult:
        """See ``BacksUp.backup``. Other reads of this handle wait for it; a cancelled call makes it all the same."""
        return await self._read(lambda: back_up(self._read_file, target))

    async def compact(self) -> CompactResult:
        """See ``Compacts.compact``."""
        return await self._write(self._writer.compact)

    async def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncIterator[Flaw]:
        """See ``Store.check``. Other reads of this handle wait while SQLite's integrity check runs."""
        check_scope(agent_id, run_id)
        found = checks.flaws(self._read_connection, agent_id, run_id)
        while (flaw := await self._read(lambda: next(found, checks.END))) is not checks.END:
            if isinstance(flaw, Flaw):
                yield flaw

    async def aclose(self) -> None:
        """See ``Store.aclose``. Appends already waiting are carried out first; a cancelled wait does not stop it.

        On another event loop, lets go of everything without waiting, and then raises ``StoreClosed``.
        """
        if self._closing is None:
            if not self._mark_closed():
                return
            self._changed.notify()
            if self._poller is not None:
                self._poller.cancel()
            with self._watching:
                self._watch_connection.close()
            if asyncio.get_running_loop() is not self._loop:
                self._reads.end()
                self._writes.end()
            self._check_loop()
            self._closing = asyncio.ensure_future(self._release())
        self._check_loop()
        await asyncio.shield(self._closing)

    async def _release(self) -> None:
        # One after the other: the last connection to close takes the write-ahead log back into the file, and two that
        # close at the same time are neither of them the last.
        for worker in (self._reads, self._writes):
            worker.end()
            await worker.ended()

    def hold_still(self) -> None:
        """See ``Handle.hold_still``."""
        self._held = hold((self._writes.working, self._reads.working, self._watching))

    def go_on(self) -> None:
        """See ``Handle.go_on``."""
        for lock in self._held:
            lock.release()

    def disown(self) -> None:
        """See ``Handle.disown``."""
        was_open = self._unusable is None
        super().disown()
        if was_open and len(self._held) == 3:  # noqa: PLR2004  # all of them
            close_all([self._watch_connection, self._read_connection, self._write_connection])
        self.go_on()

    async def _read(self, work: Callable[[], _T]) -> _T:
        def look_and_read() -> _T:
            self._read_file.check()
            return work()

        self._check_open()
        try:
            done: _T = await self._reads.do(look_and_read)
        except FAILURES as error:
            raise translated(error, self._settings.path) from error
        return done

    async def _write(self, work: Callable[[], _T]) -> _T:
        self._check_open()
        done: _T = await self._writes.do(work)
        self._changed.notify()
        return done

    def _carry_out(self, jobs: list[Append | Callable[[], object]]) -> list[object]:
        """On the writing thread: consecutive appends with one commit, anything else by itself."""
        outcomes: list[object] = []
        appends: list[Append] = []
        for job in jobs:
            if isinstance(job, Append):
                appends.append(job)
                continue
            outcomes.extend(self._writer.append_group(appends))
            appends = []
            outcomes.extend(call_each([job]))
        outcomes.extend(self._writer.append_group(appends))
        return outcomes


def _close_unwanted(opened: asyncio.Future[list[OpenFile]]) -> None:
    """Close what was opened for a caller who no longer waits."""
    if not opened.cancelled() and opened.exception() is None:
        close_all([file.connection for file in opened.result()])
