"""How followers learn of news: one change stream for each handle, and polling where there is none.

The stream only says that something was appended; what it was is read by seq. So a stream that breaks, or a server that
goes away, costs a read and loses nothing, and no resume token need be kept.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import pymongo
from pymongo.errors import OperationFailure, PyMongoError

from agent_memory_log.backend_kit import ChangeSignal, seconds_left
from agent_memory_log_mongo.failures import has_no_change_streams

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


class Stream(Protocol):
    """What is used of ``pymongo.change_stream.ChangeStream``."""

    def try_next(self) -> Mapping[str, Any] | None:
        """The next change, None when there was none for a while."""
        ...

    def close(self) -> None:
        """End the stream."""
        ...


class SyncCollection(Protocol):
    """What is used of ``pymongo.collection.Collection`` here."""

    def watch(self, pipeline: list[dict[str, object]], *, max_await_time_ms: int) -> Stream:
        """Open a change stream."""
        ...


class AsyncStream(Protocol):
    """What is used of pymongo's ``AsyncChangeStream``, and of Motor's."""

    def try_next(self) -> Awaitable[Mapping[str, Any] | None]:
        """The next change, None when there was none for a while."""
        ...

    def close(self) -> Awaitable[None]:
        """End the stream."""
        ...


class AsyncCollection(Protocol):
    """What is used of pymongo's ``AsyncCollection``, and of Motor's, which is not awaited."""

    def watch(
        self, pipeline: list[dict[str, object]], *, max_await_time_ms: int
    ) -> Awaitable[AsyncStream] | AsyncStream:
        """Open a change stream."""
        ...


class ThreadWatcher:
    """Watches for a synchronous handle, on a thread that lives while somebody follows."""

    def __init__(self, collection: SyncCollection, signals: Signals) -> None:
        self._collection = collection
        self._signals = signals
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = False

    def start(self) -> None:
        """See to it that the thread runs."""
        with self._lock:
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._run, name="amlog-mongo-watch", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """End the thread, and wait until it has."""
        with self._lock:
            self._ended = True
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._ended or not self._signals.keys():
                    self._signals.cover(frozenset())
                    self._thread = None
                    return
            try:
                self._watch(self._signals.keys())
            except OperationFailure as error:
                if has_no_change_streams(error):
                    return  # followers poll; the thread stays noted, so that none is started again
                time.sleep(_RETRY_SECONDS)
            except PyMongoError:
                time.sleep(_RETRY_SECONDS)
            finally:
                self._signals.cover(frozenset())

    def _watch(self, keys: frozenset[bytes]) -> None:
        with pymongo.timeout(PATIENCE_SECONDS):
            stream = self._collection.watch(pipeline(keys), max_await_time_ms=_AWAIT_MS)
        try:
            self._signals.cover(keys)
            while not self._ended and self._signals.keys() == keys:
                with pymongo.timeout(PATIENCE_SECONDS):
                    change = stream.try_next()
                if change is not None:
                    self._signals.take(change)
        finally:
            with suppress(PyMongoError), pymongo.timeout(PATIENCE_SECONDS):
                stream.close()


class TaskWatcher:
    """Watches for an asynchronous handle, as a task that lives while somebody follows."""

    def __init__(self, collection: AsyncCollection, signals: Signals) -> None:
        self._collection = collection
        self._signals = signals
        self._task: asyncio.Task[None] | None = None
        self._in_threads = False
        self._ended = False

    def start(self) -> None:
        """See to it that the task runs."""
        if self._task is None and not self._ended:
            self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """End the task, and wait until it has."""
        self._ended = True
        if self._task is not None:
            # A thread of Motor's goes on when its task is cancelled, and would meet a stream that is being closed.
            if not self._in_threads:
                self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self._ended and self._signals.keys():
            try:
                await self._watch(self._signals.keys())
            except OperationFailure as error:
                if has_no_change_streams(error):
                    return
                await asyncio.sleep(_RETRY_SECONDS)
            except PyMongoError:
                await asyncio.sleep(_RETRY_SECONDS)
            finally:
                self._signals.cover(frozenset())
        self._task = None

    async def _watch(self, keys: frozenset[bytes]) -> None:
        with pymongo.timeout(PATIENCE_SECONDS):
            opening = self._collection.watch(pipeline(keys), max_await_time_ms=_AWAIT_MS)
            # pymongo's is awaited; Motor's is not, and is opened when it is first asked.
            stream = await opening if inspect.isawaitable(opening) else opening
        self._in_threads = stream is opening
        try:
            if self._in_threads:
                with pymongo.timeout(PATIENCE_SECONDS):
                    await stream.try_next()
            self._signals.cover(keys)
            while not self._ended and self._signals.keys() == keys:
                with pymongo.timeout(PATIENCE_SECONDS):
                    change = await stream.try_next()
                if change is not None:
                    self._signals.take(change)
        finally:
            with suppress(PyMongoError), pymongo.timeout(PATIENCE_SECONDS):
                await stream.close()
