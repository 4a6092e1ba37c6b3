"""Reads a run from two stores in parallel and compares the events, so that a copy finds every difference."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from agent_memory_log.errors import DecodeError, EventsMissing, RunDeleted
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, encode_canonical
from agent_memory_log.events.payloads import Redacted, Redaction
from agent_memory_log.steps import Steps, load, on
from agent_memory_log.store import Store, SyncStore
from agent_memory_log.transfer.importing import BATCH_BYTES, BATCH_EVENTS

_FIRST_PAGE_EVENTS = 50


class CannotCopy(Exception):
    """The error for a run whose copy cannot continue. ``seq`` has the meaning that it has in ``CopiedRun``."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq


class State(msgspec.Struct, frozen=True):
    """The seqs and the meta of a run in one store. It holds no events if ``first`` is above ``version``."""

    first: int
    version: int
    meta: Mapping[str, JsonValue]

    @property
    def empty(self) -> bool:
        """Return whether the run holds no events."""
        return self.first > self.version


class Side:
    """A run in one of the two stores, read in pages."""

    def __init__(self, store: Store | SyncStore, agent: str, run: str, *, is_source: bool) -> None:
        self.store = store
        self._agent = agent
        self._run = run
        self._is_source = is_source
        self._name = "source" if is_source else "target"

    def state(self) -> Steps[State]:
        """Return the seqs and the meta of the stored run."""
        # With no types, the store reads no event, so a damaged event cannot make this fail.
        snapshot = yield from on(self.store, load(self._agent, self._run, types=()))
        return State(snapshot.first_seq, snapshot.version, snapshot.meta)

    def page(self, after: int, limit: int) -> Steps[Sequence[Event]]:
        """Return the events after seq ``after``. Raises if there are no such events or if one is missing."""
        try:
            page = yield from on(self.store, load(self._agent, self._run, after, limit=limit))
        except EventsMissing as error:
            if error.first_seq > after + 1:
                return (yield from self.page(after, error.first_seq - 1 - after))
            raise self._missing(after + 1) from error
        except DecodeError as error:
            if limit > 1:
                return (yield from self.page(after, limit // 2))
            # The result already names the run and the seq, so the store's prefix is removed.
            reason = str(error).removeprefix(f"{self._agent}/{self._run}: event {after + 1} ")
            raise CannotCopy(f"in the {self._name}, {reason}", after + 1) from error
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
                "was deleted in the source during the copy: the target keeps the events copied so far until its run is "
                "deleted too"
            )
        return CannotCopy("was deleted in the target during the copy", after + 1)

    def _missing(self, seq: int) -> Exception:
        return CannotCopy(
            f"is missing in the {self._name}, which holds later events: amlog verify shows the damage", seq
        )


class Pace:
    """The number of events to read at once, so that they make about one batch by number and by size."""

    def __init__(self) -> None:
        self.limit = min(_FIRST_PAGE_EVENTS, BATCH_EVENTS)

    def record(self, events: int, size: int) -> None:
        """Record that ``events`` events with a total of ``size`` bytes were read."""
        self.limit = max(1, min(BATCH_EVENTS, BATCH_BYTES * events // max(size, 1)))


class Comparison:
    """A comparison of a run in both stores, from its first event.

    Events may differ if the source redacted one later and its marker was not copied yet. ``agrees`` is then False. Any
    other difference raises ``CannotCopy``.
    """

    def __init__(self, source: Side, target: Side, first: int, progress: Callable[[int], object]) -> None:
        self.events = 0
        self._source = source
        self._target = target
        self._reached = first - 1
        self._progress = progress
        self._pace = Pace()
        self._digest_of_source = hashlib.sha256()
        self._digest_of_target = hashlib.sha256()
        # The first seq that is redacted only in the source, and the first that has different reasons; 0 if none.
        self._readable = 0
        self._other_reason = 0

    @property
    def digest(self) -> str:
        """Return the digest of the target's run, as 64 hex digits."""
        return self._digest_of_target.hexdigest()

    def compare_up_to(self, last: int) -> Steps[None]:
        """Compare the events up to seq ``last``. Raises ``CannotCopy`` at the first difference."""
        while self._reached < last:
            limit = min(self._pace.limit, last - self._reached)
            source_page = yield from self._source.page(self._reached, limit)
            target_page = yield from self._target.page(self._reached, limit)
            size = sum(self._compare(*pair) for pair in zip(source_page, target_page, strict=False))
            count = min(len(source_page), len(target_page))
            self._reached += count
            self.events += count
            self._pace.record(count, size)
            self._progress(count)

    def _compare(self, source: Event, target: Event) -> int:
        """Compare two events. Return the size of both in bytes."""
        source_line, target_line = _comparable_line(source), _comparable_line(target)
        self._digest_of_source.update(source_line)
        self._digest_of_target.update(target_line)
        if source_line != target_line:
            if not _is_redacted_later(source, target):
                raise self.stopped(source.seq, _difference(source, target))
            if isinstance(target.data, Redacted):
                self._other_reason = self._other_reason or source.seq
            else:
                self._readable = self._readable or source.seq
        return len(source_line) + len(target_line)

    def check_meta(self, meta_of_source: Mapping[str, JsonValue], meta_of_target: Mapping[str, JsonValue]) -> None:
        """Check that both metas are equal. Raises ``CannotCopy``."""
        if encode_canonical(meta_of_source) != encode_canonical(meta_of_target):
            raise self.stopped(0, "the target's run has another meta; the meta of an existing run cannot be changed")

    def finish(self, meta_of_source: Mapping[str, JsonValue], meta_of_target: Mapping[str, JsonValue]) -> None:
        """Add the metas to the digests, after all events."""
        self._digest_of_source.update(encode_canonical(meta_of_source))
        self._digest_of_target.update(encode_canonical(meta_of_target))

    @property
    def agrees(self) -> bool:
        """Return whether everything compared so far is equal."""
        return self._digest_of_source.digest() == self._digest_of_target.digest()

    def stopped(self, seq: int, message: str) -> CannotCopy:
        """Return the error that stops the copy at ``seq``.

        If an event is redacted only in the source, the message names the first such event too.
        """
        if self._readable:
            message += f"; seq {self._readable} is redacted in the source, but is readable in the target"
        return CannotCopy(message, seq)

    def disagreement(self) -> CannotCopy:
        """Return the error for a difference that no later redaction marker explains."""
        if self._readable:
            return CannotCopy(
                "is redacted in the source without a redaction marker, and still readable in the target: redact it",
                self._readable,
            )
        return CannotCopy("is redacted for another reason in the target", self._other_reason)


def _comparable_line(event: Event) -> bytes:
    """Return the line of JSON that must be equal in both stores.

    A redaction marker is written by each store, so its line holds only type, seq and reason.
    """
    comparable = event.to_map()
    if _is_marker(event):
        data = {key: value for key, value in event.data.to_map().items() if key != "seqs"}
        comparable = {"type": event.type, "seq": event.seq, "data": data}
    return encode_canonical(comparable) + b"\n"


def _is_marker(event: Event) -> bool:
    return _original_type(event) == Redaction.event_type


def _original_type(event: Event) -> str:
    """Return the event's type, or its type before the redaction if it is redacted."""
    return event.data.original_type if isinstance(event.data, Redacted) else event.type


def _is_redacted_later(source: Event, target: Event) -> bool:
    """Return whether both events are the same one, and the source redacted it after it was copied."""
    if not isinstance(source.data, Redacted) or _original_type(source) != _original_type(target):
        return False
    return _is_marker(source) or (source.event_id, source.timestamp) == (target.event_id, target.timestamp)


def _difference(source: Event, target: Event) -> str:
    """Describe the difference of two events with the same seq."""
    if source.event_id != target.event_id:
        return (
            f"the target holds another event: a {target.type} with the id {target.event_id!r}, but the source has a "
            f"{source.type} with the id {source.event_id!r}"
        )
    if isinstance(target.data, Redacted) and not isinstance(source.data, Redacted):
        return "is redacted in the target, but not in the source: redact it there too"
    source_map, target_map = source.to_map(), target.to_map()
    names = [name for name in ("type", "timestamp", "data", "labels") if source_map.get(name) != target_map.get(name)]
    return f"the target holds an event with the same id but other {' and '.join(names) or 'content'}"
