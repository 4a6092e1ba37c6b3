"""Follows a run in the background of a test, and waits for the requests of its change stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from agent_memory_log import Event, Store
from tests.tcp_proxy import TcpProxy
from tests.waiting import PATIENCE, until_blocking


class Follower:
    """A context manager that follows a run of the agent ``agent`` in a task and collects the events.

    If ``stop_at`` is given, the follower waits after this seq until the test calls ``go_on``.
    """

    def __init__(self, store: Store, run: str = "run", *, after: int = 0, stop_at: int | None = None) -> None:
        self.events: list[Event] = []
        self._store = store
        self._run = run
        self._after = after
        self._stop_at = stop_at
        self._may_go_on = asyncio.Event()
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    @property
    def seqs(self) -> list[int]:
        """The seqs of the collected events, in the order in which they came."""
        return [event.seq for event in self.events]

    def go_on(self) -> None:
        """Let the follower read the events after ``stop_at``."""
        self._may_go_on.set()

    async def until(self, seq: int) -> None:
        """Wait until the follower has the event ``seq``. Raise the follower's error if it ends earlier."""
        async with asyncio.timeout(PATIENCE):
            while seq not in self.seqs:
                if self.task.done():
                    self.task.result()
                self._news.clear()
                await self._news.wait()

    async def _follow(self) -> None:
        try:
            async for event in self._store.follow("agent", self._run, after=self._after):
                self.events.append(event)
                self._news.set()
                if event.seq == self._stop_at:
                    await self._may_go_on.wait()
        finally:
            self._news.set()


async def passing(condition: Callable[[], object]) -> None:
    """Wait until ``condition()`` is true, without blocking the event loop."""
    await asyncio.to_thread(until_blocking, condition)


async def stream_is_read(proxy: TcpProxy, times: int) -> None:
    """Wait until the proxy saw ``times`` more requests to a change stream. Each takes a quarter of a second."""
    expected = proxy.seen.count("getMore") + times
    await passing(lambda: proxy.seen.count("getMore") >= expected)
