"""Copying runs from one store to another: as they are, on from where an earlier copy stopped, and read back.

A copied run has the source's meta, and its events their seqs, ids, times and labels, redacted events and redaction
markers included; only ``created`` is the target's own. A copy is an operator's act: the library's own runs, memories
among them, are copied like any other. An event that was redacted after it had been copied is redacted in the target as
well. That appends a marker of the target's making, at the seq of the source's and for the same reason, which has
another id and time, and names only those events that were still readable.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec

from agent_memory_log.errors import (
    AgentMemoryLogError,
    CursorOutOfRange,
    DecodeError,
    EventConflict,
    EventsMissing,
    EventTooLarge,
    InvalidArgument,
    InvalidEvent,
    RunDeleted,
    RunExpired,
    SchemaTooNew,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
    VersionConflict,
)
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, encode_canonical, encode_json
from agent_memory_log.events.payloads import Redacted, Redaction
from agent_memory_log.steps import all_runs, run_async
from agent_memory_log.store import RunInfo, Store
from agent_memory_log.transfer.importing import BATCH_BYTES, BATCH_EVENTS, RunImport

_FIRST_PAGE_EVENTS = 50

_ROUNDS = 5
"""How often a copy begins again when the run changes in a way that what was read no longer fits."""


class CopiedRun(msgspec.Struct, frozen=True):
    """What a copy did to a run.

    - ``version``: the run's version in the source, up to which it was copied; ``events``: how many it holds there.
    - ``already``: how many of its events the target held before; ``copied``: how many were stored in it now.
    - ``redacted``: how many events were redacted in the target, because they had been in the source.
    - ``digest``: the SHA-256, as 64 hex digits, of what both stores hold, read back: each event's map as JSON with
      sorted keys, on a line of its own, and last the run's meta. Of a redaction marker, redacted itself or not, it
      covers type, seq and reason. ``""`` where there is a ``problem``.
    - ``problem``: why the target does not hold the run as the source does, ``""`` if it does; ``seq``: the event that
      this is about, 0 for the run as a whole. What was copied before it stays.
    - ``gone``: whether the problem is only that the run was deleted, or has expired, in the source.
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
    return (await run_async(all_runs(agent, reserved=True), store))[::-1]


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


async def copy_run(
    source: Store, target: Store, agent: str, run: str, *, seen: Callable[[int], object] = _unseen
) -> CopiedRun:
    """Copy a run to where ``target`` holds nothing of it or a beginning of it, and read it back.

    Reads a page at a time, up to the version at the start. A copy that was interrupted, by whatever, goes on when it is
    repeated, and so does one whose source has grown; nothing is stored twice. ``seen`` is called with how many events
    were stored or compared: about twice as many as a new run has, and as many as one that is there.

    What is in the way is the result's ``problem``, and other runs may still be copied: another event in the target, one
    that cannot be read or that the target refuses, a run deleted meanwhile. Raises ``InvalidArgument`` for a store as
    its own target, and ``StoreUnavailable``, ``StoreClosed`` or ``SchemaTooNew`` where it is about a whole store.
    """
    if source is target:
        raise InvalidArgument("source and target are one store: a copy needs another one to go to")
    copying = _RunCopy(source, target, agent, run, seen)
    try:
        return copying.outcome(digest=await copying.carry_out())
    except _CannotCopy as error:
        return copying.outcome(problem=str(error), seq=error.seq)
    except RunDeleted as error:
        return copying.outcome(problem=str(error), gone=True)
    except RunExpired as error:
        gone = await copying.has_expired_in_source()
        return copying.outcome(problem=str(error) if gone else f"in the target, {error}", gone=gone)
    except (StoreClosed, SchemaTooNew):
        raise
    except AgentMemoryLogError as error:
        if isinstance(error, StoreUnavailable) and not isinstance(error, StoreCorrupt):
            raise
        return copying.outcome(problem=str(error))


