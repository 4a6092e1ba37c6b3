"""Waiting in tests for what another thread or task does, and for no longer than patience lasts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

PATIENCE = 60
"""Seconds after which something that should have happened is a failure."""


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop's other tasks run until ``condition()`` is true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  # what threads do sets no event
            await asyncio.sleep(0)


def until_blocking(condition: Callable[[], object]) -> None:
    """Let other threads run until ``condition()`` is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.001)


def store_threads() -> list[str]:
    """The names of the threads that stores have in this process."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("amlog-")]
