"""The asynchronous store of a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Self

from agent_memory_log.backend_kit import (
    DEFAULT_MAX_EVENT_BYTES,
    check_after,
    check_before,
    check_erasures,
    check_event_ids,
    check_ids,
    check_listing,
    check_load,
    check_runs,
    check_scope,
    check_seqs,
    checked_append,
    prepare,
)
from agent_memory_log.errors import AccessDenied, RunDeleted, Unauthenticated
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.memory.records.arguments import Operation, Result
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.service.client import pages
from agent_memory_log.service.client.address import Address
from agent_memory_log.service.client.connection import Connection
from agent_memory_log.service.client.pauses import AsyncPauses
from agent_memory_log.service.client.results import append_result, check_cursor
from agent_memory_log.service.store_operations import (
    AppendEvents,
    CheckStore,
    DeleteRun,
    ExpireRuns,
    FindEvents,
    FollowRun,
    ListRuns,
    LoadRun,
    PeekRuns,
    ReadErasures,
    RedactEvents,
)
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import run_async
from agent_memory_log.store import AppendResult, Erasures, ExpireResult, Flaw, RunHead, RunPage

_MOST_RUNS = 10_000
"""The largest limit of ``list_runs`` in one request."""

_FOLLOW_EVENTS = 64
"""The most events that a follower reads at once."""


class RemoteStore(Connection):
    """A ``Store`` on a server. Pass its URL to ``open_store``."""

    @classmethod
    async def open(cls, address: Address) -> Self:
        """Open the store, and check that the server knows the token.

        Raises:
            StoreUnavailable: No server of this library answers at the address.
            Unauthenticated: The server does not know the token.
        """
        store = cls(address)
        try:
            await store.call(PeekRuns(()), is_opening=True)
        except BaseException as error:
            # A token that may not read may still append.
            if not isinstance(error, AccessDenied) or isinstance(error, Unauthenticated):
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
        """Append events, as ``Store.append_events`` describes.

        If an answer is lost, the request is sent again. ``inserted`` then counts only the events that the last request
        stored. A cancelled call may or may not have stored its events: append them again.
        """
        append = checked_append(
            agent,
            run,
            events,
            expected_version,
            meta,
            first_seq,
            reserved=reserved,
            max_event_bytes=DEFAULT_MAX_EVENT_BYTES,
        )
        new = tuple([event.to_event(0) for event in append.batch])
        operation = AppendEvents(agent, run, new, expected_version, append.meta, first_seq, reserved)
        return append_result(await self.call(operation), append.batch)

    async def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> Snapshot:
        """Load a run, as ``Store.load_run`` describes. A long run takes several requests."""
        checked_types = check_load(agent, run, after, types, limit, last)
        names = None if checked_types is None else tuple(sorted(checked_types))
        return await run_async(pages.load_run(LoadRun(agent, run, after, names, limit, last)), self)

    async def find_events(self, agent: str, run: str, event_ids: Iterable[str]) -> tuple[Event | None, ...]:
        """Return the events with these ids, as ``Store.find_events`` describes."""
        check_ids(agent, run)
        operation = FindEvents(agent, run, tuple(check_event_ids(event_ids)))
        return await run_async(pages.find_events(operation), self)

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """Follow a run, as ``Store.follow`` describes.

        A stream of the server wakes the follower, which then reads the events. After the first read of the run, the
        follower waits without a time limit for a server that cannot be reached.
        """
        self._check_open()
        check_ids(agent, run)
        check_after(after)
        pauses = AsyncPauses()
        batch = await self.call(LoadRun(agent, run, after, limit=_FOLLOW_EVENTS))
        first_seq = batch.first_seq
        async with aclosing(self.stream(FollowRun(agent, run, after, first_seq), endless=True)) as heads:
            while True:
                if batch.first_seq != first_seq:
                    raise RunDeleted(f"{agent}/{run} was deleted while it was followed, after seq {after}")
                newest = batch
                pauses.begin()
                for number, event in enumerate(batch.log):
                    if number and pauses.was_long:
                        # The consumer may be slow. An event that was redacted or deleted since the batch was read must
                        # not be yielded.
                        newest = await self.call(LoadRun(agent, run, newest.version, pages.REDACTIONS), endless=True)
                        if newest.first_seq != first_seq or newest.redactions or newest.last_seq < newest.version:
                            break
                        pauses.begin()
                    after = event.seq
                    yield event
                else:
                    after = batch.last_seq
                    is_up_to_date = after >= newest.version
                    while is_up_to_date:
                        head = await anext(heads)
                        is_up_to_date = head.version <= after and head.first_seq == first_seq
                batch = await self.call(LoadRun(agent, run, after, limit=_FOLLOW_EVENTS), endless=True)

    async def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """List runs, as ``Store.list_runs`` describes. A page can have fewer runs although another page follows."""
        check_listing(agent, limit)
        if cursor is not None:
            check_cursor(cursor)
        return await self.call(ListRuns(agent, min(limit, _MOST_RUNS), cursor, include_reserved))

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """Return the heads of runs, as ``Store.peek_runs`` describes."""
        return await run_async(pages.peek_runs(PeekRuns(tuple(check_runs(runs)))), self)

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """Redact events, as ``Store.redact_events`` describes.

        If an answer is lost, the request is sent again. The result is then that of a repeated redaction.
        """
        check_ids(agent, run)
        operation = RedactEvents(agent, run, check_seqs(seqs), reason)
        prepare(new_event(Redaction(seqs=operation.seqs, reason=reason)))  # checks the reason
        return await self.call(operation)

    async def delete_run(self, agent: str, run: str) -> None:
        """Delete a run, as ``Store.delete_run`` describes."""
        check_ids(agent, run)
        await self.call(DeleteRun(agent, run))

    async def erasures(
        self, *, after: int = 0, runs: Iterable[tuple[str, str]] | None = None, limit: int | None = None
    ) -> Erasures:
        """Read the erasure journal, as ``Store.erasures`` describes."""
        pairs = check_erasures(after, runs, limit)
        return await run_async(
            pages.erasures(ReadErasures(after, None if pairs is None else tuple(pairs), limit)), self
        )

    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """Delete expired runs, as ``Store.expire_runs`` describes.

        If an answer is lost, the request is sent again. The result then counts only what the last request removed.
        """
        check_before(before)
        return await self.call(ExpireRuns(before, dry_run))

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncGenerator[Flaw]:
        """Yield the flaws of stored runs, as ``Store.check`` describes."""
        check_scope(agent_id, run_id)
        return self.stream(CheckStore(agent_id, run_id))

    async def execute_memory(self, operation: Operation[Result], principal: Principal | None) -> Result:
        """Carry out an operation of memory on the server. See ``ServesMemory``.

        Args:
            operation: The operation.
            principal: The principal, which the token must reach. None: that of the token.
        """
        return await self.call(operation, principal=principal)
