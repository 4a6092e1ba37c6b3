"""The asynchronous store: one thread writes, with one fsync for all waiting appends, and one thread reads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar, cast

from agent_memory_log.backend_kit import (
    Append,
    AsyncSurface,
    ChangeSignal,
    check_after,
    check_expiry,
    check_ids,
    seconds_left,
)
from agent_memory_log.capabilities import BackupResult, CompactResult, IndexFolder
from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.events.event import Event
from agent_memory_log.store import AppendResult
from agent_memory_log_sqlite.failures import FAILURES, translated, translating
from agent_memory_log_sqlite.maintenance import back_up
from agent_memory_log_sqlite.open_file import HoldsFile, OpenFile, open_all
from agent_memory_log_sqlite.reads import Reader
from agent_memory_log_sqlite.row_format import RunRow
from agent_memory_log_sqlite.schema import Settings, close_all, index_folder_of
from agent_memory_log_sqlite.watching import POLL_SECONDS, Watch
from agent_memory_log_sqlite.writes import Writer

_T = TypeVar("_T")
_Job = TypeVar("_Job")

_Outcomes = list[tuple[asyncio.Future[Any], object]]

_MOST_APPENDS_A_COMMIT = 256


class SqliteStore(HoldsFile, AsyncSurface[Reader, Writer]):
    """A ``Store`` on an SQLite file. Use ``open_store("sqlite:///…")``, or ``SqliteStore.open(settings)``.

    Appends that wait at the same time share an fsync, even if they are for different runs. A cancelled
    append may or may not have stored its events; append them again to be sure. Only one read runs at a time, so a
    backup or an integrity check delays the other reads.
    """

    def __init__(self, settings: Settings, written: OpenFile, read: OpenFile, watched: OpenFile) -> None:
        """Take over three connections from ``open``: for the writing thread, the reading thread and the event loop."""
        super().__init__()
        self._settings = settings
        self._max_event_bytes = settings.max_event_bytes
        self._changed = ChangeSignal()
        self._waiting: dict[object, int] = {}
        self._poller: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._watching = threading.Lock()
        self._write_connection = written.connection
        self._read_connection = read.connection
        self._watch_connection = watched.connection
        self._read_file = read
        self._watched_file = watched
        self._watch = Watch(watched.connection)
        self._reader = Reader(read, verify=settings.verify)
        self._writer = Writer(written)
        self._reads: _Worker[Callable[[], object]] = _Worker("amlog-sqlite-read", _call_each, 1, read.connection.close)
        self._writes: _Worker[Append | Callable[[], object]] = _Worker(
            "amlog-sqlite-write", self._carry_out, _MOST_APPENDS_A_COMMIT, self._close_last
        )
        self._locks = (self._writes.working, self._reads.working, self._watching)
        self._connections = (self._watch_connection, self._read_connection, self._write_connection)

    @classmethod
    async def open(cls, settings: Settings) -> Self:
        """Open the file. Raises ``StoreUnavailable``, ``StoreCorrupt`` or ``SchemaTooNew``."""
        opening = asyncio.ensure_future(asyncio.to_thread(open_all, settings, 3))
        try:
            written, read, watched = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        # The event loop's thread uses this connection, so it must never wait.
        watched.connection.execute("PRAGMA busy_timeout = 0")
        return cls(settings, written, read, watched)

    async def _append(self, append: Append) -> AppendResult:
        result: AppendResult = await self._writes.do(append)
        if result.inserted:
            self._changed.notify()
        return result

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """See ``Store.follow``."""
        check_ids(agent, run)
        check_after(after)
        last: RunRow | None = None
        while True:
            seen = self._changed.count
            version = self._version()
            events, run_row = await self._read(lambda: self._reader.follow_on(agent, run, after, last))  # noqa: B023  # the lambda runs before the loop continues
            last = run_row
            for event in events:
                now = self._version()  # before each event, so that no event is returned after its redaction
                if now != version and not self._is_current(agent, run, run_row):
                    break  # a redaction or deletion changed these events: read them again
                check_expiry(agent, run, run_row.expires_at)
                version, after = now, event.seq
                yield event
            if not events:
                await self._wait(seen, version, run_row.expires_at)

    def _version(self) -> int:
        self._check_open()
        with self._watching, translating(self._settings.path):
            return self._watch.version()

    def _is_current(self, agent: str, run: str, run_row: RunRow) -> bool:
        with self._watching, translating(self._settings.path):
            return self._watch.is_current(agent, run, run_row)

    async def _wait(self, seen: int, version: int, expires_at: int | None) -> None:
        """Wait until the file may have new events, or until the run's end.

        A write of this handle ends the wait at once. Polling finds the writes of other handles.
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
        """Poll the file for all waiting followers."""
        try:
            while self._waiting:
                await asyncio.sleep(POLL_SECONDS)
                version = self._version()
                self._watched_file.check_place()
                if any(waited != version for waited in self._waiting.values()):
                    self._changed.notify()
        except AgentMemoryLogError:
            return  # each waiting follower raises the same error itself
        finally:
            self._poller = None
            self._changed.notify()

    async def backup(self, target: str | os.PathLike[str]) -> BackupResult:
        """See ``BacksUp``. Other reads of this handle wait. Cancelling the call does not stop the backup."""
        return await self._read(lambda: back_up(self._read_file, target))

    async def compact(self) -> CompactResult:
        """See ``Compacts``."""
        return await self._write(self._writer.compact)

    async def aclose(self) -> None:
        """See ``Store.aclose``. The store first carries out waiting appends. Cancelling the call does not stop it.

        On another event loop, it releases its resources without waiting and then raises ``StoreClosed``.
        """
        if self._closing is None:
            if not self._mark_closed():
                return
            self._changed.notify()
            if self._poller is not None:
                self._poller.cancel()
            with self._watching:
                self._watch_connection.close()
            self._reads.end()
            self._writes.end()
            self._check_loop()
            self._closing = asyncio.ensure_future(self._release())
        self._check_loop()
        await asyncio.shield(self._closing)

    async def _release(self) -> None:
        await self._reads.ended()
        await self._writes.ended()

    def _close_last(self) -> None:
        """Close the writing connection after the reading one.

        The last connection moves the write-ahead log into the file. If two close together, neither of them is the last.
        """
        self._reads.join()
        self._write_connection.close()

    @property
    def index_folder(self) -> IndexFolder | None:
        """See ``KeepsIndexes``."""
        return index_folder_of(self._settings)

    def _checked_runs(self, runs: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        return self._reader.heads.checked(runs)

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
        """Carry out jobs on the writing thread: consecutive appends in one commit, other jobs alone."""
        outcomes: list[object] = []
        appends: list[Append] = []
        for job in jobs:
            if isinstance(job, Append):
                appends.append(job)
                continue
            outcomes.extend(self._writer.append_group(appends))
            appends = []
            outcomes.extend(_call_each([job]))
        outcomes.extend(self._writer.append_group(appends))
        return outcomes


def _close_unwanted(opened: asyncio.Future[list[OpenFile]]) -> None:
    """Close the connections if their caller was cancelled."""
    if not opened.cancelled() and opened.exception() is None:
        close_all([file.connection for file in opened.result()])


class _Worker(Generic[_Job]):
    """A thread that runs jobs in order, up to ``most`` waiting jobs together.

    The thread calls ``carry_out`` with a list of jobs. ``carry_out`` returns the outcome of each job: a value, or an
    exception for its caller. The thread calls ``at_end`` after the last job.
    """

    def __init__(
        self, name: str, carry_out: Callable[[list[_Job]], list[object]], most: int, at_end: Callable[[], object]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[asyncio.Future[Any], _Job] | None] = SimpleQueue()
        self._carry_out = carry_out
        self._most = most
        self._at_end = at_end
        self.working = threading.Lock()
        """The lock that the thread holds while it carries out jobs."""
        self._ended = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, job: _Job) -> asyncio.Future[Any]:
        """Queue ``job`` and return a future of its outcome. Cancelling the future does not undo the job."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put((future, job))
        return future

    def end(self) -> None:
        """End the thread after the queued jobs."""
        self._queue.put(None)

    def join(self) -> None:
        """Block until the thread has ended."""
        self._thread.join()

    async def ended(self) -> None:
        """Wait until the thread has ended. Raises the error of ``at_end``, if any."""
        await asyncio.shield(self._ended)
        self.join()  # the thread sets the future in its last statement

    def _run(self) -> None:
        ended = False
        while not ended:
            item = self._queue.get()
            waiting: list[tuple[asyncio.Future[Any], _Job]] = []
            while item is not None:
                waiting.append(item)
                if len(waiting) == self._most or self._queue.empty():
                    break
                item = self._queue.get()  # at once, because only this thread takes jobs
            else:
                ended = True
            if waiting:
                self._finish(waiting)
        try:
            outcome: object = self._at_end()
        except Exception as error:  # noqa: BLE001  # it is raised where the end is awaited
            outcome = error
        self._call(_settle, [(self._ended, outcome)])

    def _finish(self, waiting: list[tuple[asyncio.Future[Any], _Job]]) -> None:
        try:
            with self.working:
                outcomes = self._carry_out([job for _, job in waiting])
        except BaseException as error:  # noqa: BLE001  # any error goes to the waiting callers
            outcomes = [error] * len(waiting)
        self._call(_settle, [(future, outcome) for (future, _), outcome in zip(waiting, outcomes, strict=True)])

    def _call(self, callback: Callable[[_Outcomes], None], outcomes: _Outcomes) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, outcomes)
        except RuntimeError:
            return  # the loop is closed, so no caller waits


def _settle(outcomes: _Outcomes) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue  # cancelled while it waited
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _call_each(jobs: list[Callable[[], _T]]) -> list[object]:
    """Carry out callables one by one, for a ``_Worker`` whose jobs are independent."""
    outcomes: list[object] = []
    for job in jobs:
        try:
            outcomes.append(job())
        except Exception as error:  # noqa: BLE001  # it is raised where the job is awaited
            outcomes.append(cast("object", error))
    return outcomes
