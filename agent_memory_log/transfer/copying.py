"""Copies runs from one store to another, continues interrupted copies, and reads each copy back to check it.

A copied run has the source's meta. Its events keep their seqs, ids, times and labels. This includes redacted events and
redaction markers. Only ``created`` is set by the target. The library's own runs, such as memories, are copied too.

If the source redacted an event after it was copied, the copy redacts it in the target as well. The target then appends
its own redaction marker, with the same seq and reason as the source's marker. The target's marker has another id and
time, and names only the events that were still readable. Therefore the digest of a run covers only the type, seq and
reason of a marker.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator

import msgspec

from agent_memory_log.errors import (
    AgentMemoryLogError,
    CursorOutOfRange,
    EventConflict,
    EventTooLarge,
    InvalidArgument,
    InvalidEvent,
    RunDeleted,
    RunExpired,
    VersionConflict,
)
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.steps import Steps, all_runs, on, redact, run_async, run_sync
from agent_memory_log.store import RunInfo, Store, SyncStore
from agent_memory_log.transfer.comparing import CannotCopy, Comparison, Pace, Side, State
from agent_memory_log.transfer.importing import RunImport, is_about_one_run

_ROUNDS = 5
"""The number of rounds before a copy gives up on a run that changes while it is copied."""


class CopiedRun(msgspec.Struct, frozen=True):
    """The result of copying one run.

    Attributes:
        agent: The id of the agent.
        run: The id of the run.
        version: The run's version in the source, up to which it was copied.
        events: How many events the run holds in the source.
        already_stored: How many of these events the target held before the copy.
        copied: How many events this copy stored in the target.
        redacted: How many events this copy redacted in the target because they are redacted in the source.
        digest: The SHA-256 of the run as read back from the target, in 64 hex digits, or ``""`` if there is a problem.
            It covers each event's map as one line of JSON with sorted keys, and then the meta. For a redaction marker,
            it covers only type, seq and reason, even if the marker was redacted too.
        problem: Why the target's run differs from the source's, or ``""``. Events that were copied before the problem
            stay.
        seq: The seq of the event with the problem, or 0 for the whole run.
        vanished: Whether the only problem is that the run was deleted or has expired in the source.
    """

    agent: str
    run: str
    version: int = 0
    events: int = 0
    already_stored: int = 0
    copied: int = 0
    redacted: int = 0
    digest: str = ""
    problem: str = ""
    seq: int = 0
    vanished: bool = False


def _no_progress(_events: int, /) -> None:
    """Ignore the progress."""


async def runs_by_age(store: Store, agent: str | None = None) -> list[RunInfo]:
    """Return the runs of a store, or of ``agent``, in the order of their creation. Includes the library's own runs.

    If runs are copied to an empty target in this order, the target lists them in the order of the source. The
    function holds the whole list in memory. Raises the errors of ``Store.list_runs``.
    """
    return (await run_async(all_runs(agent, include_reserved=True), store))[::-1]


async def copy_store(
    source: Store, target: Store, *, agent: str | None = None, progress: Callable[[int], object] = _no_progress
) -> AsyncGenerator[CopiedRun]:
    """Copy every run of ``source``, or every run of ``agent``, the oldest first; see ``copy_run``.

    A run that cannot be copied yields a result with a ``problem``, and the copy continues with the next run.

        async for copied in copy_store(source, target):
            print(copied.agent, copied.run, copied.problem or copied.digest)

    Args:
        source: The store to read from.
        target: The store to copy to.
        agent: The id of the agent whose runs are copied. By default, the runs of all agents are copied.
        progress: As for ``copy_run``.

    Yields:
        The result of each run, as soon as the run is copied.

    Raises:
        AgentMemoryLogError: The errors of ``runs_by_age`` and ``copy_run``.
    """
    for info in await runs_by_age(source, agent):
        yield await copy_run(source, target, info.agent, info.run, progress=progress)


def copy_store_sync(
    source: SyncStore, target: SyncStore, *, agent: str | None = None, progress: Callable[[int], object] = _no_progress
) -> Generator[CopiedRun]:
    """``copy_store`` without ``await``."""
    for info in run_sync(all_runs(agent, include_reserved=True), source)[::-1]:
        yield copy_run_sync(source, target, info.agent, info.run, progress=progress)


async def copy_run(
    source: Store, target: Store, agent: str, run: str, *, progress: Callable[[int], object] = _no_progress
) -> CopiedRun:
    """Copy a run and compare both copies. The target must not hold the run yet, or only its first events.

    Events are read in pages, up to the run's version at the start. A repeated call continues an interrupted copy, or
    adds the new events of the source. No event is stored twice.

    Conflicts do not raise. The result's ``problem`` describes them: a different event in the target, an event that
    cannot be read or that the target refuses, or a run that was deleted during the copy.

    Args:
        source: The store to read from.
        target: The store to copy to.
        agent: The id of the agent.
        run: The id of the run.
        progress: A callback that receives the number of events that were stored or compared since its last call. For
            a new run, the numbers add up to about twice the run's events, because each event is stored and then
            compared. For a run that was copied before, they add up to the run's events once.

    Returns:
        The result, with the digest of the copied run or the ``problem`` that stopped the copy.

    Raises:
        InvalidArgument: ``source`` and ``target`` are the same store.
        StoreUnavailable: A whole store failed.
        StoreClosed: A handle was closed.
        SchemaTooNew: A newer release wrote a store.
    """
    return await run_async(_copy(source, target, agent, run, progress), source)


def copy_run_sync(
    source: SyncStore, target: SyncStore, agent: str, run: str, *, progress: Callable[[int], object] = _no_progress
) -> CopiedRun:
    """``copy_run`` without ``await``."""
    return run_sync(_copy(source, target, agent, run, progress), source)


def _copy(
    source: Store | SyncStore, target: Store | SyncStore, agent: str, run: str, progress: Callable[[int], object]
) -> Steps[CopiedRun]:
    if source is target:
        raise InvalidArgument("source and target are the same store: give another target")
    copying = _RunCopy(source, target, agent, run, progress)
    try:
        return copying.outcome(digest=(yield from copying.carry_out()))
    except CannotCopy as error:
        return copying.outcome(problem=str(error), seq=error.seq)
    except RunDeleted as error:
        return copying.outcome(problem=str(error), vanished=True)
    except RunExpired as error:
        vanished = yield from copying.has_expired_in_source()
        return copying.outcome(problem=str(error) if vanished else f"in the target, {error}", vanished=vanished)
    except AgentMemoryLogError as error:
        if not is_about_one_run(error):
            raise
        return copying.outcome(problem=str(error))


class _RunCopy:
    """The state of one run's copy, with counts of the work done so far."""

    def __init__(
        self,
        source: Store | SyncStore,
        target: Store | SyncStore,
        agent: str,
        run: str,
        progress: Callable[[int], object],
    ) -> None:
        self._agent = agent
        self._run = run
        self._source = Side(source, agent, run, is_source=True)
        self._target = Side(target, agent, run, is_source=False)
        self._progress = progress
        self._version = 0
        self._events = 0
        self._already_stored = 0
        self._copied = 0
        self._redacted = 0

    def outcome(self, *, digest: str = "", problem: str = "", seq: int = 0, vanished: bool = False) -> CopiedRun:
        return CopiedRun(
            self._agent,
            self._run,
            version=self._version,
            events=self._events,
            already_stored=self._already_stored,
            copied=self._copied,
            redacted=self._redacted,
            digest=digest,
            problem=problem,
            seq=seq,
            vanished=vanished,
        )

    def has_expired_in_source(self) -> Steps[bool]:
        try:
            yield from self._source.state()
        except RunExpired:
            return True
        return False

    def carry_out(self) -> Steps[str]:
        """Copy and compare until both sides are equal. Return their digest."""
        reason = "the events that were read no longer fitted"
        for _ in range(_ROUNDS):
            try:
                digest = yield from self._round()
            except VersionConflict as error:
                reason = str(error)
                # Another writer appended first. The next round shows whether that writer is another copy.
                continue
            if digest is not None:
                return digest
        raise CannotCopy(f"changed too often during the copy: copy it again ({reason})", 0)

    def _round(self) -> Steps[str | None]:
        """Store the missing events and compare. Return the digest if both sides are equal, else None."""
        # The target is read first: if another copy is running, the source then holds every event of the target.
        target = yield from self._target.state()
        source = yield from self._source.state()
        if source.empty:
            raise RunDeleted("no longer holds events in the source")
        self._version = source.version
        self._events = source.version - source.first + 1
        _check_beginning(source, target)
        comparison = yield from self._compare_stored_events(source, target)
        try:
            yield from self._store_rest(source, max(source.first - 1, target.version))
        except CannotCopy as error:
            raise comparison.stopped(error.seq, str(error)) from error
        if not comparison.agrees:
            # A redaction that was just copied may have removed the difference.
            comparison = Comparison(self._source, self._target, source.first, self._progress)
        yield from comparison.compare_up_to(source.version)
        target = yield from self._target.state()
        if target.version != source.version:
            return None
        comparison.check_meta(source.meta, target.meta)
        comparison.finish(source.meta, target.meta)
        if comparison.agrees:
            return comparison.digest
        # An event was redacted during the round. The next round copies its marker, if there is one.
        if (yield from self._source.state()).version == source.version:
            raise comparison.disagreement()
        return None

    def _compare_stored_events(self, source: State, target: State) -> Steps[Comparison]:
        comparison = Comparison(self._source, self._target, source.first, self._progress)
        if target.empty:
            return comparison
        yield from comparison.compare_up_to(min(source.version, target.version))
        comparison.check_meta(source.meta, target.meta)
        if target.version > source.version:
            raise comparison.stopped(
                source.version + 1,
                f"the target continues to version {target.version}, the source ends at {source.version}",
            )
        if not self._copied:
            self._already_stored = comparison.events
        return comparison

    def _store_rest(self, source: State, after: int) -> Steps[None]:
        """Store the source's events after seq ``after`` in the target, and repeat the redactions of their markers."""
        importing = RunImport(self._agent, self._run, meta=source.meta, exact=True, reserved=True)
        pace = Pace()
        try:
            while after < source.version:
                page = yield from self._source.page(after, min(pace.limit, source.version - after))
                total = 0
                for event in page:
                    if isinstance(event.data, Redaction):
                        yield from self._flush(importing)
                        if (yield from self._redact(event, event.data)):
                            continue
                    size = len(encode_json(event.to_map()))
                    total += size
                    importing.add(event, size=size, path=f"seq {event.seq}")
                    if importing.full:
                        yield from self._flush(importing)
                yield from self._flush(importing)
                after = page[-1].seq
                pace.record(len(page), total)
                self._progress(len(page))
        finally:
            self._copied += importing.inserted

    def _flush(self, importing: RunImport) -> Steps[None]:
        try:
            yield from on(self._target.store, importing.flush())
        except (InvalidEvent, EventTooLarge, EventConflict) as error:
            seq = importing.refused.seq if importing.refused is not None else 0
            raise CannotCopy(f"the target refuses it: {str(error).removeprefix(f'seq {seq}: ')}", seq) from error

    def _redact(self, marker: Event, redaction: Redaction) -> Steps[bool]:
        """Redact in the target the events that ``marker`` names. Return whether the target appended its own marker.

        It appends no marker if the events were copied as redacted. The source's marker is then stored unchanged.
        """
        if not redaction.seqs:
            return False
        try:
            result = yield from on(self._target.store, redact(self._agent, self._run, redaction.seqs, redaction.reason))
        except (InvalidEvent, EventTooLarge, CursorOutOfRange) as error:
            raise CannotCopy(f"the target refuses the redaction: {error}", marker.seq) from error
        if not result.inserted:
            return False
        self._copied += 1
        self._redacted += sum(len(event.data.seqs) for event in result.events if isinstance(event.data, Redaction))
        if result.version != marker.seq:
            raise CannotCopy(
                f"the redaction marker has seq {result.version} in the target, because another writer appended first",
                marker.seq,
            )
        return True


def _check_beginning(source: State, target: State) -> None:
    """Check by the seqs that the target does not hold the run yet, or only its first events."""
    if target.empty:
        if target.version >= source.first:
            raise CannotCopy(
                f"the target's run was deleted at version {target.version}; seqs are never reused, and so the target "
                f"cannot hold seq {source.first}",
                source.first,
            )
    elif target.version < source.first:
        raise CannotCopy(
            f"the target still holds events that were deleted in the source, where the run begins at seq "
            f"{source.first}: delete the target's run and copy it again",
            target.first,
        )
    elif target.first != source.first:
        raise CannotCopy(
            f"the target's run begins at seq {target.first}, the source's at seq {source.first}",
            min(target.first, source.first),
        )
