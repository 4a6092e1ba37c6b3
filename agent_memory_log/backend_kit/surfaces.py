"""The public methods of an asynchronous and a synchronous store. They check the arguments and call the backend.

A backend provides an object that reads its data (``Reads``), an object that writes it (``Writes``), ``_append``,
``follow``, and ``close`` or ``aclose``. If only some threads may use the data, or not all at the same time, the
backend also overrides ``_read`` and ``_write``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Generic, Protocol, TypeVar

from agent_memory_log.backend_kit.appends import Append, checked_append
from agent_memory_log.backend_kit.checks import (
    check_erasures,
    check_event_ids,
    check_ids,
    check_listing,
    check_load,
    check_runs,
    check_scope,
    check_seqs,
)
from agent_memory_log.backend_kit.expiry import check_before
from agent_memory_log.backend_kit.handles import AsyncHandle, SyncHandle
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, Erasures, ExpireResult, Flaw, RunHead, RunPage

_T = TypeVar("_T")

_END = object()


class Reads(Protocol):
    """The object that reads a backend's data.

    The surfaces check the arguments before they call a method. A method returns the result of the ``Store`` method that
    its docstring names.
    """

    def load(
        self, agent: str, run: str, after: int, types: frozenset[str] | None, limit: int | None, last: int | None
    ) -> Snapshot:
        """See ``Store.load_run``. At most one of ``limit`` and ``last`` is given."""
        ...

    def find(self, agent: str, run: str, event_ids: Sequence[str]) -> tuple[Event | None, ...]:
        """See ``Store.find_events``."""
        ...

    def list_runs(self, agent: str | None, limit: int, cursor: str | None, *, include_reserved: bool) -> RunPage:
        """See ``Store.list_runs``. This method checks the cursor itself."""
        ...

    def peek(self, runs: Sequence[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        ...

    def erasures(self, after: int, runs: Sequence[tuple[str, str]] | None, limit: int | None) -> Erasures:
        """See ``Store.erasures``. This method raises ``CursorOutOfRange`` itself."""
        ...

    def count_expired(self, before: int) -> ExpireResult:
        """Count the runs that ``Store.expire_runs`` would remove. ``before`` is in microseconds since 1970."""
        ...

    def flaws(self, agent: str | None, run: str | None) -> Iterator[Flaw | None]:
        """Yield the problems that ``Store.check`` reports. Yield None to let other callers use the data."""
        ...


class Writes(Protocol):
    """The object that writes a backend's data.

    The surfaces check the arguments before they call a method. A method returns the result of the ``Store`` method that
    its docstring names.
    """

    def redact(self, agent: str, run: str, seqs: tuple[int, ...], reason: str) -> AppendResult:
        """See ``Store.redact_events``."""
        ...

    def delete(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        ...

    def expire_some(self, before: int) -> ExpireResult:
        """Remove some of the runs that expired by ``before``, in microseconds since 1970, and return their numbers.

        One call should be so short that other callers can wait for it. The result has 0 runs if no expired run is left.
        """
        ...


_Reader = TypeVar("_Reader", bound=Reads)
_Writer = TypeVar("_Writer", bound=Writes)


def _checked_load(
    reader: Reads,
    agent: str,
    run: str,
    after: int,
    types: Iterable[str] | None,
    limit: int | None,
    last: int | None,
) -> Callable[[], Snapshot]:
    checked_types = check_load(agent, run, after, types, limit, last)
    return partial(reader.load, agent, run, after, checked_types, limit, last)


class SyncSurface(SyncHandle, Generic[_Reader, _Writer]):
    """The public methods of a ``SyncStore``, except ``follow`` and ``close``."""

    _max_event_bytes: int
    _reader: _Reader
    _writer: _Writer

    def _append(self, append: Append) -> AppendResult:
        """Carry out an append. The handle was open when ``append_events`` was called."""
        raise NotImplementedError

    def _read(self, work: Callable[[], _T]) -> _T:
        """Call a method of ``_reader``."""
        self._check_open()
        return work()

    def _write(self, work: Callable[[], _T]) -> _T:
        """Call a method of ``_writer``."""
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
        last: int | None = None,
    ) -> Snapshot:
        """See ``Store.load_run``."""
        return self._read(_checked_load(self._reader, agent, run, after, types, limit, last))

    def find_events(self, agent: str, run: str, event_ids: Iterable[str]) -> tuple[Event | None, ...]:
        """See ``Store.find_events``."""
        check_ids(agent, run)
        return self._read(partial(self._reader.find, agent, run, check_event_ids(event_ids)))

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

    def erasures(
        self, *, after: int = 0, runs: Iterable[tuple[str, str]] | None = None, limit: int | None = None
    ) -> Erasures:
        """See ``Store.erasures``."""
        pairs = check_erasures(after, runs, limit)
        return self._read(partial(self._reader.erasures, after, pairs, limit))

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
    """The public methods of a ``Store``, except ``follow`` and ``aclose``."""

    _max_event_bytes: int
    _reader: _Reader
    _writer: _Writer

    async def _append(self, append: Append) -> AppendResult:
        """Carry out an append. The handle was open when ``append_events`` was called."""
        raise NotImplementedError

    async def _read(self, work: Callable[[], _T]) -> _T:
        """Call a method of ``_reader``."""
        self._check_open()
        return work()

    async def _write(self, work: Callable[[], _T]) -> _T:
        """Call a method of ``_writer``."""
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
        last: int | None = None,
    ) -> Snapshot:
        """See ``Store.load_run``."""
        return await self._read(_checked_load(self._reader, agent, run, after, types, limit, last))

    async def find_events(self, agent: str, run: str, event_ids: Iterable[str]) -> tuple[Event | None, ...]:
        """See ``Store.find_events``."""
        check_ids(agent, run)
        return await self._read(partial(self._reader.find, agent, run, check_event_ids(event_ids)))

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

    async def erasures(
        self, *, after: int = 0, runs: Iterable[tuple[str, str]] | None = None, limit: int | None = None
    ) -> Erasures:
        """See ``Store.erasures``."""
        pairs = check_erasures(after, runs, limit)
        return await self._read(partial(self._reader.erasures, after, pairs, limit))

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
