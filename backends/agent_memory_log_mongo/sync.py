"""The synchronous surface, on pymongo's ``MongoClient``."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar, cast

import pymongo
from pymongo import MongoClient

from agent_memory_log.backend_kit import SyncHandle, check_before
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, ExpireResult, Flaw, RunHead, RunPage
from agent_memory_log_mongo import calls
from agent_memory_log_mongo.place import Place, Queues
from agent_memory_log_mongo.replies import SyncBytes
from agent_memory_log_mongo.run import Clock, SyncDatabase, carry_out_sync, database_of, run_sync
from agent_memory_log_mongo.schema import prepare
from agent_memory_log_mongo.settings import Settings
from agent_memory_log_mongo.steps import Count, News, Request, Settled, Steps
from agent_memory_log_mongo.watch import PATIENCE_SECONDS, Signals, SyncCollection, ThreadWatcher

_T = TypeVar("_T")


class SyncMongoStore(SyncHandle):
    """A ``SyncStore`` in a MongoDB database. Use ``open_sync_store("mongodb://…")``, or give a client."""

    def __init__(
        self, client: MongoClient[Any], database: str, settings: Settings | None = None, *, owns_client: bool = False
    ) -> None:
        """Open the store in ``database``; the client stays the caller's unless ``owns_client``.

        Raises ``InvalidArgument`` for a client of another kind or what is no name of a database, ``StoreUnavailable``,
        ``SchemaTooNew``.
        """
        super().__init__()
        settings = settings or Settings()
        settings.warn_of_what_is_given_up()
        self._client = client
        self._owns_client = owns_client
        self._place = Place(settings)
        opened = database_of(client, database, "SyncMongoStore", is_sync=True)
        self._database = cast("SyncDatabase", opened)
        self._name = f"MongoDB database {database}"
        self._queues = Queues(threading.Lock)
        self._signals = Signals()
        collection = cast("SyncCollection", opened[self._place.commits])
        self._watcher = ThreadWatcher(collection, self._signals)
        self._run(prepare(self._place))

    def append_events(
        self,
        agent: str,
        run: str,
        *events: Event,
        expected_version: int | None = None,
        meta: Mapping[str, JsonValue] | None = None,
        first_seq: int | None = None,
        reserved: bool = False,
    ) -> AppendResult:
        """See ``Store.append_events``."""
        self._check_open()
        wanted = calls.append(self._place, agent, run, events, expected_version, meta, first_seq, reserved=reserved)
        clock = self._clock()
        queue = self._queues.of(wanted.run.key)
        if not queue.acquire(timeout=clock.left()):
            raise calls.kept_waiting(self._name, wanted)
        try:
            self._check_open()
            result = run_sync(calls.carry_out_append(self._place, wanted), self._database, clock)
        finally:
            queue.release()
        if result.inserted:
            self._signals.notify(wanted.run.key)
        return result

    def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Snapshot:
        """See ``Store.load_run``. Where ``types`` names one of the commonest, it walks the run from ``after`` on."""
        return self._run(calls.load(self._place, agent, run, after, types, limit))

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
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
                    answer = self._answer(request, clock)
        finally:
            self._signals.remove(key)

    def _answer(self, request: Request, clock: Clock) -> object:
        if isinstance(request, Count):
            return self._signals.of(request.key).count
        if isinstance(request, News):
            self._watcher.start()
            self._signals.of(request.key).wait(request.seen, self._signals.seconds_to_wait(request.key, request.until))
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
        """See ``Store.list_runs``."""
        return self._run(calls.list_runs(self._place, agent, limit, cursor, include_reserved))

    def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        key, steps = calls.redact(self._place, agent, run, seqs, reason)
        result = self._run(steps)
        self._signals.notify(key)
        return result

    def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        key, steps = calls.delete(self._place, agent, run)
        self._run(steps)
        self._signals.notify(key)

    def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Store.expire_runs``. The timeout is that of each run's removal, and of each look for more."""
        instant = check_before(before)
        result = self._run(calls.expire(self._place, instant, dry_run))
        self._signals.notify_all()
        return result

    def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``. One query for each thousand runs."""
        return self._run(calls.peek_runs(self._place, runs))

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> Generator[Flaw]:
        """See ``Store.check``. Newest commits that were removed by hand leave no trace; of an agent, listed runs."""
        self._check_open()
        steps = calls.check(self._place, agent_id, run_id)
        database, clock = SyncBytes(self._database), self._clock()
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
                answer = carry_out_sync(request, database, clock)

    def close(self) -> None:
        """See ``Store.aclose``."""
        if not self._mark_closed():
            return
        self._signals.notify_all()
        self._watcher.end()
        if self._owns_client:
            with pymongo.timeout(PATIENCE_SECONDS):
                self._client.close()

    def _run(self, steps: Steps[_T]) -> _T:
        self._check_open()
        return run_sync(steps, self._database, self._clock())

    def _clock(self) -> Clock:
        return Clock(self._place.settings.timeout_seconds, self._name, self._place.forget)
