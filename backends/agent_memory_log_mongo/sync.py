"""Made from ``store.py`` by ``python -m tools.sync_twin``, without ``await``.

Any number of threads may use it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from datetime import datetime
from typing import Self

from agent_memory_log.backend_kit import checked_append
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, Erasures, ExpireResult, Flaw, RunHead, RunPage
from agent_memory_log_mongo.operations import (
    appending,
    checking,
    finding,
    following,
    journal,
    loading,
    removing,
    run_documents,
)
from agent_memory_log_mongo.operations.preparing import prepare
from agent_memory_log_mongo.settings import MAX_DOCUMENT_BYTES, Settings
from agent_memory_log_mongo.thread_handle import Client, Handle


class SyncMongoStore(Handle):
    """A ``SyncStore`` in a MongoDB database. Pass its URL to ``open_sync_store``, or a client to ``open``."""

    @classmethod
    def open(
        cls, client: Client, database: str, settings: Settings | None = None, *, owns_client: bool = False
    ) -> Self:
        """Open the store in ``database``. Create its collections and indexes if they do not exist yet.

        Args:
            client: a client of the driver.
            database: the name of the database.
            settings: the settings of the store. They override the client's read and write concerns.
            owns_client: whether closing the store also closes the client (default false).

        Raises:
            InvalidArgument: the client has the wrong type, the database name is invalid, or the database holds only
                data of the Go original.
            StoreUnavailable: the server cannot be reached in time, or it refused a command.
            SchemaTooNew: a newer release of this library wrote the database.
        """
        settings = settings or Settings()
        settings.warn_of_weaker_promises()
        store = cls(client, database, settings, owns_client=owns_client)
        try:
            store._run(prepare)
        except BaseException:
            store.close()
            raise
        return store

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
        """Append events, as ``Store.append_events`` describes.

        A cancelled call may have stored its events. It is safe to append the same events again.
        """
        request = checked_append(
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
        return self._run(lambda call: appending.append(call, request))

    def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> Snapshot:
        """Load a run, as ``Store.load_run`` describes.

        ``types`` uses an index. If it names ``assistant_message``, ``thinking``, ``tool_call`` or ``tool_result``, the
        call reads every event after ``after`` instead, or with ``last`` the run from its end back to the events.
        """
        return self._run(lambda call: loading.load(call, agent, run, after, types, limit, last))

    def find_events(self, agent: str, run: str, event_ids: Iterable[str]) -> tuple[Event | None, ...]:
        """Return the events with these ids, as ``Store.find_events`` describes, with a query for each 2,000 ids."""
        return self._run(lambda call: finding.find_events(call, agent, run, event_ids))

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        """Follow a run, as ``Store.follow`` describes.

        After its first read of the run, it waits without a time limit for a server that cannot be reached.
        """
        return self._stream(lambda call: following.follow(call, agent, run, after))

    def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """List runs, as ``Store.list_runs`` describes."""
        return self._run(lambda call: run_documents.list_runs(call, agent, limit, cursor, include_reserved))

    def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """Redact events, as ``Store.redact_events`` describes."""
        return self._run(lambda call: removing.redact(call, agent, run, seqs, reason))

    def delete_run(self, agent: str, run: str) -> None:
        """Delete a run, as ``Store.delete_run`` describes."""
        self._run(lambda call: removing.delete(call, agent, run))

    def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """Delete expired runs, as ``Store.expire_runs`` describes.

        The timeout applies separately to each search for expired runs and to each deletion.
        """
        return self._run(lambda call: removing.expire(call, before, dry_run=dry_run))

    def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """Return the heads of runs, as ``Store.peek_runs`` describes, with one query for each 1,000 runs."""
        return self._run(lambda call: run_documents.peek_runs(call, runs))

    def erasures(
        self, *, after: int = 0, runs: Iterable[tuple[str, str]] | None = None, limit: int | None = None
    ) -> Erasures:
        """Read the erasure journal, as ``Store.erasures`` describes."""
        return self._run(lambda call: journal.erasures(call, after, runs, limit))

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> Generator[Flaw]:
        """Yield the flaws of stored runs, as ``Store.check`` describes.

        It cannot detect that the newest commits of a run were removed. With an ``agent_id`` alone, it checks only the
        runs that have a document in the runs collection.
        """
        return self._stream(lambda call: checking.check(call, agent_id, run_id))
