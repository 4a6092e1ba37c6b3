"""The asynchronous surface, on pymongo's ``AsyncMongoClient`` or Motor's ``AsyncIOMotorClient``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import datetime
from typing import Self

from agent_memory_log.backend_kit import checked_append
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, ExpireResult, Flaw, RunHead, RunPage
from agent_memory_log_mongo.operations import appending, checking, following, reading, removing, run_documents
from agent_memory_log_mongo.operations.preparing import prepare
from agent_memory_log_mongo.settings import MAX_DOCUMENT_BYTES, Settings
from agent_memory_log_mongo.task_handle import Client, Handle


class MongoStore(Handle):
    """A ``Store`` in a MongoDB database. Give its URL to ``open_store``, or a client to ``open``."""

    @classmethod
    async def open(
        cls, client: Client, database: str, settings: Settings | None = None, *, owns_client: bool = False
    ) -> Self:
        """Open the store in ``database``; the client stays the caller's unless ``owns_client``.

        Raises ``InvalidArgument`` for a client of another kind or what is no name of a database, ``StoreUnavailable``,
        ``SchemaTooNew``.
        """
        settings = settings or Settings()
        settings.warn_of_what_is_given_up()
        store = cls(client, database, settings, owns_client=owns_client)
        try:
            await store._run(prepare)
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
        wanted = checked_append(
            agent,
            run,
            events,
            expected_version,
            meta,
            first_seq,
            reserved=reserved,
            max_event_bytes=self._database.settings.max_event_bytes,
            max_batch_bytes=MAX_DOCUMENT_BYTES,
        )
        return await self._run(lambda call: appending.append(call, wanted))

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
        return await self._run(lambda call: reading.load(call, agent, run, after, types, limit))

    def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """See ``Store.follow``. Once it has read the run, it waits for a server that is away as long as it must."""
        return self._stream(lambda call: following.follow(call, agent, run, after))

    async def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``Store.list_runs``."""
        return await self._run(lambda call: run_documents.list_runs(call, agent, limit, cursor, include_reserved))

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        return await self._run(lambda call: removing.redact(call, agent, run, seqs, reason))

    async def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        await self._run(lambda call: removing.delete(call, agent, run))

    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Store.expire_runs``. The timeout is that of each run's removal, and of each look for more."""
        return await self._run(lambda call: removing.expire(call, before, dry_run=dry_run))

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``. One query for each thousand runs."""
        return await self._run(lambda call: run_documents.peek_runs(call, runs))

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncGenerator[Flaw]:
        """See ``Store.check``. Newest commits that were removed by hand leave no trace; of an agent, listed runs."""
        return self._stream(lambda call: checking.check(call, agent_id, run_id))
