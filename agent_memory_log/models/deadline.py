"""A deadline that is measured with a monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable

Timer = Callable[[], float]
"""A clock in seconds that never runs backwards. Its start value has no meaning."""


class Deadline:
    """A point in time that is ``seconds`` after the creation of the object."""

    def __init__(self, seconds: float, timer: Timer = time.monotonic) -> None:
        self._timer = timer
        self._end = timer() + seconds

    def left(self) -> float:
        """Return the remaining seconds. The number is 0 or negative after the deadline."""
        return self._end - self._timer()

    @property
    def has_passed(self) -> bool:
        """True after the deadline."""
        return self.left() <= 0
