"""Helpers for tests that wait for another thread or task. Each wait has a time limit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

PATIENCE = 60
"""The number of seconds after which a condition that is still false fails the test."""


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop's other tasks run until ``condition()`` is true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  # the other threads set no event
            await asyncio.sleep(0.001)


_LOST = 5
"""The number of seconds after which a cancellation was lost. Another one could interrupt the work after the first."""


async def cancel(task: asyncio.Task[object]) -> None:
    """Cancel the task until it has ended, because ``wait_for`` of Python 3.11 can lose a cancellation."""
    async with asyncio.timeout(PATIENCE):
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_LOST)


def until_blocking(condition: Callable[[], object]) -> None:
    """Let other threads run until ``condition()`` is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"the condition was false for {PATIENCE} seconds"
        time.sleep(0.001)


def store_threads() -> list[str]:
    """Return the names of the threads that stores started in this process."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("amlog-")]
