"""Runs each test of the suite on its own event loop with a time limit, and closes the test's handles.

This module has no tests itself.
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
"""The type of the ``open_handle`` fixture's value: each call returns a new handle on the same data."""

_Result = TypeVar("_Result")


class Suite:
    """The base of the suite's classes.

    Attributes:
        patience: The seconds that a test may take before it fails. The default is 30.
    """

    patience: ClassVar[float] = 30.0


class Handles:
    """The handles of one test, asynchronous or synchronous, which are closed when the test ends."""

    def __init__(self, open_handle: OpenHandle) -> None:
        self._open_handle = open_handle
        self._opened: list[Store] = []

    async def __call__(self) -> Store:
        """Open a new handle on the test's data."""
        opened = self._open_handle()
        if isinstance(opened, Awaitable):
            opened = await opened
        # The two protocols have the same method names, except `aclose` and `close`.
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
        """Run ``work(store, number)`` on ``count`` threads, each with its own event loop and handle."""

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
    """Decorate a suite's class so that plain pytest can run its asynchronous tests.

    A test's parameters name the handles that it needs. The parameter ``open_handle`` is the test's ``Handles``. Each
    other parameter is a new handle on the same data.
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
    run.__signature__ = own_signature  # type: ignore[attr-defined]  # pytest reads the fixture names from the signature
    return run


async def settle() -> None:
    """Wait briefly, so that a new task reaches its wait. No event signals that it has."""
    await asyncio.sleep(0.01)


async def waiting_next(events: AsyncGenerator[Event]) -> asyncio.Task[Event]:
    """Start a task that waits for a follower's next event, and let it reach its wait."""
    waiting = asyncio.create_task(anext(events))
    await settle()
    return waiting