class _CannotCopy(Exception):
    """The run cannot be copied, or not further; ``seq`` as in ``CopiedRun``."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq


class _State(msgspec.Struct, frozen=True):
    """What a store holds of a run: the events from ``first`` to ``version``, none where that is no range."""

    first: int
    version: int
    meta: Mapping[str, JsonValue]

    @property
    def empty(self) -> bool:
        return self.first > self.version


class _Side:
    """A run in one of the two stores, read in pages."""

    def __init__(self, store: Store, agent: str, run: str, *, is_source: bool) -> None:
        self.store = store
        self._agent = agent
        self._run = run
        self._is_source = is_source
        self._name = "source" if is_source else "target"

    async def state(self) -> _State:
        # Asking for no type reads no event, and so cannot fail on one.
        there = await self.store.load_run(self._agent, self._run, types=())
        return _State(there.first_seq, there.version, there.meta)

    async def page(self, after: int, limit: int) -> Sequence[Event]:
        """The next events, of which there must be some, without a gap."""
        try:
            page = await self.store.load_run(self._agent, self._run, after=after, limit=limit)
        except EventsMissing as error:
            if error.first_seq > after + 1:
                return await self.page(after, error.first_seq - 1 - after)
            raise self._missing(after + 1) from error
        except DecodeError as error:
            if limit > 1:
                return await self.page(after, limit // 2)
            # Which event it is, is said beside the problem; a store says it too, which would make it long.
            reason = str(error).removeprefix(f"{self._agent}/{self._run}: event {after + 1} ")
            raise _CannotCopy(f"in the {self._name}, {reason}", after + 1) from error
        if page.first_seq > after + 1:
            raise self._deleted(after)
        for seq, event in enumerate(page.log, after + 1):
            if event.seq != seq:
                raise self._missing(seq)
        if not page.log:
            raise self._missing(after + 1)
        return page.log

    def _deleted(self, after: int) -> Exception:
        if self._is_source:
            return RunDeleted(
                "was deleted in the source while it was copied: what the target holds of it stays there until it is "
                "deleted too"
            )
        return _CannotCopy("was deleted in the target while it was copied there", after + 1)

    def _missing(self, seq: int) -> Exception:
        return _CannotCopy(
            f"is missing in the {self._name}, which holds later ones: amlog verify shows the damage", seq
        )


class _Pace:
    """How many events to read at once: as many as make a batch, by number and by size."""

    def __init__(self) -> None:
        self.limit = min(_FIRST_PAGE_EVENTS, BATCH_EVENTS)

    def saw(self, events: int, size: int) -> None:
        """Take in that ``events`` of ``size`` bytes together were read."""
        self.limit = max(1, min(BATCH_EVENTS, BATCH_BYTES * events // max(size, 1)))


class _RunCopy:
    """The state of one run's copy, and what was done so far."""

    def __init__(self, source: Store, target: Store, agent: str, run: str, seen: Callable[[int], object]) -> None:
        self._agent = agent
        self._run = run
        self._source = _Side(source, agent, run, is_source=True)
        self._target = _Side(target, agent, run, is_source=False)
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

    async def has_expired_in_source(self) -> bool:
        try:
            await self._source.state()
        except RunExpired:
            return True
        return False

    async def carry_out(self) -> str:
        """Copy and compare until both sides are equal; their digest."""
        reason = "what was read no longer fitted"
        for _ in range(_ROUNDS):
            try:
                digest = await self._round()
            except VersionConflict as error:
                reason = str(error)  # another writer was quicker: the next look shows whether it is another copy
                continue
            if digest is not None:
                return digest
        raise _CannotCopy(f"changed again and again while it was copied: copy it again ({reason})", 0)

    async def _round(self) -> str | None:
        """Store what is missing and compare; the digest if both sides are equal, None if they have changed."""
        # In this order, as another copy may be at work: what is in the target is in the source by then.
        target = await self._target.state()
        source = await self._source.state()
        if source.empty:
            raise RunDeleted("holds no events in the source any more")
        self._version = source.version
        self._events = source.version - source.first + 1
        _check_beginning(source, target)
        comparison = await self._compare_what_is_there(source, target)
        try:
            await self._store_rest(source, max(source.first - 1, target.version))
        except _CannotCopy as error:
            raise comparison.stopped(error.seq, str(error)) from error
        if not comparison.agrees:  # what was stored has redacted it
            comparison = _Comparison(self._source, self._target, source.first, self._seen)
        await comparison.go_on(source.version)
        target = await self._target.state()
        if target.version != source.version:
            return None
        comparison.check_meta(source.meta, target.meta)
        comparison.finish(source.meta, target.meta)
        if comparison.agrees:
            return comparison.digest
        # The marker of what was redacted meanwhile comes in the next round, unless there is none.
        if (await self._source.state()).version == source.version:
            raise comparison.disagreement()
        return None

    async def _compare_what_is_there(self, source: _State, target: _State) -> _Comparison:
        comparison = _Comparison(self._source, self._target, source.first, self._seen)
        if target.empty:
            return comparison
        await comparison.go_on(min(source.version, target.version))
        comparison.check_meta(source.meta, target.meta)
        if target.version > source.version:
            raise comparison.stopped(
                source.version + 1,
                f"the target goes on to version {target.version}, the source ends at {source.version}",
            )
        if not self._copied:
            self._already = comparison.events
        return comparison

    async def _store_rest(self, source: _State, after: int) -> None:
        """Store in the target what the source holds after ``after``, and redact what that says was redacted."""
        importing = RunImport(self._target.store, self._agent, self._run, meta=source.meta, exact=True, reserved=True)
        pace = _Pace()
        try:
            while after < source.version:
                page = await self._source.page(after, min(pace.limit, source.version - after))
                total = 0
                for event in page:
                    if isinstance(event.data, Redaction):
                        await self._flush(importing)
                        if await self._redact(event, event.data):
                            continue
                    size = len(encode_json(event.to_map()))
                    total += size
                    importing.add(event, size=size, where=f"seq {event.seq}")
                    if importing.full:
                        await self._flush(importing)
                await self._flush(importing)
                after = page[-1].seq
                pace.saw(len(page), total)
                self._seen(len(page))
        finally:
            self._copied += importing.inserted

    async def _flush(self, importing: RunImport) -> None:
        try:
            await importing.flush()
        except (InvalidEvent, EventTooLarge, EventConflict) as error:
            seq = importing.refused.seq if importing.refused is not None else 0
            raise _CannotCopy(f"the target refuses it: {str(error).removeprefix(f'seq {seq}: ')}", seq) from error

    async def _redact(self, marker: Event, redaction: Redaction) -> bool:
        """Redact in the target what ``marker`` says was redacted; whether that appended the target's own marker.

        It does not where the events came redacted, and the source's marker can be stored as it is.
        """
        if not redaction.seqs:
            return False
        try:
            result = await self._target.store.redact_events(
                self._agent, self._run, redaction.seqs, reason=redaction.reason
            )
        except (InvalidEvent, EventTooLarge, CursorOutOfRange) as error:
            raise _CannotCopy(f"the target refuses the redaction: {error}", marker.seq) from error
        if not result.inserted:
            return False
        self._copied += 1
        self._redacted += sum(len(one.data.seqs) for one in result.events if isinstance(one.data, Redaction))
        if result.version != marker.seq:
            raise _CannotCopy(
                f"the redaction marker stands at seq {result.version} in the target, as another writer was quicker",
                marker.seq,
            )
        return True


