"""Copying runs from one store to another: as they are, on from where an earlier copy stopped, and read back.

A copied run has the source's meta, and its events their seqs, ids, times and labels, redacted events and redaction
markers included; only ``created`` is the target's own. A copy is an operator's act: the library's own runs, memories
among them, are copied like any other. An event that was redacted after it had been copied is redacted in the target as
well. That appends a marker of the target's making, at the seq of the source's and for the same reason, which has
another id and time, and names only those events that were still readable.

For a redaction marker, the digest of a run covers only type, seq and reason, because the markers of the two stores can
differ in the rest.
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
"""How often a copy begins again when the run changes in a way that what was read no longer fits."""


class CopiedRun(msgspec.Struct, frozen=True):
    """The result of copying one run.

    Attributes:
        agent: The id of the agent.
        run: The id of the run.
        version: The run's version in the source, up to which it was copied.
        events: How many events the run holds in the source.
        already: How many of them the target held before.
        copied: How many events were stored in the target now.
        redacted: How many events were redacted in the target because they are redacted in the source.
        digest: The SHA-256 of the run as read back from the target, in 64 hex digits, or ``""`` if there is a problem.
            It covers each event's map as one line of JSON with sorted keys, and then the meta. For a redaction marker,
            it covers only type, seq and reason, even if the marker was redacted too.
        problem: Why the target's run differs from the source's, or ``""``. Events that were copied before the problem
            stay.
        seq: The event that the problem is about, or 0 for the whole run.
        gone: Whether the only problem is that the run was deleted or has expired in the source.
    """

    agent: str
    run: str
    version: int = 0
    events: int = 0
    already: int = 0
    copied: int = 0
    redacted: int = 0
    digest: str = ""
    problem: str = ""
    seq: int = 0
    gone: bool = False


def _unseen(_events: int, /) -> None:
    """Nobody is watching."""


async def runs_by_age(store: Store, agent: str | None = None) -> list[RunInfo]:
    """The runs of a store, or of ``agent``, oldest-created first; the library's own included.

    Copied in this order, a target that held none of them lists them as the source does. Holds what it returns in
    memory. Raises as ``Store.list_runs`` does.
    """
    return (await run_async(all_runs(agent, include_reserved=True), store))[::-1]


async def copy_store(
    source: Store, target: Store, *, agent: str | None = None, seen: Callable[[int], object] = _unseen
) -> AsyncGenerator[CopiedRun]:
    """Copy every run of ``source``, or every run of ``agent``, the oldest first; see ``copy_run``.

    A run that cannot be copied is one result more, and the others go on. Raises as ``runs_by_age`` and ``copy_run`` do.

        async for copied in copy_store(source, target):
            print(copied.agent, copied.run, copied.problem or copied.digest)
    """
    for info in await runs_by_age(source, agent):
        yield await copy_run(source, target, info.agent, info.run, seen=seen)


def copy_store_sync(
    source: SyncStore, target: SyncStore, *, agent: str | None = None, seen: Callable[[int], object] = _unseen
) -> Generator[CopiedRun]:
    """``copy_store`` without ``await``."""
    for info in run_sync(all_runs(agent, include_reserved=True), source)[::-1]:
        yield copy_run_sync(source, target, info.agent, info.run, seen=seen)


async def copy_run(
    source: Store, target: Store, agent: str, run: str, *, seen: Callable[[int], object] = _unseen
) -> CopiedRun:
    """Copy a run and compare both copies. The target may hold nothing of the run, or its beginning.

    Events are read in pages, up to the version at the start. A repeated call continues an interrupted copy, or adds the
    new events of the source. Nothing is stored twice.

    Conflicts do not raise. The result's ``problem`` describes them: a different event in the target, an event that
    cannot be read or that the target refuses, or a run that was deleted meanwhile.

    Args:
        source: The store to read from.
        target: The store to copy to.
        agent: The id of the agent.
        run: The id of the run.
        seen: A callback for progress. It receives the number of events that were stored or compared since the last
            call: in total about twice the events of a new run, and once the events of a run that was already copied.

    Raises:
        InvalidArgument: ``source`` and ``target`` are the same store.
        StoreUnavailable: A whole store failed.
        StoreClosed: A handle was closed.
        SchemaTooNew: A newer release wrote a store.
    """
    return await run_async(_copy(source, target, agent, run, seen), source)


def copy_run_sync(
    source: SyncStore, target: SyncStore, agent: str, run: str, *, seen: Callable[[int], object] = _unseen
) -> CopiedRun:
    """``copy_run`` without ``await``."""
    return run_sync(_copy(source, target, agent, run, seen), source)


def _copy(
    source: Store | SyncStore, target: Store | SyncStore, agent: str, run: str, seen: Callable[[int], object]
) -> Steps[CopiedRun]:
    if source is target:
        raise InvalidArgument("source and target are one store: a copy needs another one to go to")
    copying = _RunCopy(source, target, agent, run, seen)
    try:
        return copying.outcome(digest=(yield from copying.carry_out()))
    except CannotCopy as error:
        return copying.outcome(problem=str(error), seq=error.seq)
    except RunDeleted as error:
        return copying.outcome(problem=str(error), gone=True)
    except RunExpired as error:
        gone = yield from copying.has_expired_in_source()
        return copying.outcome(problem=str(error) if gone else f"in the target, {error}", gone=gone)
    except AgentMemoryLogError as error:
        if not is_about_one_run(error):
            raise
        return copying.outcome(problem=str(error))


class _RunCopy:
    """The state of one run's copy, and what was done so far."""

    def __init__(
        self, source: Store | SyncStore, target: Store | SyncStore, agent: str, run: str, seen: Callable[[int], object]
    ) -> None:
        self._agent = agent
        self._run = run
        self._source = Side(source, agent, run, is_source=True)
        self._target = Side(target, agent, run, is_source=False)
        self._seen = seen
        self._version = 0
        self._events = 0
        self._already = 0
        self._copied = 0
        self._redacted = 0

    def outcome(self, *, digest: str = "", problem: str = "", seq: int = 0, gone: bool = False) -> CopiedRun:
        return CopiedRun(
            self._agent,
            self._run,
            version=self._version,
            events=self._events,
            already=self._already,
            copied=self._copied,
            redacted=self._redacted,
            digest=digest,
            problem=problem,
            seq=seq,
            gone=gone,
        )

    def has_expired_in_source(self) -> Steps[bool]:
        try:
            yield from self._source.state()
        except RunExpired:
            return True
        return False

    def carry_out(self) -> Steps[str]:
        """Copy and compare until both sides are equal; their digest."""
        reason = "what was read no longer fitted"
        for _ in range(_ROUNDS):
            try:
                digest = yield from self._round()
            except VersionConflict as error:
                reason = str(error)  # another writer was quicker: the next look shows whether it is another copy
                continue
            if digest is not None:
                return digest
        raise CannotCopy(f"changed again and again while it was copied: copy it again ({reason})", 0)

    def _round(self) -> Steps[str | None]:
        """Store what is missing and compare; the digest if both sides are equal, None if they have changed."""
        # In this order, as another copy may be at work: what is in the target is in the source by then.
        target = yield from self._target.state()
        source = yield from self._source.state()
        if source.empty:
            raise RunDeleted("holds no events in the source any more")
        self._version = source.version
        self._events = source.version - source.first + 1
        _check_beginning(source, target)
        comparison = yield from self._compare_what_is_there(source, target)
        try:
            yield from self._store_rest(source, max(source.first - 1, target.version))
        except CannotCopy as error:
            raise comparison.stopped(error.seq, str(error)) from error
        if not comparison.agrees:  # what was stored has redacted it
            comparison = Comparison(self._source, self._target, source.first, self._seen)
        yield from comparison.go_on(source.version)
        target = yield from self._target.state()
        if target.version != source.version:
            return None
        comparison.check_meta(source.meta, target.meta)
        comparison.finish(source.meta, target.meta)
        if comparison.agrees:
            return comparison.digest
        # The marker of what was redacted meanwhile comes in the next round, unless there is none.
        if (yield from self._source.state()).version == source.version:
            raise comparison.disagreement()
        return None

    def _compare_what_is_there(self, source: State, target: State) -> Steps[Comparison]:
        comparison = Comparison(self._source, self._target, source.first, self._seen)
        if target.empty:
            return comparison
        yield from comparison.go_on(min(source.version, target.version))
        comparison.check_meta(source.meta, target.meta)
        if target.version > source.version:
            raise comparison.stopped(
                source.version + 1,
                f"the target goes on to version {target.version}, the source ends at {source.version}",
            )
        if not self._copied:
            self._already = comparison.events
        return comparison

    def _store_rest(self, source: State, after: int) -> Steps[None]:
        """Store in the target what the source holds after ``after``, and redact what that says was redacted."""
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
                    importing.add(event, size=size, where=f"seq {event.seq}")
                    if importing.full:
                        yield from self._flush(importing)
                yield from self._flush(importing)
                after = page[-1].seq
                pace.saw(len(page), total)
                self._seen(len(page))
        finally:
            self._copied += importing.inserted

    def _flush(self, importing: RunImport) -> Steps[None]:
        try:
            yield from on(self._target.store, importing.flush())
        except (InvalidEvent, EventTooLarge, EventConflict) as error:
            seq = importing.refused.seq if importing.refused is not None else 0
            raise CannotCopy(f"the target refuses it: {str(error).removeprefix(f'seq {seq}: ')}", seq) from error

    def _redact(self, marker: Event, redaction: Redaction) -> Steps[bool]:
        """Redact in the target what ``marker`` says was redacted; whether that appended the target's own marker.

        It does not where the events came redacted, and the source's marker can be stored as it is.
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
        self._redacted += sum(len(one.data.seqs) for one in result.events if isinstance(one.data, Redaction))
        if result.version != marker.seq:
            raise CannotCopy(
                f"the redaction marker stands at seq {result.version} in the target, as another writer was quicker",
                marker.seq,
            )
        return True


def _check_beginning(source: State, target: State) -> None:
    """Check that the target holds nothing of the run or its beginning, as far as the numbers say."""
    if target.empty:
        if target.version >= source.first:
            raise CannotCopy(
                f"the target's run was deleted at version {target.version}, and its numbers never start again: it "
                f"cannot hold seq {source.first}",
                source.first,
            )
    elif target.version < source.first:
        raise CannotCopy(
            f"the target still holds what was deleted in the source, where the run begins at seq {source.first}: "
            "delete the target's run, and copy it again",
            target.first,
        )
    elif target.first != source.first:
        raise CannotCopy(
            f"the target's run begins at seq {target.first}, the source's at seq {source.first}",
            min(target.first, source.first),
        )
