"""Adapts a ``SyncStore`` to the ``Store`` protocol: each call and each follower runs in a thread.

This way, the same tests check both protocols. They also show that several threads can share a synchronous handle.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from agent_memory_log.events.event import Event
from agent_memory_log.store import Flaw, Store, SyncStore

_Result = TypeVar("_Result")


def threaded(raw: SyncStore) -> Store:
    """Adapt ``raw`` to a ``Store`` with the same optional capabilities."""
    return cast("Store", ThreadedStore(raw))


class ThreadedStore:
    """A ``Store`` that calls the methods of ``raw`` in threads."""

    def __init__(self, raw: SyncStore) -> None:
        self.raw = raw
        self._idle: list[Worker] = []
        self._ended = False
        for name in dir(raw):
            if not name.startswith("_") and not hasattr(self, name):
                setattr(self, name, self._in_a_thread(getattr(raw, name)))

    def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """See ``Store.follow``. One thread runs the generator for its whole life."""
        return self._each(self.raw.follow(agent, run, after=after))

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncGenerator[Flaw]:
        """See ``Store.check``."""
        return self._each(self.raw.check(agent_id, run_id))

    async def aclose(self) -> None:
        """See ``Store.aclose``. Idle threads end now; busy threads end after their call."""
        await self._call(self.raw.close)
        self._end()

    async def __aenter__(self) -> Self:
        await self._call(self.raw.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self._call(partial(self.raw.__exit__, kind, error, trace))
        self._end()

    def _end(self) -> None:
        self._ended = True
        while self._idle:
            self._idle.pop().stop()

    def _in_a_thread(self, method: Callable[..., _Result]) -> Callable[..., Awaitable[_Result]]:
        async def call(*arguments: Any, **options: Any) -> _Result:  # noqa: ANN401  # the arguments of any method
            return await self._call(partial(method, *arguments, **options))

        return call

    async def _call(self, function: Callable[[], _Result]) -> _Result:
        worker = self._worker()
        try:
            return await worker.call(function)
        finally:
            worker.post(lambda: self._release(worker))

    async def _each(self, iterator: Iterator[_Result]) -> AsyncGenerator[_Result]:
        worker = self._worker()
        end = object()
        try:
            while (item := await worker.call(lambda: next(iterator, end))) is not end:
                yield cast("_Result", item)
        finally:
            # After a cancelled wait, the thread is still inside the generator. It closes the generator when it returns.
            if isinstance(iterator, Generator):
                worker.post(iterator.close)
            worker.post(lambda: self._release(worker))

    def _worker(self) -> Worker:
        try:
            return self._idle.pop()
        except IndexError:
            return Worker()

    def _release(self, worker: Worker) -> None:
        if self._ended:
            worker.stop()
        else:
            self._idle.append(worker)


class Worker:
    """A daemon thread that makes calls in order. A call that never returns cannot keep the process alive.

    ``asyncio.to_thread`` does not work here: Python joins its pool at exit, and blocked followers use up its threads.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def post(self, call: Callable[[], object]) -> None:
        """Queue a call without waiting for it."""
        self._calls.put(call)

    def stop(self) -> None:
        """End the thread after the queued calls."""
        self._calls.put(None)

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """Make a call on the thread and return its result."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result] = loop.create_future()

        def settle(set_outcome: Callable[[], None]) -> None:
            if not done.done():
                set_outcome()

        def run() -> None:
            try:
                set_outcome = partial(done.set_result, function())
            except BaseException as error:  # noqa: BLE001  # raised again where the call is awaited
                set_outcome = partial(done.set_exception, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, set_outcome)

        self.post(run)
        return await done
