"""Notifies followers of new events: one change stream for each handle, or polling if the server has no change streams.

The stream only reports that a run changed. Each follower then reads the new events by seq. So a broken stream or a
server failure costs one more read and loses no event, and no resume token is needed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pymongo
from pymongo.errors import OperationFailure, PyMongoError

from agent_memory_log.backend_kit import ChangeSignal, seconds_left
from agent_memory_log_mongo.engine.driver_errors import has_no_change_streams
from agent_memory_log_mongo.engine.surface import Surface, finished

_AWAIT_MS = 250
"""The time for which the server holds a stream's request open, in milliseconds.

A newly followed run is polled for up to this time, until the new stream covers it.
"""

PATIENCE_SECONDS = 2.0
"""The longest time for which a stream or the driver may delay closing, if the server does not respond."""

_POLL_SECONDS = 0.05
_RETRY_SECONDS = 0.25


class Signals:
    """The followed runs, with one signal for each."""

    def __init__(self) -> None:
        self._signals: dict[bytes, ChangeSignal] = {}
        self._followers: Counter[bytes] = Counter()
        self._lock = threading.Lock()
        self._covered: frozenset[bytes] = frozenset()

    def add(self, key: bytes) -> None:
        """Add a follower of a run."""
        with self._lock:
            self._followers[key] += 1
            self._signals.setdefault(key, ChangeSignal())

    def remove(self, key: bytes) -> None:
        """Remove a follower of a run."""
        with self._lock:
            self._followers[key] -= 1
            if not self._followers[key]:
                del self._followers[key], self._signals[key]

    def keys(self) -> frozenset[bytes]:
        """Return the keys of the followed runs."""
        with self._lock:
            return frozenset(self._followers)

    def of(self, key: bytes) -> ChangeSignal:
        """Return the signal of a followed run."""
        return self._signals[key]

    def notify(self, key: bytes) -> None:
        """Wake the followers of a run, if it has any."""
        signal = self._signals.get(key)
        if signal is not None:
            signal.notify()

    def notify_all(self) -> None:
        """Wake all followers."""
        with self._lock:
            signals = list(self._signals.values())
        for signal in signals:
            signal.notify()

    def cover(self, keys: frozenset[bytes]) -> None:
        """Set the runs that a stream covers from now on.

        All followers are woken, so that each reads the events from before the stream.
        """
        if keys != self._covered:
            self._covered = keys
            self.notify_all()

    def seconds_to_wait(self, key: bytes, until: int | None) -> float | None:
        """Return the seconds after which a follower reads its run without a signal, or None for no limit.

        ``until`` is the end of the run in microseconds since 1970, or None.
        """
        end = seconds_left(until)
        if key in self._covered:
            return end
        return _POLL_SECONDS if end is None else min(end, _POLL_SECONDS)

    def take(self, change: Mapping[str, Any]) -> None:
        """Wake the followers of the run that a change names, or all followers if it names no run."""
        document: Mapping[str, Any] | None = change.get("fullDocument")
        if document is None:
            self.notify_all()
        else:
            self.notify(bytes(document["k"]))


def pipeline(keys: frozenset[bytes]) -> list[dict[str, object]]:
    """Return the pipeline of a stream that reports the keys of these runs when a commit is inserted."""
    return [
        {"$match": {"operationType": "insert", "fullDocument.k": {"$in": sorted(keys)}}},
        {"$project": {"fullDocument.k": 1}},
    ]


class Watcher:
    """The thread or task that reads the change stream of one handle. It runs while the handle has followers."""

    def __init__(self, collection: Any, signals: Signals, surface: Surface) -> None:  # noqa: ANN401  # a collection of any driver
        self._collection = collection
        self._signals = signals
        self._surface = surface
        self._lock = threading.Lock()
        self._running: object = None
        self._ended = False

    def start(self) -> None:
        """Start the thread or the task, unless it runs already."""
        with self._lock:
            if self._running is None and not self._ended:
                self._running = self._surface.spawn(self._watch())

    def end(self) -> object:
        """Ask the thread or the task to end soon. Return it, or None if there is no such thread or task."""
        with self._lock:
            self._ended = True
            return self._running

    async def _watch(self) -> None:
        while True:
            with self._lock:
                keys = self._signals.keys()
                if self._ended or not keys:
                    self._running = None
                    return
            try:
                await self._watch_runs(keys)
            except PyMongoError as error:
                if isinstance(error, OperationFailure) and has_no_change_streams(error):
                    return  # followers poll from now on; self._running stays set, so start() does nothing
                await finished(self._surface.sleep(_RETRY_SECONDS))
            finally:
                self._signals.cover(frozenset())

    async def _watch_runs(self, keys: frozenset[bytes]) -> None:
        with pymongo.timeout(PATIENCE_SECONDS):
            stream = await finished(self._collection.watch(pipeline(keys), max_await_time_ms=_AWAIT_MS))
        try:
            while not self._ended and self._signals.keys() == keys:
                with pymongo.timeout(PATIENCE_SECONDS):
                    change = await finished(stream.try_next())
                # Motor opens the stream at the first request for a change, so the runs are covered only now.
                self._signals.cover(keys)
                if change is not None:
                    self._signals.take(change)
        finally:
            with suppress(PyMongoError), pymongo.timeout(PATIENCE_SECONDS):
                await finished(stream.close())
