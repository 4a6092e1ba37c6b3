"""How to wait, on threads and on tasks: all in which the two kinds of handle differ."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from agent_memory_log.backend_kit import ChangeSignal

_T = TypeVar("_T")


class Surface(msgspec.Struct, frozen=True):
    """How to wait: on threads, where these block, or on tasks, where they return an awaitable."""

    make_lock: Callable[[], object]
    acquire: Callable[[Any, float], object]
    sleep: Callable[[float], object]
    wait: Callable[[ChangeSignal, int, float | None], object]
    spawn: Callable[[Coroutine[object, object, None]], object]


async def finished(answer: Awaitable[_T] | _T) -> _T:
    """What the driver or a wait answered, awaited on tasks.

    A cancellation is never lost, as Python 3.11's ``wait_for``, in the driver, may do.
    """
    if not inspect.isawaitable(answer):
        return answer
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    try:
        return await answer
    finally:
        if task is not None and task.cancelling() > cancels:
            raise asyncio.CancelledError
