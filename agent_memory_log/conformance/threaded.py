"""A ``SyncStore`` behind the ``Store`` protocol: each call runs in a thread, and so does a follower's wait.

The suite has one form this way, and proves that a synchronous handle can be used from several threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from datetime import datetime
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, ExpireResult, ExpiresSync, PeeksSync, RunHead, RunPage, SyncStore

_Result = TypeVar("_Result")


class ThreadedStore:
    """A ``Store`` whose calls are those of ``raw``, in threads."""

    def __init__(self, raw: SyncStore) -> None:
        self.raw = raw
        self._idle: list[_Worker] = []
        self._ended = False

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
        """See ``Store.append_events``."""
        return await self._call(
            lambda: self.raw.append_events(
                agent,
                run,
                *events,
                expected_version=expected_version,
                meta=meta,
                first_seq=first_seq,
                reserved=reserved,
            )
        )

    async def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Snapshot:
        """See ``Store.load_run``."""
        return await self._call(lambda: self.raw.load_run(agent, run, after=after, types=types, limit=limit))

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """See ``Store.follow``; one thread runs the generator for its whole life."""
        worker = self._worker()
        events = self.raw.follow(agent, run, after=after)
        try:
            while True:
                event = await worker.call(lambda: next(events, None))
                if event is None:
                    return
                yield event
        finally:
            # When the wait was cancelled the thread is still in it, and the generator is closed once it comes back.
            worker.post(events.close)
            worker.post(lambda: self._release(worker))

    async def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``Store.list_runs``."""
        return await self._call(
            lambda: self.raw.list_runs(agent, limit=limit, cursor=cursor, include_reserved=include_reserved)
        )

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        return await self._call(lambda: self.raw.redact_events(agent, run, seqs, reason=reason))

    async def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        await self._call(lambda: self.raw.delete_run(agent, run))

    async def aclose(self) -> None:
        """See ``Store.aclose``."""
        await self._call(self.raw.close)

    async def __aenter__(self) -> Self:
        await self._call(self.raw.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self._call(lambda: self.raw.__exit__(kind, error, trace))

    def end(self) -> None:
        """Let the threads go; those still in a call go when it returns."""
        self._ended = True
        while self._idle:
            self._idle.pop().stop()

    async def _call(self, function: Callable[[], _Result]) -> _Result:
        worker = self._worker()
        try:
            return await worker.call(function)
        finally:
            worker.post(lambda: self._release(worker))

    def _worker(self) -> _Worker:
        try:
            return self._idle.pop()
        except IndexError:
            return _Worker()

    def _release(self, worker: _Worker) -> None:
        if self._ended:
            worker.stop()
        else:
            self._idle.append(worker)


class ThreadedExpiringStore(ThreadedStore):
    """A ``ThreadedStore`` whose ``raw`` is an ``ExpiresSync`` as well, and so one that ``Expires``."""

    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Expires.expire_runs``."""
        raw = self.raw
        assert isinstance(raw, ExpiresSync)
        return await self._call(lambda: raw.expire_runs(before=before, dry_run=dry_run))


class ThreadedPeekingStore(ThreadedStore):
    """A ``ThreadedStore`` whose ``raw`` is a ``PeeksSync`` as well, and so one that ``Peeks``."""

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Peeks.peek_runs``."""
        raw = self.raw
        assert isinstance(raw, PeeksSync)
        return await self._call(lambda: raw.peek_runs(runs))


class ThreadedCapableStore(ThreadedExpiringStore, ThreadedPeekingStore):
    """A ``ThreadedStore`` whose ``raw`` is both."""


def threaded(raw: SyncStore) -> ThreadedStore:
    """``raw`` as a ``Store``, with what it is capable of."""
    if isinstance(raw, ExpiresSync):
        return ThreadedCapableStore(raw) if isinstance(raw, PeeksSync) else ThreadedExpiringStore(raw)
    return ThreadedPeekingStore(raw) if isinstance(raw, PeeksSync) else ThreadedStore(raw)


class _Worker:
    """A thread that makes calls in turn. A daemon, so that a call that never returns cannot keep the process alive.

    ``asyncio.to_thread`` would not do: its pool is joined at exit, and blocked followers use up its few threads.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def post(self, call: Callable[[], object]) -> None:
        """Make a call after those before it; nobody waits for it."""
        self._calls.put(call)

    def stop(self) -> None:
        """End the thread after the calls before it."""
        self._calls.put(None)

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """Make a call and return what it returns."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result] = loop.create_future()

        def settle(set_outcome: Callable[[], None]) -> None:
            if not done.done():
                set_outcome()

        def run() -> None:
            set_outcome: Callable[[], None]
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001  # raised again where the call is awaited
                raised = error
                set_outcome = lambda: done.set_exception(raised)  # noqa: E731  # one of two outcomes
            else:
                set_outcome = lambda: done.set_result(result)  # noqa: E731  # the other one
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, set_outcome)

        self._calls.put(run)
        return await done
