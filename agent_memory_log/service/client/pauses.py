"""Tells a follower whether its consumer paused between two events, so that events of its batch may be redacted now."""

from __future__ import annotations

import asyncio
import time

_LONGEST = 0.01
"""The seconds after which a batch counts as old, also for a consumer that waited for nothing."""


class AsyncPauses:
    """Notices the pauses of an asynchronous consumer: when it lets the event loop run, or takes 10 ms."""

    def __init__(self) -> None:
        self._handle: asyncio.Handle | None = None
        self._since = 0.0

    def begin(self) -> None:
        """Note that a batch is new."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_soon(self._note)
        self._since = time.monotonic()

    def _note(self) -> None:
        self._handle = None

    @property
    def was_long(self) -> bool:
        """True if the consumer paused since ``begin``."""
        return self._handle is None or time.monotonic() - self._since > _LONGEST


class SyncPauses:
    """Assumes a pause between any two events, because the work of a synchronous consumer leaves no sign."""

    was_long = True

    def begin(self) -> None:
        """See ``AsyncPauses``."""