def _check_beginning(source: _State, target: _State) -> None:
    """Check that the target holds nothing of the run or its beginning, as far as the numbers say."""
    if target.empty:
        if target.version >= source.first:
            raise _CannotCopy(
                f"the target's run was deleted at version {target.version}, and its numbers never start again: it "
                f"cannot hold seq {source.first}",
                source.first,
            )
    elif target.version < source.first:
        raise _CannotCopy(
            f"the target still holds what was deleted in the source, where the run begins at seq {source.first}: "
            "delete the target's run, and copy it again",
            target.first,
        )
    elif target.first != source.first:
        raise _CannotCopy(
            f"the target's run begins at seq {target.first}, the source's at seq {source.first}",
            min(target.first, source.first),
        )


class _Comparison:
    """Both sides of a run read in step, from its first event on.

    What a redaction that is still to come explains is let pass, and then the two do not agree; any other difference is
    raised.
    """

    def __init__(self, source: _Side, target: _Side, first: int, seen: Callable[[int], object]) -> None:
        self.events = 0
        self._source = source
        self._target = target
        self._reached = first - 1
        self._seen = seen
        self._pace = _Pace()
        self._digest_of_source = hashlib.sha256()
        self._digest_of_target = hashlib.sha256()
        self._readable = 0
        self._other_reason = 0

    @property
    def digest(self) -> str:
        return self._digest_of_target.hexdigest()

    async def go_on(self, upto: int) -> None:
        """Compare the events up to seq ``upto``. Raises ``_CannotCopy`` at the first that differ."""
        while self._reached < upto:
            limit = min(self._pace.limit, upto - self._reached)
            ours = await self._source.page(self._reached, limit)
            theirs = await self._target.page(self._reached, limit)
            size = sum(self._compare(one, other) for one, other in zip(ours, theirs, strict=False))
            count = min(len(ours), len(theirs))
            self._reached += count
            self.events += count
            self._pace.saw(count, size)
            self._seen(count)

    def _compare(self, ours: Event, theirs: Event) -> int:
        one, other = _essence(ours), _essence(theirs)
        self._digest_of_source.update(one)
        self._digest_of_target.update(other)
        if one != other:
            if not _is_redacted_later(ours, theirs):
                raise self.stopped(ours.seq, _difference(ours, theirs))
            if isinstance(theirs.data, Redacted):
                self._other_reason = self._other_reason or ours.seq
            else:
                self._readable = self._readable or ours.seq
        return len(one) + len(other)

    def check_meta(self, meta_of_source: Mapping[str, JsonValue], meta_of_target: Mapping[str, JsonValue]) -> None:
        """Raises ``_CannotCopy`` where they differ."""
        if encode_canonical(meta_of_source) != encode_canonical(meta_of_target):
            raise self.stopped(0, "the target's run has another meta, which stays as it was when the run was created")

    def finish(self, meta_of_source: Mapping[str, JsonValue], meta_of_target: Mapping[str, JsonValue]) -> None:
        """Take in what comes last."""
        self._digest_of_source.update(encode_canonical(meta_of_source))
        self._digest_of_target.update(encode_canonical(meta_of_target))

    @property
    def agrees(self) -> bool:
        """Whether all that was compared is equal."""
        return self._digest_of_source.digest() == self._digest_of_target.digest()

    def stopped(self, seq: int, message: str) -> _CannotCopy:
        """The end of the copy at ``seq``, with what can be read in the target and was redacted in the source."""
        if self._readable:
            message += f"; seq {self._readable} is redacted in the source, and was found readable in the target"
        return _CannotCopy(message, seq)

    def disagreement(self) -> _CannotCopy:
        """Why the two do not agree, when no redaction is to come any more."""
        if self._readable:
            return _CannotCopy(
                "is redacted in the source, where no marker says so, and still readable in the target: redact it there",
                self._readable,
            )
        return _CannotCopy("is redacted for another reason in the target", self._other_reason)


