"""The operations in which the synchronous and the asynchronous handle differ: locks, waits and background work."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from agent_memory_log.backend_kit import ChangeSignal

_T = TypeVar("_T")


class Surface(msgspec.Struct, frozen=True):
    """The functions by which a handle waits. On a thread they block. In a task they return an awaitable.

    Attributes:
        make_lock: makes a lock.
        acquire: acquires a lock, and returns whether it succeeded within some seconds.
        sleep: waits for some seconds.
        wait: waits for a signal to change.
        spawn: starts a thread or a task.
    """

    make_lock: Callable[[], object]
    acquire: Callable[[Any, float], object]
    sleep: Callable[[float], object]
    wait: Callable[[ChangeSignal, int, float | None], object]
    spawn: Callable[[Coroutine[object, object, None]], object]


async def finished(result: Awaitable[_T] | _T) -> _T:
    """Return the result of a driver's method or a wait, after awaiting it if it is an awaitable.

    ``wait_for`` of Python 3.11, which the driver uses, can lose a cancellation. This function raises it again.
    """
    if not inspect.isawaitable(result):
        return result
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    try:
        return await result
    finally:
        if task is not None and task.cancelling() > cancels:
            raise asyncio.CancelledError
