"""How writers of several handles share a run: how long each rests before it tries, and how that is learnt."""

from __future__ import annotations

import random
import time

_FIRST = 0.002
_LONGEST = 0.064
_GROWS = 2.0
_SHRINKS = 0.8
"""The window a writer's rest is drawn from, in seconds: it doubles when another was faster, and shrinks with an append.

A window that is forgotten with each append leaves the run to whoever won last, who need not look, and the others wait.
"""

_CONTESTED_SECONDS = 0.25
_SHARE_THAT_RESTS = 0.5
"""For how long after it was refused a writer rests before some of its appends to the run, and before how many of them.

Were all to rest, the server would idle; were none, few would get in. Measured with eight processes on one run.
"""

_MOST_RUNS = 10_000


class Contention:
    """The runs at which another writer was faster a moment ago."""

    def __init__(self) -> None:
        # Until when a run counts as contested, and its window.
        self._contested: dict[bytes, tuple[float, float]] = {}

    def rest(self, key: bytes) -> float:
        """For how many seconds at most to rest before an append that was not refused; 0: not at all."""
        until, window = self._contested.get(key, (0.0, 0.0))
        if time.monotonic() >= until:
            self._contested.pop(key, None)
            return 0.0
        return window if random.random() < _SHARE_THAT_RESTS else 0.0  # noqa: S311  # not for secrets

    def refused(self, key: bytes) -> float:
        """Note that another writer was faster; for how many seconds at most to rest before the next attempt."""
        if key not in self._contested and len(self._contested) >= _MOST_RUNS:
            self._contested.clear()
        _, window = self._contested.get(key, (0.0, 0.0))
        window = min(max(_FIRST, window * _GROWS), _LONGEST)
        self._contested[key] = (time.monotonic() + _CONTESTED_SECONDS, window)
        return window

    def stored(self, key: bytes) -> None:
        """Note that an append was stored."""
        contested = self._contested.get(key)
        if contested is not None:
            self._contested[key] = (contested[0], contested[1] * _SHRINKS)
