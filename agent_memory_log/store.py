"""What a store is: the ``Store`` protocol, its synchronous twin, what they return, and the optional capabilities.

The promises behind these methods are proved by ``agent_memory_log.conformance``, for any backend. ``open_store`` is in
``opening.py``.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self, overload, runtime_checkable

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot

MAX_FIRST_SEQ = 2**31
"""The largest seq a run can begin with. Every store has room for as many events behind it."""


class AppendResult(msgspec.Struct, frozen=True):
    """What an append did.

    - ``version``: the run's version after it.
    - ``inserted``: how many of the events were new; the others were already there.
    - ``events``: one for each event given, in that order, with its seq; for one that was already there, the stored
      event.
    """

    version: int
    inserted: int
    events: tuple[Event, ...]


class RunInfo(msgspec.Struct, frozen=True):
    """A run without its events.

    - ``version``: the seq of its newest event.
    - ``created``: when this store first held it (UTC); a run that was deleted is created anew by its next append.
    - ``event_count``: how many events it holds, redacted ones included.
    - ``meta``: the map given when it was created; see ``Store.append_events`` for its ``expires_at``.
    """

    agent: str
    run: str
    version: int
    created: datetime
    event_count: int
    meta: Mapping[str, JsonValue]


class RunPage(msgspec.Struct, frozen=True):
    """A page of ``list_runs``: ``runs``, newest-created first, and the ``cursor`` of the next page (None: no more)."""

    runs: tuple[RunInfo, ...]
    cursor: str | None


class RunHead(msgspec.Struct, frozen=True, gc=False):
    """Where a run stands: what a ``Snapshot`` of it would have as its ``version`` and its ``first_seq``.

    While these two are the same nothing has changed in the run: an append and a redaction raise the version, a deletion
    raises ``first_seq``, and what begins a deleted run anew raises both. A run that holds no events has a ``first_seq``
    above its version; one that never was is at version 0.
    """

    version: int
    first_seq: int


class ExpireResult(msgspec.Struct, frozen=True):
    """What ``expire_runs`` removed, or would remove: ``runs``, and the ``events`` that they held."""

    runs: int
    events: int


class Flaw(msgspec.Struct, frozen=True):
    """Something that ``check`` says about what is stored.

    - ``agent_id``, ``run_id``: the run; both None for the store as a whole.
    - ``seq``: the event; None for the run, or the store, as a whole.
    - ``message``: what is wrong, without the names of agent and run, and what to do where there is something to do.
    - ``is_damage``: False for what is only worth knowing, such as how many events have no checksum.
    """

    agent_id: str | None
    run_id: str | None
    seq: int | None
    message: str
    is_damage: bool = True


class Store(Protocol):
    """A log of runs. One handle may be used by any number of tasks of the event loop it was opened on.

    Every method may raise ``StoreClosed`` (closed, forked, or another loop) and ``StoreUnavailable``; ids that are not
    non-empty text of at most 512 characters are ``InvalidEvent``.
    """

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
        """Append all of ``events`` or none, and return once they are durable.

        Events whose ``event_id`` is already in the run with an equal body (type, data, labels) are not stored again; if
        that is all of them the append succeeds whatever ``expected_version`` says. Otherwise ``expected_version`` must
        be the run's version. ``meta`` is kept with the run if this append creates it. ``first_seq`` is for imports: the
        seq the first event gets, at most 2**31, where the run holds no events and the number is above its version.
        Without events, does nothing.

        Agents whose id begins with ``@`` and event types that begin with ``memory_`` are the library's own: both are
        ``InvalidEvent`` without ``reserved``, which is for memory's own writer and for an operator who copies or
        restores a store.

        ``meta["expires_at"]``, RFC 3339 text with any offset, is the run's end: from that instant appends, loads,
        redactions and followers of the run raise ``RunExpired``, and ``list_runs`` leaves it out. Without it a run
        never expires. ``delete_run`` and ``expire_runs`` remove it.

        Raises ``InvalidEvent``, ``EventTooLarge``, ``EventConflict``, ``VersionConflict``, ``RunExpired``.
        """
        ...

    async def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Snapshot:
        """Read the events after seq ``after``, of ``types`` if given, at most ``limit``, by seq.

        An unknown run is an empty snapshot. Sees every append acknowledged before the call. Raises ``CursorOutOfRange``
        when ``after`` is beyond the run's version, ``DecodeError`` when a stored event cannot be read, ``RunExpired``.
        """
        ...

    def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """Every event after seq ``after``, once, in seq order; waits for new ones until it is closed or cancelled.

        The run need not exist yet. Raises ``CursorOutOfRange``, ``RunDeleted`` when the run is deleted meanwhile,
        ``RunExpired`` at the instant it expires, and ``StoreClosed`` when the handle is closed.
        """
        ...

    async def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """The runs that hold events and have not expired, newest-created first; of one agent, or of all.

        Agents whose id begins with ``@`` are the library's own and are left out unless named or asked for with
        ``include_reserved``. Pass a page's ``cursor`` for the next one. Raises ``CursorOutOfRange`` for a cursor that
        is none, ``InvalidArgument`` for a limit below 1.
        """
        ...

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """Where each of ``runs``, pairs of agent and run, stands; None for one that has expired.

        One answer for each pair, in their order; a pair may stand there twice. Costs a few round trips for thousands,
        and sees every append, redaction and deletion acknowledged before the call. Raises ``InvalidArgument`` for what
        is no pair.
        """
        ...

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """Put a ``Redacted`` in place of each event of ``seqs`` and append one ``Redaction`` that names them.

        Position, time and event id stay; data and labels go, and cannot be read through any handle from then on. Events
        already redacted are left as they are; if that is all of them, nothing is appended. Raises ``CursorOutOfRange``
        for a seq the run does not hold, and ``InvalidEvent`` for a ``memory_tombstone``, without which memory would
        learn again what it was told to forget; then redacts none. Raises ``RunExpired``.
        """
        ...

    async def delete_run(self, agent: str, run: str) -> None:
        """Remove the run's events, ids and meta. Its version stays, and its next event goes on from there.

        An expired run goes like any other. Does nothing when the run holds no events.
        """
        ...

    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """Remove, as ``delete_run`` does, every run whose ``expires_at`` is at or before ``before``, by default now.

        The library's own runs are among them. A ``dry_run`` counts them and changes nothing. What was removed before an
        error stays so: call again for the rest. Raises ``InvalidArgument`` for a ``before`` in the future, as those
        runs have not expired, and for one without a time zone.
        """
        ...

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncIterator[Flaw]:
        """Compare what is stored with its checksums, indexes and lists; every flaw, nothing for a store that is whole.

        Checks a run, an agent's runs, or by default the whole store, whose expired runs count. Finds what ``load_run``
        alone cannot know: contents that differ from their checksum, rows that an index or a list lacks or has too many
        of, a damaged file. A store in memory has no flaws. It need not decode events: ``verifying.verify`` does both.
        Reads everything that it checks and changes nothing; others may append meanwhile. Damage is a flaw and never an
        error, even where it prevents going on. Raises ``InvalidArgument`` for a ``run_id`` without an ``agent_id``.
        """
        ...

    async def aclose(self) -> None:
        """Close the handle; what was acknowledged stays. Closing again does nothing."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class SyncStore(Protocol):
    """``Store`` without ``await``; a handle may be used by any number of threads.

    Each method does what its namesake does.
    """

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
        ...

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
        ...

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        """See ``Store.follow``; waits by blocking the thread. Closing the handle from another thread ends the wait."""
        ...

    def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """See ``Store.list_runs``."""
        ...

    def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        ...

    def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """See ``Store.redact_events``."""
        ...

    def delete_run(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        ...

    def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """See ``Store.expire_runs``."""
        ...

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> Iterator[Flaw]:
        """See ``Store.check``."""
        ...

    def close(self) -> None:
        """See ``Store.aclose``."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class CompactResult(msgspec.Struct, frozen=True):
    """What ``compact`` did: the store's size on disk in bytes ``before`` and ``after``."""

    before: int
    after: int


@runtime_checkable
class Compacts(Protocol):
    """A ``Store`` or a ``SyncStore`` that can give space back. Found with ``isinstance``.

    ``compact`` gives unused space back, and erases for good what was redacted or deleted before the call. It raises
    ``StoreUnavailable`` when another handle prevents it, as an open reader does; nothing is lost, try again.
    """

    @overload
    def compact(self: Store) -> Coroutine[Any, Any, CompactResult]: ...

    @overload
    def compact(self: SyncStore) -> CompactResult: ...


class BackupResult(msgspec.Struct, frozen=True):
    """What a backup holds: how many ``runs`` and ``events``, the library's own included; its ``size`` in bytes."""

    runs: int
    events: int
    size: int


@runtime_checkable
class BacksUp(Protocol):
    """A ``Store`` or a ``SyncStore`` that can be copied to a file while it is written to. Found with ``isinstance``.

    ``backup`` copies the store, as it is at one instant of the call, to the file ``target``. What was redacted or
    deleted is left out for good. The copy is opened and checked before it gets its name, so that a file at ``target``
    is a whole backup. It raises ``InvalidArgument`` when ``target`` is there already, or is the store itself;
    ``StoreCorrupt`` when the copy is not whole, as of a damaged store.
    """

    @overload
    def backup(self: Store, target: str | os.PathLike[str]) -> Coroutine[Any, Any, BackupResult]: ...

    @overload
    def backup(self: SyncStore, target: str | os.PathLike[str]) -> BackupResult: ...
