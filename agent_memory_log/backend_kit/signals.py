"""Wake-ups inside a process: writers tell followers, in whatever thread or event loop those wait, of news."""

from __future__ import annotations

import asyncio
import itertools
import threading


class ChangeSignal:
    """A counter of changes that threads and tasks can wait on.

    Read ``count`` before looking for news; if there is none, wait with that number: a change in between is not missed.
    """

    def __init__(self) -> None:
        self.count = 0
        self._numbers = itertools.count(1)
        self._condition = threading.Condition()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()
        self._sleepers = 0

    def notify(self) -> None:
        """Count a change and wake everyone who waits."""
        # Not `+= 1`: two threads could make the same number of it, and a waiter miss the second change.
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
                continue  # the loop is closed, and nobody waits on it any more

    def wait(self, seen: int, timeout: float | None) -> bool:
        """Block until there was a change after ``seen``; whether there was.

        ``timeout`` is in seconds; None waits for ever.
        """
        with self._condition:
            self._sleepers += 1
            try:
                return self._condition.wait_for(lambda: self.count != seen, timeout)
            finally:
                self._sleepers -= 1

    async def wait_async(self, seen: int, timeout: float | None) -> bool:
        """``wait`` for a task."""
        loop = asyncio.get_running_loop()
        entry = (loop, loop.create_future())
        with self._condition:
            self._waiting.add(entry)
        try:
            if self.count == seen:
                async with asyncio.timeout(timeout):
                    await entry[1]
        except TimeoutError:
            pass
        finally:
            with self._condition:
                self._waiting.discard(entry)
        return self.count != seen


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
