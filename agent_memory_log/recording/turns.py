"""Runs a recorder's operations in the order in which they were started."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """A queue of operations in one event loop.

    ``join`` reserves a turn without waiting, so an operation keeps its turn even if a new task runs it later. A lock
    would give the turn to the first task that runs.
    """

    def __init__(self) -> None:
        self._queue: deque[asyncio.Future[None]] = deque()

    def join(self) -> asyncio.Future[None]:
        """Return a future at the end of the queue. It is done when its turn begins; ``leave`` removes it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        if len(self._queue) == 1:
            turn.set_result(None)
        return turn

    def leave(self, turn: asyncio.Future[None]) -> None:
        """Remove a turn from the queue, even if it has not begun. Do nothing if it was removed before."""
        if turn not in self._queue:
            return
        was_first = self._queue[0] is turn
        self._queue.remove(turn)
        if was_first and self._queue and not self._queue[0].done():
            self._queue[0].set_result(None)
