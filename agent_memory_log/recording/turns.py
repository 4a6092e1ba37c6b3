"""Turns: a recorder's operations are carried out in the order they were begun."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Tasks of one event loop, one behind the other.

    A place is taken without waiting, by ``join``: what is then left to a task of its own keeps its turn, which a lock
    would give to whoever runs first.
    """

    def __init__(self) -> None:
        self._places: deque[asyncio.Future[None]] = deque()

    def join(self) -> asyncio.Future[None]:
        """Take the last place; awaiting it waits for the turn. It must be given up with ``leave``."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._places.append(place)
        if len(self._places) == 1:
            place.set_result(None)
        return place

    def leave(self, place: asyncio.Future[None]) -> None:
        """Give a place up, whether or not its turn had come; again does nothing."""
        if place not in self._places:
            return
        was_first = self._places[0] is place
        self._places.remove(place)
        if was_first and self._places and not self._places[0].done():
            self._places[0].set_result(None)
