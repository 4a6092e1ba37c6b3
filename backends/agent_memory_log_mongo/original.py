"""What the Go original (goa-ai / loom-mcp, v1.0.3) keeps in MongoDB, as a store to read and to copy from.

Nothing is ever sent that could change it: ``aggregate``, ``find`` and, where a reply does not hold all of a page,
``killCursors``. What is asked and what it means is in ``original_reads.py``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator
from typing import Any, Self, TypeVar, cast

from pymongo import MongoClient

from agent_memory_log.backend_kit import AsyncHandle, ChangeSignal, SyncHandle, check_runs, check_scope
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, ExpireResult, Flaw, RunHead, RunPage
from agent_memory_log_mongo import original_reads as reads
from agent_memory_log_mongo.replies import AsyncBytes, SyncBytes
from agent_memory_log_mongo.run import (
    AsyncDatabase,
    Clock,
    SyncDatabase,
    carry_out_async,
    carry_out_sync,
    database_of,
    run_async,
    run_sync,
)
from agent_memory_log_mongo.settings import Settings
from agent_memory_log_mongo.steps import Count, News, Request, Settled, Steps
from agent_memory_log_mongo.store import AsyncClient

DEFAULT_COLLECTION = "agent_memory"

_T = TypeVar("_T")

_POLL_SECONDS = 0.5
"""How often a follower looks: the server reads the whole document each time, whatever it returns."""


def _read_only() -> InvalidArgument:
    return InvalidArgument(
        "this is the Go original's layout, which is only read: copy it first, as in "
        "amlog copy 'mongodb://HOST/DATABASE?layout=original' TARGET_URL, and change the copy"
    )


class OriginalStore(AsyncHandle):
    """The original's collection as a ``Store`` that refuses to change it.

    Use ``open_store("mongodb://…?layout=original")``, or ``OriginalStore.open`` with a client.
    """

    def __init__(
        self, client: AsyncClient, database: str, collection: str, settings: Settings, *, owns_client: bool
    ) -> None:
        """Use ``open``, which also looks at the database."""
        super().__init__()
        self._client = client
        self._owns_client = owns_client
        self._database = AsyncBytes(
            cast("AsyncDatabase", database_of(client, database, "OriginalStore", is_sync=False))
        )
        self._source = reads.Source(collection, settings.read_concern)
        self._seconds = settings.timeout_seconds
        self._name = f"MongoDB database {database}"
        self._closing_signal = ChangeSignal()
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(
        cls,
        client: AsyncClient,
        database: str,
        collection: str = DEFAULT_COLLECTION,
        settings: Settings | None = None,
        *,
        owns_client: bool = False,
    ) -> Self:
        """Open ``collection`` in ``database``; the client stays the caller's unless ``owns_client``.

        Of ``settings``, the read concern and the timeout matter. Raises ``StoreUnavailable``, and ``SchemaTooNew`` for
        what a later release of the original wrote.
        """
        store = cls(client, database, collection, settings or Settings(), owns_client=owns_client)
        try:
            await store._run(reads.check(store._source))
        except BaseException:
            await store.aclose()
            raise
        return store

    async def append_events(self, agent: str, run: str, *_events: Event, **_options: object) -> AppendResult:
        """Refuse. Raises ``InvalidArgument``."""
        del agent, run
        raise _read_only()

    async def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Snapshot:
        """See ``Store.load_run``. With ``types``, reads all of the run from ``after`` on."""
        return await self._run(reads.load(self._source, agent, run, after, types, limit))

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """See ``Store.follow``. Looks twice a second, since nothing in this layout tells of news."""
        self._check_open()
        steps = reads.follow(self._source, agent, run, after)
        clock = self._clock()
        answer: object = None
        while True:
            self._check_open()
            request = steps.send(answer)
            if isinstance(request, Event):
                yield request
                answer = None
            else:
                answer = await self._answer(request, clock)

    async def _answer(self, request: Request, clock: Clock) -> object:
        if isinstance(request, Count):
            return self._closing_signal.count
        if isinstance(request, News):
            await self._closing_signal.wait_async(request.seen, _POLL_SECONDS)
            return None
        if isinstance(request, Settled):
            clock.lasts(self._check_open)
            return None
        return await carry_out_async(request, self._database, clock)

    async def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``Store.list_runs``.

        A meta that cannot be read is left out; loading the run says why. Raises ``DecodeError`` for a document whose
        ids are none.
        """
        return await self._run(reads.list_runs(self._source, agent, limit, cursor, include_reserved))

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """Refuse. Raises ``InvalidArgument``."""
        del agent, run, seqs, reason
        raise _read_only()

    async def delete_run(self, agent: str, run: str) -> None:
        """Refuse. Raises ``InvalidArgument``."""
        del agent, run
        raise _read_only()

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``. Reads the run of each pair."""
        snapshots = [await self.load_run(*pair, limit=1) for pair in check_runs(runs)]
        return tuple([RunHead(snapshot.version, snapshot.first_seq) for snapshot in snapshots])

    async def expire_runs(self, **_options: object) -> ExpireResult:
        """Refuse. Raises ``InvalidArgument``."""
        raise _read_only()

    async def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncIterator[Flaw]:
        """See ``Store.check``. The original stores no checksums: there is nothing to compare."""
        self._check_open()
        check_scope(agent_id, run_id)
        for flaw in tuple[Flaw, ...]():
            yield flaw

    async def aclose(self) -> None:
        """See ``Store.aclose``. On another event loop, marks the handle closed and raises ``StoreClosed``."""
        if self._closing is None:
            self._mark_closed()
            self._closing_signal.notify()
            self._check_loop()
            self._closing = asyncio.ensure_future(self._release())
        self._check_loop()
        await asyncio.shield(self._closing)

    async def _release(self) -> None:
        if self._owns_client:
            closing = self._client.close()
            if inspect.isawaitable(closing):
                await closing

    async def _run(self, steps: Steps[_T]) -> _T:
        self._check_open()
        return await run_async(steps, self._database, self._clock())

    def _clock(self) -> Clock:
        return Clock(self._seconds, self._name)


class SyncOriginalStore(SyncHandle):
    """``OriginalStore`` without ``await``, on pymongo's ``MongoClient``."""

    def __init__(
        self,
        client: MongoClient[Any],
        database: str,
        collection: str = DEFAULT_COLLECTION,
        settings: Settings | None = None,
        *,
        owns_client: bool = False,
    ) -> None:
        """See ``OriginalStore.open``."""
        super().__init__()
        settings = settings or Settings()
        self._client = client
        self._owns_client = owns_client
        self._database = SyncBytes(
            cast("SyncDatabase", database_of(client, database, "SyncOriginalStore", is_sync=True))
        )
        self._source = reads.Source(collection, settings.read_concern)
        self._seconds = settings.timeout_seconds
        self._name = f"MongoDB database {database}"
        self._closing_signal = ChangeSignal()
        self._run(reads.check(self._source))

    def append_events(self, agent: str, run: str, *_events: Event, **_options: object) -> AppendResult:
        """Refuse. Raises ``InvalidArgument``."""
        del agent, run
        raise _read_only()

    def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Snapshot:
        """See ``OriginalStore.load_run``."""
        return self._run(reads.load(self._source, agent, run, after, types, limit))

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        """See ``OriginalStore.follow``."""
        self._check_open()
        steps = reads.follow(self._source, agent, run, after)
        clock = self._clock()
        answer: object = None
        while True:
            self._check_open()
            request = steps.send(answer)
            if isinstance(request, Event):
                yield request
                answer = None
            else:
                answer = self._answer(request, clock)

    def _answer(self, request: Request, clock: Clock) -> object:
        if isinstance(request, Count):
            return self._closing_signal.count
        if isinstance(request, News):
            self._closing_signal.wait(request.seen, _POLL_SECONDS)
            return None
        if isinstance(request, Settled):
            clock.lasts(self._check_open)
            return None
        return carry_out_sync(request, self._database, clock)

    def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``OriginalStore.list_runs``."""
        return self._run(reads.list_runs(self._source, agent, limit, cursor, include_reserved))

    def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """Refuse. Raises ``InvalidArgument``."""
        del agent, run, seqs, reason
        raise _read_only()

    def delete_run(self, agent: str, run: str) -> None:
        """Refuse. Raises ``InvalidArgument``."""
        del agent, run
        raise _read_only()

    def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``. Reads the run of each pair."""
        snapshots = [self.load_run(*pair, limit=1) for pair in check_runs(runs)]
        return tuple([RunHead(snapshot.version, snapshot.first_seq) for snapshot in snapshots])

    def expire_runs(self, **_options: object) -> ExpireResult:
        """Refuse. Raises ``InvalidArgument``."""
        raise _read_only()

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> Iterator[Flaw]:
        """See ``Store.check``. The original stores no checksums: there is nothing to compare."""
        self._check_open()
        check_scope(agent_id, run_id)
        yield from ()

    def close(self) -> None:
        """See ``Store.aclose``."""
        if not self._mark_closed():
            return
        self._closing_signal.notify()
        if self._owns_client:
            self._client.close()

    def _run(self, steps: Steps[_T]) -> _T:
        self._check_open()
        return run_sync(steps, self._database, self._clock())

    def _clock(self) -> Clock:
        return Clock(self._seconds, self._name)
