"""The public methods of a store, on both surfaces: they check the arguments, and have the backend carry out the work.

A backend gives what reads and writes its data (``Reads``, ``Writes``), ``_append``, ``follow`` and the end of a handle.
Where its data may not be used by any thread at any time, it overrides ``_read`` and ``_write`` too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Generic, Protocol, TypeVar

import msgspec

from agent_memory_log.backend_kit.checks import (
    Prepared,
    check_after,
    check_append,
    check_ids,
    check_limit,
    check_listing,
    check_meta,
    check_runs,
    check_scope,
    check_seqs,
    check_types,
    prepare_batch,
)
from agent_memory_log.backend_kit.expiry import check_before
from agent_memory_log.backend_kit.handles import AsyncHandle, SyncHandle
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.reserved import check_not_reserved
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, ExpireResult, Flaw, RunHead, RunPage

_T = TypeVar("_T")

DEFAULT_MAX_EVENT_BYTES = 64 * 1024 * 1024

_BATCH_EVENTS = 16
"""A batch may have the bytes of this many events of the largest size."""

_END = object()


class Append(msgspec.Struct, frozen=True, gc=False):
    """A checked append."""

    agent: str
    run: str
    batch: Sequence[Prepared]
    expected_version: int | None
    meta: Mapping[str, JsonValue] | None
    first_seq: int | None


class Reads(Protocol):
    """What reads a backend's data. Each method's arguments are checked, and it returns what its namesake returns."""

    def load(self, agent: str, run: str, after: int, types: frozenset[str] | None, limit: int | None) -> Snapshot:
        """See ``Store.load_run``."""
        ...

    def list_runs(self, agent: str | None, limit: int, cursor: str | None, *, include_reserved: bool) -> RunPage:
        """See ``Store.list_runs``. Checks the cursor."""
        ...

    def peek(self, runs: Sequence[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        ...

    def count_expired(self, before: int) -> ExpireResult:
        """What ``expire_runs`` would remove; ``before`` in microseconds."""
        ...

    def flaws(self, agent: str | None, run: str | None) -> Iterator[Flaw | None]:
        """See ``Store.check``; None wherever others may use the data."""
        ...


class Writes(Protocol):
    """What writes a backend's data. Each method's arguments are checked, and it returns what its namesake returns."""

    def redact(self, agent: str, run: str, seqs: tuple[int, ...], reason: str) -> AppendResult:
        """See ``Store.redact_events``."""
        ...

    def delete(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        ...

    def expire_some(self, before: int) -> ExpireResult:
        """Remove as many of the runs that ended by ``before``, in microseconds, as others can wait for; their sum.

        None were removed when there are none left.
        """
        ...


_Reader = TypeVar("_Reader", bound=Reads)
_Writer = TypeVar("_Writer", bound=Writes)


def checked_append(
    agent: str,
    run: str,
    events: Sequence[Event],
    expected_version: int | None,
    meta: Mapping[str, JsonValue] | None,
    first_seq: int | None,
    *,
    reserved: bool,
    max_event_bytes: int,
) -> Append:
    """An append, checked before anything is written.

    Raises ``InvalidEvent``, ``InvalidArgument``, ``EventTooLarge``.
    """
    check_ids(agent, run)
    if expected_version is not None or first_seq is not None:
        check_append(expected_version, first_seq)
    batch = prepare_batch(events, max_event_bytes, max_event_bytes * _BATCH_EVENTS)
    check_not_reserved(agent, batch, reserved=reserved)
    return Append(agent, run, batch, expected_version, None if meta is None else check_meta(meta), first_seq)


def _checked_load(
    reader: Reads, agent: str, run: str, after: int, types: Iterable[str] | None, limit: int | None
) -> Callable[[], Snapshot]:
    check_ids(agent, run)
    check_after(after)
    check_limit(limit)
    return partial(reader.load, agent, run, after, check_types(types), limit)


class SyncSurface(SyncHandle, Generic[_Reader, _Writer]):
    """The methods of a ``SyncStore``."""

    _max_event_bytes: int
    _reader: _Reader
    _writer: _Writer

    def _append(self, append: Append) -> AppendResult:
        """Carry out an append, on a handle that was open when it was called."""
        raise NotImplementedError

    def _read(self, work: Callable[[], _T]) -> _T:
        """Carry out a method of ``_reader``."""
        self._check_open()
        return work()

    def _write(self, work: Callable[[], _T]) -> _T:
        """Carry out a method of ``_writer``."""
        self._check_open()
        return work()

    def _checked_runs(self, runs: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        return check_runs(runs)

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
        size = self._max_event_bytes
        return self._append(
            checked_append(
                agent, run, events, expected_version, meta, first_seq, reserved=reserved, max_event_bytes=size
            )
        )

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
        return self._read(_checked_load(self._reader, agent, run, after, types, limit))

    def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``Store.list_runs``."""
        check_listing(agent, limit)
        return self._read(partial(self._reader.list_runs, agent, limit, cursor, include_reserved=include_reserved))

    def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        return self._read(partial(self._reader.peek, self._checked_runs(runs)))

    def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        check_ids(agent, run)
        return self._write(partial(self._writer.redact, agent, run, check_seqs(seqs), reason))

    def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        check_ids(agent, run)
        self._write(partial(self._writer.delete, agent, run))

    def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Store.expire_runs``."""
        until = check_before(before)
        if dry_run:
            return self._read(partial(self._reader.count_expired, until))
        runs = events = 0
        while (removed := self._write(partial(self._writer.expire_some, until))).runs:
            runs, events = runs + removed.runs, events + removed.events
        return ExpireResult(runs, events)

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> Iterator[Flaw]:
        """See ``Store.check``."""
        check_scope(agent_id, run_id)
        flaws = self._reader.flaws(agent_id, run_id)
        while (flaw := self._read(partial(next, flaws, _END))) is not _END:
            if isinstance(flaw, Flaw):
                yield flaw


class AsyncSurface(AsyncHandle, Generic[_Reader, _Writer]):
    """The methods of a ``Store``."""

    _max_event_bytes: int
    _reader: _Reader
    _writer: _Writer

    async def _append(self, append: Append) -> AppendResult:
        """Carry out an append, on a handle that was open when it was called."""
        raise NotImplementedError

    async def _read(self, work: Callable[[], _T]) -> _T:
        """Carry out a method of ``_reader``."""
        self._check_open()
        return work()

    async def _write(self, work: Callable[[], _T]) -> _T:
        """Carry out a method of ``_writer``."""
        self._check_open()
        return work()

    def _checked_runs(self, runs: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        return check_runs(runs)

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
        size = self._max_event_bytes
        return await self._append(
            checked_append(
                agent, run, events, expected_version, meta, first_seq, reserved=reserved, max_event_bytes=size
            )
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
        return await self._read(_checked_load(self._reader, agent, run, after, types, limit))

    async def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``Store.list_runs``."""
        check_listing(agent, limit)
        work = partial(self._reader.list_runs, agent, limit, cursor, include_reserved=include_reserved)
        return await self._read(work)

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        return await self._read(partial(self._reader.peek, self._checked_runs(runs)))

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        check_ids(agent, run)
        return await self._write(partial(self._writer.redact, agent, run, check_seqs(seqs), reason))

    async def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        check_ids(agent, run)
        await self._write(partial(self._writer.delete, agent, run))

    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Store.expire_runs``."""
        until = check_before(before)
        if dry_run:
            return await self._read(partial(self._reader.count_expired, until))
        runs = events = 0
        while (removed := await self._write(partial(self._writer.expire_some, until))).runs:
            runs, events = runs + removed.runs, events + removed.events
        return ExpireResult(runs, events)

    async def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncIterator[Flaw]:
        """See ``Store.check``."""
        check_scope(agent_id, run_id)
        flaws = self._reader.flaws(agent_id, run_id)
        while (flaw := await self._read(partial(next, flaws, _END))) is not _END:
            if isinstance(flaw, Flaw):
                yield flaw
