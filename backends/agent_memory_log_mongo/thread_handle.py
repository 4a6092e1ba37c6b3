"""The base class of the synchronous store: a handle whose calls block."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

import pymongo
from pymongo import MongoClient

from agent_memory_log.backend_kit import ChangeSignal, SyncHandle
from agent_memory_log.errors import InvalidArgument
from agent_memory_log_mongo.engine.call import Call
from agent_memory_log_mongo.engine.change_stream import PATIENCE_SECONDS
from agent_memory_log_mongo.engine.database import OpenDatabase
from agent_memory_log_mongo.engine.surface import Surface
from agent_memory_log_mongo.settings import Settings

_T = TypeVar("_T")

Client = MongoClient[Any]


class Handle(SyncHandle):
    """A handle that runs its operations in the caller's thread."""

    def __init__(self, client: Client, database: str, settings: Settings, *, owns_client: bool) -> None:
        """Raise ``InvalidArgument`` if the client has the wrong type or the database name is invalid."""
        super().__init__()
        if not isinstance(client, MongoClient):
            raise InvalidArgument(f"{type(self).__name__} takes pymongo's MongoClient, got a {type(client).__name__}")
        self._client = client
        self._owns_client = owns_client
        self._database = OpenDatabase(client, database, settings, _THREADS)

    def _run(self, operation: Callable[[Call], Awaitable[_T]]) -> _T:
        self._check_open()
        return run_at_once(operation(Call(self._database, self._check_open)))

    def _stream(self, operation: Callable[[Call], AsyncGenerator[_T]]) -> Generator[_T]:
        """Yield the items of an operation. Raise ``StoreClosed`` once the handle is closed."""
        items = operation(Call(self._database, self._check_open, is_stream=True))
        try:
            while True:
                self._check_open()
                yield run_at_once(anext(items))
        except StopAsyncIteration:
            return
        finally:
            run_at_once(items.aclose())

    def close(self) -> None:
        """Close the handle, as ``Store.aclose`` describes."""
        if not self._mark_closed():
            return
        self._database.signals.notify_all()
        watching = cast("threading.Thread | None", self._database.watcher.end())
        if watching is not None:
            watching.join()
        if self._owns_client:
            with pymongo.timeout(PATIENCE_SECONDS):
                self._client.close()


def run_at_once(operation: Awaitable[_T]) -> _T:
    """Run a coroutine to its end. The synchronous client and the waits block, so it never suspends."""
    running = cast("Coroutine[object, None, _T]", operation)
    try:
        running.send(None)
    except StopIteration as end:
        return cast("_T", end.value)
    running.close()
    raise AssertionError("an operation was suspended, but no event loop exists to resume it")


def _acquire(lock: threading.Lock, seconds: float) -> bool:
    return lock.acquire(timeout=seconds)


def _spawn(operation: Coroutine[object, object, None]) -> threading.Thread:
    thread = threading.Thread(target=run_at_once, args=(operation,), name="amlog-mongo-watch", daemon=True)
    thread.start()
    return thread


_THREADS = Surface(threading.Lock, _acquire, time.sleep, ChangeSignal.wait, _spawn)
