"""How a test of the suite runs: in an event loop of its own, on handles that are closed afterwards, never hanging.

Nothing here says what a store promises.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import ClassVar, TypeVar

import pytest

from agent_memory_log.conformance.threaded import Worker, threaded
from agent_memory_log.events.event import Event
from agent_memory_log.store import Store, SyncStore

OpenHandle = Callable[[], Awaitable[Store] | Store | SyncStore]
"""What the ``open_handle`` fixture gives: each call returns a new handle on the same data."""

_Result = TypeVar("_Result")


class Suite:
    """The base of the suite's classes. ``patience``: seconds after which a test fails that waits for the store."""

    patience: ClassVar[float] = 30.0


class Handles:
    """Opens handles for one test, whatever their kind, and closes them when it is over."""

    def __init__(self, open_handle: OpenHandle) -> None:
        self._open_handle = open_handle
        self._opened: list[Store] = []

    async def __call__(self) -> Store:
        """A new handle on the test's data."""
        opened = self._open_handle()
        if isinstance(opened, Awaitable):
            opened = await opened
        # Both protocols have methods of the same names; only these two differ.
        store: Store = opened if hasattr(opened, "aclose") else threaded(opened)  # type: ignore[assignment]  # hasattr does not narrow a union of protocols
        self._opened.append(store)
        return store

    async def close(self) -> None:
        """Close every handle that was opened."""
        for store in reversed(self._opened):
            await store.aclose()

    async def on_threads(
        self, count: int, work: Callable[[Store, int], Coroutine[None, None, _Result]]
    ) -> list[_Result]:
        """Run ``work(store, number)`` on ``count`` threads, each with an event loop and a handle of its own."""

        async def alone(number: int) -> _Result:
            handles = Handles(self._open_handle)
            try:
                return await work(await handles(), number)
            finally:
                await handles.close()

        return await asyncio.gather(*(on_another_loop(functools.partial(alone, number)) for number in range(count)))


async def on_another_loop(work: Callable[[], Coroutine[None, None, _Result]]) -> _Result:
    """Run ``work()`` on a new event loop in a new thread."""
    worker = Worker()
    try:
        return await worker.call(lambda: asyncio.run(work()))
    finally:
        worker.stop()


_AnySuite = TypeVar("_AnySuite", bound=type[Suite])
_Test = Callable[..., Coroutine[None, None, None]]


def contract(suite: _AnySuite) -> _AnySuite:
    """Make the asynchronous tests of a suite's class ones that plain pytest runs, with the fixture ``open_handle``.

    A test names the handles that it needs: its parameter ``open_handle`` is the test's ``Handles``, and each other one
    is a new handle on the same data.
    """
    for name, test in list(vars(suite).items()):
        if name.startswith("test_"):
            setattr(suite, name, _runnable(test))
    return suite


def _runnable(test: _Test) -> Callable[[Suite, OpenHandle], None]:
    parameters = list(inspect.signature(test).parameters)[1:]

    def run(suite: Suite, open_handle: OpenHandle) -> None:
        async def within_patience() -> None:
            handles = Handles(open_handle)
            waiting = asyncio.timeout(suite.patience)
            try:
                async with waiting:
                    await test(suite, *[handles if name == "open_handle" else await handles() for name in parameters])
            except TimeoutError:
                if not waiting.expired():
                    raise
                pytest.fail(f"the store kept the test waiting for {suite.patience} seconds")
            finally:
                async with asyncio.timeout(suite.patience):
                    await handles.close()

        asyncio.run(within_patience())

    own_signature = inspect.signature(run)
    functools.update_wrapper(run, test)
    run.__signature__ = own_signature  # type: ignore[attr-defined]  # where pytest reads the names of the fixtures
    return run


async def settle() -> None:
    """Let a task that was just started reach its wait; there is no event that says it has."""
    await asyncio.sleep(0.01)


async def waiting_next(events: AsyncGenerator[Event]) -> asyncio.Task[Event]:
    """The next event of a follower, as a task that has reached its wait."""
    waiting = asyncio.create_task(anext(events))
    await settle()
    return waiting
