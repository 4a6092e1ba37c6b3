"""The operations of a store. Reads that could return any amount come in pages, of what the caller may read.

A store has no limit in bytes, so a page is put together from small reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.grants import Grant
from agent_memory_log.service.limits import Limits
from agent_memory_log.service.store_operations import (
    FindEvents,
    ListRuns,
    LoadRun,
    PeekRuns,
    ReadErasures,
    execute_on_store,
)
from agent_memory_log.service.wire import encode_result
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import run_async
from agent_memory_log.store import RunInfo, RunPage, Store

_STEP = 64
"""The most events or runs that are read at once. Each may be as large as the store allows."""

_MOST_RUNS = 10_000
"""The most runs that an operation may name."""


class Runs:
    """Carries out the operations of a store.

    Args:
        store: The store.
        limits: The limits of a page.
    """

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    async def result_of(self, operation: Operation[Any], grant: Grant) -> object:
        """Carry out an operation and return the JSON value of its result."""
        match operation:
            case LoadRun():
                return await self._load_run(operation)
            case FindEvents():
                return await self._find_events(operation)
            case ListRuns():
                return await self._list_runs(operation, grant)
            case ReadErasures():
                return await self._read_erasures(operation, grant)
            case PeekRuns():
                _check_runs(operation.runs)
            case _:
                pass
        return encode_result(type(operation), await run_async(execute_on_store(operation), self._store))

    async def _load_run(self, operation: LoadRun) -> object:
        """Return the JSON value of a snapshot, which ends early if the events are too many or too large.

        All reads of a page must see the run at the same version. Otherwise the page ends before the read that differs.
        """
        agent, run, types, most = operation.agent, operation.run, operation.types, self._limits.page_events
        if operation.last is not None:
            most = min(most, _STEP)
            last = min(operation.last, most)
            snapshot = await self._store.load_run(
                agent, run, after=operation.after, types=types, limit=operation.limit, last=last
            )
            if operation.last > most == len(snapshot.log):
                raise InvalidArgument(f"last must be at most {most} on a server, got {operation.last:,}")
            return _Page(snapshot, self._limits.page_bytes).json()
        count = most if operation.limit is None else min(operation.limit, most)
        snapshot = await self._store.load_run(agent, run, after=operation.after, types=types, limit=min(count, _STEP))
        page = _Page(snapshot, self._limits.page_bytes)
        while page.continues and len(page.log) < count:
            limit = min(count - len(page.log), _STEP)
            newer = await self._store.load_run(agent, run, after=page.last_seq, types=types, limit=limit)
            if (newer.version, newer.first_seq) != (snapshot.version, snapshot.first_seq):
                break
            page.add(newer)
        return page.json()

    async def _find_events(self, operation: FindEvents) -> object:
        """Return the JSON value of the events with the given ids. Raises ``InvalidArgument`` if they are too large."""
        counts = Counter(operation.event_ids)
        ids = tuple(counts)
        if len(operation.event_ids) > self._limits.page_events:
            raise InvalidArgument(
                f"event_ids must be at most {self._limits.page_events:,} on a server: ask for a part of them"
            )
        encoded: dict[str, msgspec.Raw] = {}
        size = 0
        for start in range(0, max(len(ids), 1), _STEP):
            part = ids[start : start + _STEP]
            events = await self._store.find_events(operation.agent, operation.run, part)
            for event_id, event in zip(part, events, strict=True):
                encoded[event_id] = msgspec.Raw(encode_json(None if event is None else event.to_map()))
                size += len(encoded[event_id]) * counts[event_id]
                if size > self._limits.page_bytes and len(operation.event_ids) > 1:
                    raise InvalidArgument(
                        f"the events have more than {self._limits.page_bytes:,} bytes: ask for a part of event_ids"
                    )
        return [encoded[event_id] for event_id in operation.event_ids]

    async def _list_runs(self, operation: ListRuns, grant: Grant) -> object:
        """Return the JSON value of a page of the runs that the caller may use.

        The page examines a limited number of runs, so it can be empty although another page follows.
        """
        runs: list[RunInfo] = []
        count, size, examined = min(operation.limit, self._limits.page_events), 0, 0
        cursor = operation.cursor
        while True:
            page = await self._store.list_runs(
                operation.agent,
                limit=min(count - len(runs), _STEP),
                cursor=cursor,
                include_reserved=operation.include_reserved,
            )
            runs += [info for info in page.runs if grant.may_use(info.agent)]
            size += sum(len(encode_json(info.meta)) for info in page.runs)
            examined += len(page.runs)
            cursor = page.cursor
            if (
                cursor is None
                or len(runs) >= count
                or size > self._limits.page_bytes
                or examined >= self._limits.page_events
            ):
                return encode_result(ListRuns, RunPage(tuple(runs), cursor))

    async def _read_erasures(self, operation: ReadErasures, grant: Grant) -> object:
        """Return the JSON value of a part of the journal, with the entries of the runs that the caller may use."""
        _check_runs(operation.runs)
        limit = self._limits.page_events if operation.limit is None else min(operation.limit, self._limits.page_events)
        erasures = await self._store.erasures(after=operation.after, runs=operation.runs, limit=limit)
        entries = tuple(entry for entry in erasures.entries if grant.may_use(entry.agent))
        return encode_result(ReadErasures, msgspec.structs.replace(erasures, entries=entries))


class _Page:
    """A snapshot whose events are encoded one by one, until they reach a size.

    Args:
        snapshot: The first read.
        most_bytes: The size after which no further event is added.
    """

    def __init__(self, snapshot: Snapshot, most_bytes: int) -> None:
        self._snapshot = snapshot
        self._bytes_left = most_bytes
        self._redactions: dict[int, str] = {}
        self.log: list[msgspec.Raw] = []
        self.last_seq = 0
        self.add(snapshot)

    @property
    def continues(self) -> bool:
        """True if the run has more events, and the page has room for them."""
        return self.last_seq < self._snapshot.version and self._bytes_left > 0

    def add(self, newer: Snapshot) -> None:
        """Add the events of a read that continues the page."""
        self._redactions.update(newer.redactions)
        self.last_seq = newer.last_seq
        for event in newer.log:
            if self._bytes_left <= 0:
                break
            encoded = encode_json(event.to_map())
            self.log.append(msgspec.Raw(encoded))
            self._bytes_left -= len(encoded)
            if self._bytes_left <= 0:
                self.last_seq = event.seq

    def json(self) -> object:
        """Return the JSON value of the page, as a snapshot."""
        first = self._snapshot
        empty = Snapshot(
            first.agent,
            first.run,
            version=first.version,
            last_seq=self.last_seq,
            meta=first.meta,
            after=first.after,
            types=first.types,
            first_seq=first.first_seq,
            redactions=self._redactions,
        )
        return {**cast("dict[str, object]", encode_result(LoadRun, empty)), "log": self.log}


def _check_runs(runs: Sequence[tuple[str, str]] | None) -> None:
    if runs is not None and len(runs) > _MOST_RUNS:
        raise InvalidArgument(f"runs must be at most {_MOST_RUNS:,} on a server, got {len(runs):,}")
