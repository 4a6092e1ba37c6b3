"""A run in two stores, read in step and compared: what a copy may let pass, and what is a difference."""

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
    """The run cannot be copied, or not further; ``seq`` as in ``CopiedRun``."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq


class State(msgspec.Struct, frozen=True):
    """What a store holds of a run: the events from ``first`` to ``version``, none where that is no range."""

    first: int
    version: int
    meta: Mapping[str, JsonValue]

    @property
    def empty(self) -> bool:
        """Whether there are no events."""
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
        """What the store holds of the run now."""
        # Asking for no type reads no event, and so cannot fail on one.
        there = yield from on(self.store, load(self._agent, self._run, types=()))
        return State(there.first_seq, there.version, there.meta)

    def page(self, after: int, limit: int) -> Steps[Sequence[Event]]:
        """The next events, of which there must be some, without a gap."""
        try:
            page = yield from on(self.store, load(self._agent, self._run, after, limit=limit))
        except EventsMissing as error:
            if error.first_seq > after + 1:
                return (yield from self.page(after, error.first_seq - 1 - after))
            raise self._missing(after + 1) from error
        except DecodeError as error:
            if limit > 1:
                return (yield from self.page(after, limit // 2))
            # Which event it is, is said beside the problem; a store says it too, which would make it long.
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
                "was deleted in the source while it was copied: what the target holds of it stays there until it is "
                "deleted too"
            )
        return CannotCopy("was deleted in the target while it was copied there", after + 1)

    def _missing(self, seq: int) -> Exception:
        return CannotCopy(f"is missing in the {self._name}, which holds later ones: amlog verify shows the damage", seq)


class Pace:
    """How many events to read at once: as many as make a batch, by number and by size."""

    def __init__(self) -> None:
        self.limit = min(_FIRST_PAGE_EVENTS, BATCH_EVENTS)

    def saw(self, events: int, size: int) -> None:
        """Take in that ``events`` of ``size`` bytes together were read."""
        self.limit = max(1, min(BATCH_EVENTS, BATCH_BYTES * events // max(size, 1)))


class Comparison:
    """Both sides of a run read in step, from its first event on.

    What a redaction that is still to come explains is let pass, and then the two do not agree; any other difference is
    raised.
    """

    def __init__(self, source: Side, target: Side, first: int, seen: Callable[[int], object]) -> None:
        self.events = 0
        self._source = source
        self._target = target
        self._reached = first - 1
        self._seen = seen
        self._pace = Pace()
        self._digest_of_source = hashlib.sha256()
        self._digest_of_target = hashlib.sha256()
        self._readable = 0
        self._other_reason = 0

    @property
    def digest(self) -> str:
        """Of the target, as 64 hex digits."""
        return self._digest_of_target.hexdigest()

    def go_on(self, upto: int) -> Steps[None]:
        """Compare the events up to seq ``upto``. Raises ``CannotCopy`` at the first that differ."""
        while self._reached < upto:
            limit = min(self._pace.limit, upto - self._reached)
            ours = yield from self._source.page(self._reached, limit)
            theirs = yield from self._target.page(self._reached, limit)
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
        """Raises ``CannotCopy`` where they differ."""
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

    def stopped(self, seq: int, message: str) -> CannotCopy:
        """The end of the copy at ``seq``, with what can be read in the target and was redacted in the source."""
        if self._readable:
            message += f"; seq {self._readable} is redacted in the source, and was found readable in the target"
        return CannotCopy(message, seq)

    def disagreement(self) -> CannotCopy:
        """Why the two do not agree, when no redaction is to come any more."""
        if self._readable:
            return CannotCopy(
                "is redacted in the source, where no marker says so, and still readable in the target: redact it there",
                self._readable,
            )
        return CannotCopy("is redacted for another reason in the target", self._other_reason)


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
