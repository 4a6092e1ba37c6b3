"""How a test of the suite runs: in an event loop of its own, on handles that are closed afterwards, never hanging.

Nothing here says what a store promises.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import ClassVar, TypeVar

import pytest

from agent_memory_log.conformance.threaded import ThreadedStore, threaded
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
            if isinstance(store, ThreadedStore):
                store.end()

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
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()

    def settle(result: _Result | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]  # None only beside an error, or where it is the result
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = asyncio.run(work())
        except BaseException as raised:  # noqa: BLE001  # raised again where the work is awaited
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    # A daemon, so that a store that never answers cannot keep the process from ending.
    threading.Thread(target=run, daemon=True).start()
    return await done


_AnySuite = TypeVar("_AnySuite", bound=Suite)


def contract(
    test: Callable[[_AnySuite, Handles], Coroutine[None, None, None]],
) -> Callable[[_AnySuite, OpenHandle], None]:
    """Make an asynchronous test one that plain pytest runs, with ``open_handle`` still its fixture."""

    def run(suite: _AnySuite, open_handle: OpenHandle) -> None:
        async def within_patience() -> None:
            handles = Handles(open_handle)
            waiting = asyncio.timeout(suite.patience)
            try:
                async with waiting:
                    await test(suite, handles)
            except TimeoutError:
                if not waiting.expired():
                    raise
                pytest.fail(f"the store kept the test waiting for {suite.patience} seconds")
            finally:
                async with asyncio.timeout(suite.patience):
                    await handles.close()

        asyncio.run(within_patience())

    functools.update_wrapper(run, test)  # pytest reads the fixtures' names from the test it wraps
    return run


async def settle() -> None:
    """Let a task that was just started reach its wait; there is no event that says it has."""
    await asyncio.sleep(0.01)
