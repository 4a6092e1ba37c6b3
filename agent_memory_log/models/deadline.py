"""How much time is left of what was allowed."""

from __future__ import annotations

import time
from collections.abc import Callable

Timer = Callable[[], float]
"""Seconds that only ever grow, from any start."""


class Deadline:
    """The end of ``seconds`` that begin now."""

    def __init__(self, seconds: float, timer: Timer = time.monotonic) -> None:
        self._timer = timer
        self._end = timer() + seconds

    def left(self) -> float:
        """The seconds that are left; 0 or less when it has passed."""
        return self._end - self._timer()

    @property
    def has_passed(self) -> bool:
        """Whether nothing is left."""
        return self.left() <= 0
