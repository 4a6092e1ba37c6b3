"""The two surfaces of an in-memory store: the same operations, with and without ``await``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator, Mapping
from datetime import datetime

from agent_memory_log.backend_kit import (
    AsyncHandle,
    SyncHandle,
    check_after,
    check_append,
    check_before,
    check_ids,
    check_limit,
    check_listing,
    check_meta,
    check_not_reserved,
    check_runs,
    check_scope,
    check_seqs,
    check_types,
    prepare_batch,
)
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, ExpireResult, Flaw, RunHead, RunPage
from agent_memory_log_inmem.data import DEFAULT_MAX_EVENT_BYTES, Follower, MemoryData

_BATCH_EVENTS = 16
"""A batch may have the bytes of this many events of the largest size."""


class SyncMemoryStore(SyncHandle):
    """A ``SyncStore`` on data in this process's memory."""

    def __init__(self, data: MemoryData | None = None, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        """A handle on ``data``, by default new and empty; an event may have ``max_event_bytes`` as encoded."""
        super().__init__()
        self._data = MemoryData() if data is None else data
        self._max_event_bytes = max_event_bytes
        self._max_batch_bytes = max_event_bytes * _BATCH_EVENTS

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
        if self._unusable is not None:
            self._check_open()
        check_ids(agent, run)
        if expected_version is not None or first_seq is not None:
            check_append(expected_version, first_seq)
        batch = prepare_batch(events, self._max_event_bytes, self._max_batch_bytes)
        check_not_reserved(agent, batch, reserved=reserved)
        owned_meta = None if meta is None else check_meta(meta)
        return self._data.append(agent, run, batch, expected_version, owned_meta, first_seq)

    def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Snapshot:
        """See ``Store.load_run``."""
        self._check_open()
        check_ids(agent, run)
        check_after(after)
        check_limit(limit)
        return self._data.load(agent, run, after, check_types(types), limit)

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        """See ``Store.follow``."""
        self._check_open()
        check_ids(agent, run)
        check_after(after)
        follower = Follower(after)
        while True:
            self._check_open()
            seen = self._data.changed.count
            event = self._data.next_event(agent, run, follower)
            if event is None:
                self._data.changed.wait(seen, follower.patience())
            else:
                yield event

    def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``Store.list_runs``."""
        self._check_open()
        check_listing(agent, limit)
        return self._data.list(agent, limit, cursor, include_reserved)

    def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        self._check_open()
        check_ids(agent, run)
        return self._data.redact(agent, run, check_seqs(seqs), reason)

    def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        self._check_open()
        check_ids(agent, run)
        self._data.delete(agent, run)

    def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Store.expire_runs``."""
        self._check_open()
        return self._data.expire(check_before(before), dry_run=dry_run)

    def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        self._check_open()
        return self._data.peek(check_runs(runs))

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> Iterator[Flaw]:
        """See ``Store.check``. Memory has neither checksums nor indexes that could differ from what is stored."""
        self._check_open()
        check_scope(agent_id, run_id)
        yield from ()

    def reset(self) -> None:
        """Empty the data behind this handle, as if every run in it had never been; for tests."""
        self._check_open()
        self._data.reset()

    def close(self) -> None:
        """See ``Store.aclose``."""
        if self._mark_closed():
            self._data.changed.notify()


class MemoryStore(AsyncHandle):
    """A ``Store`` on data in this process's memory."""

    def __init__(self, data: MemoryData | None = None, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        """A handle on ``data``, by default new and empty; an event may have ``max_event_bytes`` as encoded."""
        super().__init__()
        self._data = MemoryData() if data is None else data
        self._sync = SyncMemoryStore(self._data, max_event_bytes)

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
        """See ``Store.append_events``."""
        self._check_open()
        return self._sync.append_events(
            agent,
            run,
            *events,
            expected_version=expected_version,
            meta=meta,
            first_seq=first_seq,
            reserved=reserved,
        )

    async def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Snapshot:
        """See ``Store.load_run``."""
        self._check_open()
        return self._sync.load_run(agent, run, after=after, types=types, limit=limit)

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """See ``Store.follow``."""
        self._check_open()
        check_ids(agent, run)
        check_after(after)
        follower = Follower(after)
        while True:
            self._check_open()
            seen = self._data.changed.count
            event = self._data.next_event(agent, run, follower)
            if event is None:
                await self._data.changed.wait_async(seen, follower.patience())
            else:
                yield event

    async def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``Store.list_runs``."""
        self._check_open()
        return self._sync.list_runs(agent, limit=limit, cursor=cursor, include_reserved=include_reserved)

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        self._check_open()
        return self._sync.redact_events(agent, run, seqs, reason=reason)

    async def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        self._check_open()
        self._sync.delete_run(agent, run)

    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Store.expire_runs``."""
        self._check_open()
        return self._sync.expire_runs(before=before, dry_run=dry_run)

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        self._check_open()
        return self._sync.peek_runs(runs)

    async def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncIterator[Flaw]:
        """See ``Store.check``."""
        self._check_open()
        for flaw in self._sync.check(agent_id, run_id):
            yield flaw

    async def reset(self) -> None:
        """Empty the data behind this handle, as if every run in it had never been; for tests."""
        self._check_open()
        self._sync.reset()

    async def aclose(self) -> None:
        """See ``Store.aclose``."""
        if self._mark_closed():
            self._sync.close()
            self._check_loop()
