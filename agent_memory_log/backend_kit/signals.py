"""Wake-ups inside a process: writers wake followers, which may wait in any thread or event loop."""

from __future__ import annotations

import asyncio
import itertools
import threading


class ChangeSignal:
    """A counter of changes that threads and tasks can wait on.

    To miss no change, read ``count`` first, then look for new events. If there are no new events, call ``wait`` with
    that count. It returns at once if a change happened in between.
    """

    def __init__(self) -> None:
        self.count = 0
        self._numbers = itertools.count(1)
        self._condition = threading.Condition()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()
        self._sleepers = 0

    def notify(self) -> None:
        """Count a change and wake all waiting threads and tasks."""
        # With `+= 1`, two threads could set the same number, and a waiter would miss the second change.
        self.count = next(self._numbers)
        if self._sleepers or self._waiting:
            self._wake()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()
            waiting, self._waiting = self._waiting, set()
        for loop, future in waiting:
            try:
                loop.call_soon_threadsafe(_finish, future)
            except RuntimeError:
                continue  # the loop is closed, so no task waits on it

    def wait(self, count: int, timeout: float | None) -> bool:
        """Block until a change happens after ``count``, and return whether one happened.

        ``timeout`` is in seconds. None waits without a limit.
        """
        with self._condition:
            self._sleepers += 1
            try:
                return self._condition.wait_for(lambda: self.count != count, timeout)
            finally:
                self._sleepers -= 1

    async def wait_async(self, count: int, timeout: float | None) -> bool:
        """Wait in a task until a change happens after ``count``. See ``wait``."""
        loop = asyncio.get_running_loop()
        entry = (loop, loop.create_future())
        with self._condition:
            self._waiting.add(entry)
        try:
            if self.count == count:
                async with asyncio.timeout(timeout):
                    await entry[1]
        except TimeoutError:
            pass
        finally:
            with self._condition:
                self._waiting.discard(entry)
        return self.count != count


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