def _essence(event: Event) -> bytes:
    """What two stores must agree on: the event as a line of JSON; of a marker, what is not each store's own."""
    shown = event.to_map()
    if _is_marker(event):
        data = {key: value for key, value in event.data.to_map().items() if key != "seqs"}
        shown = {"type": event.type, "seq": event.seq, "data": data}
    return encode_canonical(shown) + b"\n"


def _is_marker(event: Event) -> bool:
    return _type_once(event) == Redaction.event_type


def _type_once(event: Event) -> str:
    """The event's type, before it was redacted if it is."""
    return event.data.original_type if isinstance(event.data, Redacted) else event.type


def _is_redacted_later(ours: Event, theirs: Event) -> bool:
    """Whether the source's event is the target's, redacted since it was copied."""
    if not isinstance(ours.data, Redacted) or _type_once(ours) != _type_once(theirs):
        return False
    return _is_marker(ours) or (ours.event_id, ours.timestamp) == (theirs.event_id, theirs.timestamp)


def _difference(ours: Event, theirs: Event) -> str:
    """In what two events at one seq differ."""
    if ours.event_id != theirs.event_id:
        return (
            f"the target holds another event: a {theirs.type} with the id {theirs.event_id!r}, where the source has a "
            f"{ours.type} with the id {ours.event_id!r}"
        )
    if isinstance(theirs.data, Redacted) and not isinstance(ours.data, Redacted):
        return "is redacted in the target and not in the source: redact it there too"
    one, other = ours.to_map(), theirs.to_map()
    names = [name for name in ("type", "timestamp", "data", "labels") if one.get(name) != other.get(name)]
    return f"the target holds an event with the same id and another {' and '.join(names) or 'body'}"
