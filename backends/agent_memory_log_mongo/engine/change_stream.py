"""How followers learn of news: one change stream for each handle, and polling where there is none.

The stream only says that something was appended; what it was is read by seq. So a stream that breaks, or a server that
goes away, costs a read and loses nothing, and no resume token need be kept.
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
"""How long the server holds a stream's request open. As long as that, a run that is newly followed is polled for."""

PATIENCE_SECONDS = 2.0
"""How long a stream, or the driver, may keep a handle from closing when the server does not answer."""

_POLL_SECONDS = 0.05
_RETRY_SECONDS = 0.25


class Signals:
    """A signal for each run that is followed, and which runs those are."""

    def __init__(self) -> None:
        self._signals: dict[bytes, ChangeSignal] = {}
        self._followers: Counter[bytes] = Counter()
        self._lock = threading.Lock()
        self._covered: frozenset[bytes] = frozenset()

    def add(self, key: bytes) -> None:
        """Note another follower of a run."""
        with self._lock:
            self._followers[key] += 1
            self._signals.setdefault(key, ChangeSignal())

    def remove(self, key: bytes) -> None:
        """Note that a follower is gone."""
        with self._lock:
            self._followers[key] -= 1
            if not self._followers[key]:
                del self._followers[key], self._signals[key]

    def keys(self) -> frozenset[bytes]:
        """The runs that are followed."""
        with self._lock:
            return frozenset(self._followers)

    def of(self, key: bytes) -> ChangeSignal:
        """The signal of a run that is followed."""
        return self._signals[key]

    def notify(self, key: bytes) -> None:
        """Wake the followers of a run, if there are any."""
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
        """Note the runs whose news a stream brings from now on; what came before it, followers look for themselves."""
        if keys != self._covered:
            self._covered = keys
            self.notify_all()

    def seconds_to_wait(self, key: bytes, until: int | None) -> float | None:
        """How long a follower waits before it looks without being told to; ``until`` is its run's end."""
        end = seconds_left(until)
        if key in self._covered:
            return end
        return _POLL_SECONDS if end is None else min(end, _POLL_SECONDS)

    def take(self, change: Mapping[str, Any]) -> None:
        """Wake those whom a stream's change concerns."""
        document: Mapping[str, Any] | None = change.get("fullDocument")
        if document is None:
            self.notify_all()
        else:
            self.notify(bytes(document["k"]))


def pipeline(keys: frozenset[bytes]) -> list[dict[str, object]]:
    """What a stream is to bring: the inserts of commits of these runs, and of those only their key."""
    return [
        {"$match": {"operationType": "insert", "fullDocument.k": {"$in": sorted(keys)}}},
        {"$project": {"fullDocument.k": 1}},
    ]


class Watcher:
    """Watches for one handle, on a thread or as a task that lives while somebody follows."""

    def __init__(self, collection: Any, signals: Signals, surface: Surface) -> None:  # noqa: ANN401  # of any driver
        self._collection = collection
        self._signals = signals
        self._surface = surface
        self._lock = threading.Lock()
        self._running: object = None
        self._ended = False

    def start(self) -> None:
        """See to it that somebody watches."""
        with self._lock:
            if self._running is None and not self._ended:
                self._running = self._surface.spawn(self._watch())

    def end(self) -> object:
        """Have the thread or the task end soon, and return it; None where there is none."""
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
                    return  # followers poll; what ran stays noted, so that nothing is started again
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
                # Motor opens a stream when it is first asked for a change.
                self._signals.cover(keys)
                if change is not None:
                    self._signals.take(change)
        finally:
            with suppress(PyMongoError), pymongo.timeout(PATIENCE_SECONDS):
                await finished(stream.close())
