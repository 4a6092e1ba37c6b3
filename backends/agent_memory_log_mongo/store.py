"""The asynchronous surface, on pymongo's ``AsyncMongoClient`` or Motor's ``AsyncIOMotorClient``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, Self, TypeVar, cast

import pymongo

from agent_memory_log.backend_kit import AsyncHandle, check_before
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, ExpireResult, Flaw, RunHead, RunPage
from agent_memory_log_mongo import calls
from agent_memory_log_mongo.place import Place, Queues
from agent_memory_log_mongo.replies import AsyncBytes
from agent_memory_log_mongo.run import AsyncDatabase, Clock, carry_out_async, database_of, run_async
from agent_memory_log_mongo.schema import prepare
from agent_memory_log_mongo.settings import Settings
from agent_memory_log_mongo.steps import Count, News, Request, Settled, Steps
from agent_memory_log_mongo.watch import PATIENCE_SECONDS, AsyncCollection, Signals, TaskWatcher

_T = TypeVar("_T")


class AsyncClient(Protocol):
    """What is used of ``pymongo.AsyncMongoClient`` and of ``motor.motor_asyncio.AsyncIOMotorClient``."""

    def __getitem__(self, name: str, /) -> Any:  # noqa: ANN401  # a database, of either driver
        ...

    def close(self) -> Awaitable[None] | None:
        """Close all connections; pymongo's is awaited, Motor's is not."""
        ...


class MongoStore(AsyncHandle):
    """A ``Store`` in a MongoDB database. Use ``open_store("mongodb://…")``, or ``MongoStore.open`` with a client."""

    def __init__(self, client: AsyncClient, database: str, settings: Settings, *, owns_client: bool) -> None:
        """Use ``open``, which also looks at the database."""
        super().__init__()
        settings.warn_of_what_is_given_up()
        self._client = client
        self._owns_client = owns_client
        self._place = Place(settings)
        opened = database_of(client, database, "MongoStore", is_sync=False)
        self._database = cast("AsyncDatabase", opened)
        self._name = f"MongoDB database {database}"
        self._queues = Queues(asyncio.Lock)
        self._signals = Signals()
        self._closing: asyncio.Future[None] | None = None
        collection = cast("AsyncCollection", opened[self._place.commits])
        self._watcher = TaskWatcher(collection, self._signals)

    @classmethod
    async def open(
        cls, client: AsyncClient, database: str, settings: Settings | None = None, *, owns_client: bool = False
    ) -> Self:
        """Open the store in ``database``; the client stays the caller's unless ``owns_client``.

        Raises ``InvalidArgument`` for a client of another kind or what is no name of a database, ``StoreUnavailable``,
        ``SchemaTooNew``.
        """
        store = cls(client, database, settings or Settings(), owns_client=owns_client)
        try:
            await store._run(prepare(store._place))
        except BaseException:
            await store.aclose()
            raise
        return store

    async def append_events(
        self,
        agent: str,
        run: str,
        *events: Event,
        expected_version: int | None = None,
        meta: Mapping[str, JsonValue] | None = None,
        first_seq: int | None = None,
        reserved: bool = False,
    ) -> AppendResult:
        """See ``Store.append_events``. A cancelled call may or may not have stored its events: append them again."""
        self._check_open()
        wanted = calls.append(self._place, agent, run, events, expected_version, meta, first_seq, reserved=reserved)
        clock = self._clock()
        queue = self._queues.of(wanted.run.key)
        if queue.locked():
            try:
                async with asyncio.timeout(clock.left()):
                    await queue.acquire()
            except TimeoutError as error:
                raise calls.kept_waiting(self._name, wanted) from error
        else:
            await queue.acquire()
        try:
            self._check_open()
            result = await run_async(calls.carry_out_append(self._place, wanted), self._database, clock)
        finally:
            queue.release()
        if result.inserted:
            self._signals.notify(wanted.run.key)
        return result

    async def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Snapshot:
        """See ``Store.load_run``. Where ``types`` names one of the commonest, it walks the run from ``after`` on."""
        return await self._run(calls.load(self._place, agent, run, after, types, limit))

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """See ``Store.follow``. Once it has read the run, it waits for a server that is away as long as it must."""
        self._check_open()
        key, steps = calls.follow(self._place, agent, run, after)
        clock = self._clock()
        self._signals.add(key)
        answer: object = None
        try:
            while True:
                self._check_open()
                try:
                    request = steps.send(answer)
                except StopIteration:
                    return
                if isinstance(request, Event):
                    yield request
                    answer = None
                else:
                    answer = await self._answer(request, clock)
        finally:
            self._signals.remove(key)

    async def _answer(self, request: Request, clock: Clock) -> object:
        if isinstance(request, Count):
            return self._signals.of(request.key).count
        if isinstance(request, News):
            self._watcher.start()
            patience = self._signals.seconds_to_wait(request.key, request.until)
            await self._signals.of(request.key).wait_async(request.seen, patience)
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
        """See ``Store.list_runs``."""
        return await self._run(calls.list_runs(self._place, agent, limit, cursor, include_reserved))

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        key, steps = calls.redact(self._place, agent, run, seqs, reason)
        result = await self._run(steps)
        self._signals.notify(key)
        return result

    async def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        key, steps = calls.delete(self._place, agent, run)
        await self._run(steps)
        self._signals.notify(key)

    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Store.expire_runs``. The timeout is that of each run's removal, and of each look for more."""
        instant = check_before(before)
        result = await self._run(calls.expire(self._place, instant, dry_run))
        self._signals.notify_all()
        return result

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``. One query for each thousand runs."""
        return await self._run(calls.peek_runs(self._place, runs))

    async def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncGenerator[Flaw]:
        """See ``Store.check``. Newest commits that were removed by hand leave no trace; of an agent, listed runs."""
        self._check_open()
        steps = calls.check(self._place, agent_id, run_id)
        database, clock = AsyncBytes(self._database), self._clock()
        answer: object = None
        while True:
            self._check_open()
            try:
                request = steps.send(answer)
            except StopIteration:
                return
            if isinstance(request, Flaw):
                yield request
                answer = None
            else:
                answer = await carry_out_async(request, database, clock)

    async def aclose(self) -> None:
        """See ``Store.aclose``. On another event loop, marks the handle closed and raises ``StoreClosed``."""
        if self._closing is None:
            self._mark_closed()
            self._signals.notify_all()
            self._check_loop()
            self._closing = asyncio.ensure_future(self._release())
        self._check_loop()
        await asyncio.shield(self._closing)

    async def _release(self) -> None:
        await self._watcher.end()
        if self._owns_client:
            with pymongo.timeout(PATIENCE_SECONDS):
                closing = self._client.close()
                if inspect.isawaitable(closing):
                    await closing

    async def _run(self, steps: Steps[_T]) -> _T:
        self._check_open()
        return await run_async(steps, self._database, self._clock())

    def _clock(self) -> Clock:
        return Clock(self._place.settings.timeout_seconds, self._name, self._place.forget)
