"""The ``Store`` protocol and its synchronous twin.

``agent_memory_log.conformance`` tests every promise of these methods on any backend. ``open_store`` is in
``opening.py``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store.results import AppendResult, Erasures, ExpireResult, Flaw, RunHead, RunPage


class Store(Protocol):
    """A log of runs. Any number of tasks of one event loop may share a handle.

    A handle belongs to the event loop on which it was opened. Every method may raise ``StoreClosed`` if the handle was
    closed, inherited by a fork, or used from another loop, and ``StoreUnavailable``. Agent and run ids are non-empty
    text of at most 512 characters; another id raises ``InvalidEvent``.
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
        """Append all of ``events`` or none, and return when they are durable.

        An event whose ``event_id`` is already in the run with an equal body (type, data and labels) is not stored
        again. If that is true of all events, the append succeeds with any ``expected_version``. Without events, the
        call does nothing.

        ``meta["expires_at"]`` is the time when the run expires: RFC 3339 text with any offset. From that time on,
        appends, loads, redactions and followers of the run raise ``RunExpired``, and ``list_runs`` leaves it out.
        ``delete_run`` and ``expire_runs`` still remove it. Without ``expires_at`` a run never expires.

        Args:
            agent: The id of the agent.
            run: The id of the run. The first append creates it.
            events: The events, in the order in which they get their seqs.
            expected_version: The version that the run must have. The default accepts any version.
            meta: A JSON map to store with the run if this append creates it.
            first_seq: For imports: the seq of the first event, at most 2**31. The run must hold no events, and its
                version must be lower.
            reserved: Whether to accept the library's own names: agents that begin with ``@`` and event types that begin
                with ``memory_``. It is for memory's own writer and for an operator who copies or restores a store.

        Returns:
            The run's new version, the number of new events, and all events as stored.

        Raises:
            InvalidEvent: An event or ``meta`` cannot be stored, or has a reserved name.
            EventTooLarge: An event or the batch exceeds the backend's limit.
            EventConflict: An ``event_id`` is in the run with a different body.
            VersionConflict: The run is not at ``expected_version``, or cannot begin at ``first_seq``.
            RunExpired: The run has expired.
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
        last: int | None = None,
    ) -> Snapshot:
        """Read events of a run in seq order.

        The read sees every append that was acknowledged before the call. The snapshot of an unknown run is empty.

        A read with ``last`` costs what it returns, not what the run holds. Its snapshot covers the run from the first
        of the ``last`` events on, so it has the ``after`` of a read that begins there, and a ``last_seq`` that equals
        ``version``. It equals ``load_run(after=snapshot.after, types=types)``, and a later read extends it as usual. If
        there are fewer events, it equals the same read without ``last``.

        Args:
            agent: The id of the agent.
            run: The id of the run.
            after: Read the events after this seq. The default is the beginning of the run.
            types: The event types to read. The default reads all.
            limit: The maximum number of events to read, beginning with the oldest. The default has no limit.
            last: Read only this many of the events, the newest ones. The default reads all of them.

        Raises:
            CursorOutOfRange: ``after`` is above the run's version.
            DecodeError: A stored event cannot be decoded.
            EventsMissing: Events that the run must hold are missing.
            InvalidArgument: ``limit`` or ``last`` is below 1, or both are given.
            RunExpired: The run has expired.
        """
        ...

    async def find_events(self, agent: str, run: str, event_ids: Iterable[str]) -> tuple[Event | None, ...]:
        """Return the events of a run that have the given ids, at the cost of these events and not of the run.

        The read sees every append, redaction and deletion that was acknowledged before the call.

        Args:
            agent: The id of the agent.
            run: The id of the run.
            event_ids: The ids of the events. An id may occur more than once.

        Returns:
            One event for each id, in the same order. It is None if the run has no such event, which is also true of an
            unknown or deleted run. A redacted event is in its ``Redacted`` form.

        Raises:
            DecodeError: A stored event cannot be decoded.
            InvalidEvent: An event id is not non-empty text of at most 512 characters.
            RunExpired: The run has expired.
        """
        ...

    def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """Yield every event after seq ``after`` once, in seq order, and wait for new events.

        The iteration ends when it is closed or cancelled. The run need not exist yet.

        Args:
            agent: The id of the agent.
            run: The id of the run.
            after: Yield the events after this seq. The default is the beginning of the run.

        Raises:
            CursorOutOfRange: ``after`` is above the run's version.
            RunDeleted: The run was deleted meanwhile.
            RunExpired: The run has expired.
            StoreClosed: The handle was closed.
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
        """List the runs that hold events and have not expired, the most recently created first.

        Args:
            agent: List only the runs of this agent. The default lists all agents.
            limit: The maximum number of runs on a page.
            cursor: The ``cursor`` of the page before. The default is the first page.
            include_reserved: Whether to include the library's own agents, whose ids begin with ``@``. They are always
                included if ``agent`` names one.

        Raises:
            CursorOutOfRange: ``cursor`` is not a cursor of such a page.
            InvalidArgument: ``limit`` is below 1.
        """
        ...

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """Return the head of each run, without reading events.

        Thousands of runs cost a few round trips. The read sees every append, redaction and deletion that was
        acknowledged before the call.

        Args:
            runs: Pairs of agent and run. A pair may occur more than once.

        Returns:
            One head for each pair, in the same order. It is None for a run that has expired.

        Raises:
            InvalidArgument: An item of ``runs`` is not a pair.
        """
        ...

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """Replace each event of ``seqs`` by a ``Redacted`` and append one ``Redaction`` that names them.

        Seq, timestamp and event id stay. Data and labels are removed, and no handle can read them from then on. Events
        that are already redacted do not change. If all of them are already redacted, nothing is appended.

        Args:
            agent: The id of the agent.
            run: The id of the run.
            seqs: The seqs of the events to redact.
            reason: A text that is stored with the redacted events and with the marker.

        Raises:
            CursorOutOfRange: The run does not hold one of ``seqs``. Nothing is redacted.
            InvalidEvent: One of the events is a ``memory_tombstone``. Memory needs it in order not to learn forgotten
                facts again. Nothing is redacted.
            RunExpired: The run has expired.
        """
        ...

    async def delete_run(self, agent: str, run: str) -> None:
        """Remove the run's events, event ids and meta. The next event continues from the run's version.

        An expired run can be deleted too. The call does nothing if the run holds no events.
        """
        ...

    async def erasures(
        self, *, after: int = 0, runs: Iterable[tuple[str, str]] | None = None, limit: int | None = None
    ) -> Erasures:
        """Read the erasure journal, which names the events that ``redact_events`` and ``delete_run`` removed.

        The read sees every redaction and deletion that was acknowledged before the call. A store may write an entry
        before it removes the events, so an entry may name events that a failed call left in place. Events that only
        expired are not in the journal. Positions belong to one store: a copy of a store has its own journal.

        Args:
            after: Read the entries after this position. The default is the beginning of the journal.
            runs: Read only the entries of these runs, as pairs of agent and run. Without pairs, the result has only
                the journal's last position, at the cost of one look-up. The default reads the entries of all runs.
            limit: The maximum number of entries to read. The default has no limit.

        Raises:
            CursorOutOfRange: ``after`` is above the journal's last position.
            InvalidArgument: ``limit`` is below 1, or an item of ``runs`` is not a pair.
        """
        ...

    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """Delete every run whose ``expires_at`` is not later than ``before``, including the library's own runs.

        If the call raises, the runs that it had deleted stay deleted. Call it again for the rest.

        Args:
            before: A time with a time zone, not in the future. The default is now.
            dry_run: Whether to count the runs and change nothing.

        Raises:
            InvalidArgument: ``before`` is in the future or has no time zone.
        """
        ...

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncIterator[Flaw]:
        """Compare the stored data with its checksums, indexes and lists, and yield every flaw.

        The check finds damage that ``load_run`` alone cannot detect: contents that differ from their checksum, an
        index or a list with missing or extra rows, and a damaged file. It need not decode events.
        ``transfer.verifying.verify`` runs the check and decodes every event. A store in memory has no flaws.

        The check includes expired runs and changes nothing. Other handles may append meanwhile.
        Damage is always a flaw and never an error, even if the check cannot continue.

        Args:
            agent_id: Check the runs of this agent. The default checks the whole store.
            run_id: Check only this run of ``agent_id``.

        Raises:
            InvalidArgument: ``run_id`` is given without ``agent_id``.
        """
        ...

    async def aclose(self) -> None:
        """Close the handle. Acknowledged events stay stored. Closing it again does nothing."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class SyncStore(Protocol):
    """``Store`` without ``await``. Any number of threads may share a handle.

    Each method does the same as the method of that name in ``Store``.
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
        last: int | None = None,
    ) -> Snapshot:
        """See ``Store.load_run``."""
        ...

    def find_events(self, agent: str, run: str, event_ids: Iterable[str]) -> tuple[Event | None, ...]:
        """See ``Store.find_events``."""
        ...

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        """See ``Store.follow``. Waiting blocks the thread. Closing the handle from another thread ends the wait."""
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

    def erasures(
        self, *, after: int = 0, runs: Iterable[tuple[str, str]] | None = None, limit: int | None = None
    ) -> Erasures:
        """See ``Store.erasures``."""
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
