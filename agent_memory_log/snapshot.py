"""The snapshot: the result of one read of a run, which later reads can extend.

``Snapshot.extend`` takes time only for the new events, because the snapshots of one run share one list of events. A
snapshot extended by the new events equals a new read of the run; the conformance suite checks this.

Every redaction appends a marker to the log, and ``Snapshot.redactions`` has the content of the markers. From them,
``extend`` learns which earlier events to mask, even if the snapshot's types leave the markers out.
"""

from __future__ import annotations

import inspect
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast, overload

from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.events.event import Event, redacted_form
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import Redacted, Redaction

_REDACTED = Redacted.event_type
_by_time = attrgetter("timestamp", "seq")


class EventList(Sequence[Event]):
    """An immutable sequence of events. It equals any list or tuple of equal events."""

    __slots__ = ("_events", "_length")

    def __init__(self, events: list[Event], length: int) -> None:
        self._events = events
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        if isinstance(index, slice):
            return tuple(self._events[i] for i in range(*index.indices(self._length)))
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"index {index} is out of range: the list has {self._length} events")
        return self._events[position]

    def __iter__(self) -> Iterator[Event]:
        return islice(self._events, self._length)

    def __reversed__(self) -> Iterator[Event]:
        return map(self._events.__getitem__, range(self._length - 1, -1, -1))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (EventList, list, tuple)):
            return NotImplemented
        items = cast("Sequence[object]", other)
        return len(items) == self._length and all(event == item for event, item in zip(self, items, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as for list: events may hold mutable values

    def __repr__(self) -> str:
        return f"EventList({list(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return EventList, (list(self), self._length)  # without the events of later snapshots


class Derived(Protocol):
    """A value that is computed from a log event by event, in order."""

    def add(self, index: int, event: Event, /) -> None:
        """Add the event that has this index in the log."""
        ...


_Derived = TypeVar("_Derived", bound=Derived)
_Result = TypeVar("_Result")


class _Tape:
    """The events that snapshots share: a list in append order, and a second list by time if that order differs."""

    __slots__ = ("by_seq", "by_time", "derived", "lock")

    def __init__(self, by_seq: list[Event]) -> None:
        self.by_seq = by_seq
        pairs = zip(by_seq, islice(by_seq, 1, None), strict=False)
        ordered = all(_by_time(earlier) <= _by_time(later) for earlier, later in pairs)
        self.by_time = by_seq if ordered else sorted(by_seq, key=_by_time)
        self.lock = threading.Lock()
        self.derived: dict[type, tuple[int, Any]] = {}

    def append(self, newer: Sequence[Event]) -> None:
        """Add ``newer`` at the end. The caller holds the lock."""
        by_time = sorted(newer, key=_by_time)
        late = bool(by_time and self.by_time and _by_time(by_time[0]) < _by_time(self.by_time[-1]))
        if self.by_time is self.by_seq and (late or by_time != list(newer)):
            self.by_time = list(self.by_seq)
        self.by_seq.extend(newer)
        if self.by_time is self.by_seq:
            return
        if late:
            # Older snapshots use a prefix of their list, so an event that belongs inside the prefix needs a new list.
            position = bisect_right(self.by_time, _by_time(by_time[0]), key=_by_time)
            self.by_time = self.by_time[:position] + sorted([*self.by_time[position:], *by_time], key=_by_time)
        else:
            self.by_time.extend(by_time)


class _View:
    """The part of a tape that one snapshot sees: its first ``length`` events."""

    __slots__ = ("by_time", "length", "own", "tape")

    def __init__(self, tape: _Tape) -> None:
        """Create a view of all events of ``tape``. No other thread may append to the tape meanwhile."""
        self.tape = tape
        self.by_time = tape.by_time
        self.length = len(tape.by_seq)
        self.own: dict[type, Any] = {}

    def followed_by(self, newer: Sequence[Event]) -> _View:
        """Return a view of these events and ``newer``.

        It uses the same tape, or a copy if the tape already continues with other events.
        """
        tape = self.tape
        with tape.lock:
            if len(tape.by_seq) == self.length:
                tape.append(newer)
                return _View(tape)
        return _View(_Tape([*islice(tape.by_seq, self.length), *newer]))

    def derive(self, kind: type[_Derived], question: Callable[[_Derived], _Result]) -> _Result:
        tape = self.tape
        with tape.lock:
            added, shared = tape.derived.get(kind, (0, None))
            if added <= self.length:
                # Remove the value while it changes: an interrupt may leave it incomplete.
                tape.derived.pop(kind, None)
                derived: _Derived = kind() if shared is None else shared
                for index in range(added, self.length):
                    derived.add(index, tape.by_seq[index])
                tape.derived[kind] = (self.length, derived)
                return question(derived)
            # A newer snapshot has already extended the shared value, which cannot be shortened.
            if kind not in self.own:
                own = kind()
                for index in range(self.length):
                    own.add(index, tape.by_seq[index])
                self.own[kind] = own
            return question(self.own[kind])


class Snapshot:
    """A run, or a part of it, as one read returned it. Immutable.

    Attributes:
        agent: The id of the agent.
        run: The id of the run.
        log: The events in append order (by seq). Replay uses this order.
        events: The same events by time, then by seq.
        version: The run's version at the read: the seq of its newest event, or 0 if it never had an event.
        last_seq: The last seq that was examined. Continue with ``load_run(after=last_seq)``. It equals ``version``
            unless ``limit`` stopped the read.
        meta: The map that was stored when the run was created, or ``{}``.
        after: The ``after`` of the read.
        types: The ``types`` of the read, or None for all types.
        first_seq: The first seq that the run can still hold. A deletion removed the events before it.
        redactions: A map from each seq that a redaction marker in the examined range names to the marker's reason.
    """

    __slots__ = (
        "_view",
        "after",
        "agent",
        "first_seq",
        "last_seq",
        "meta",
        "redactions",
        "run",
        "types",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        agent: str,
        run: str,
        log: Iterable[Event] | _View = (),
        *,
        version: int = 0,
        last_seq: int | None = None,
        meta: Mapping[str, JsonValue] | None = None,
        after: int = 0,
        types: Iterable[str] | None = None,
        first_seq: int = 1,
        redactions: Mapping[int, str] | None = None,
    ) -> None:
        """Create a snapshot. Backends call this.

        Args:
            agent: The id of the agent.
            run: The id of the run.
            log: The events in seq order.
            version: The run's version.
            last_seq: The last seq that was examined. The default is ``version``.
            meta: The run's meta.
            after: The ``after`` of the read.
            types: The ``types`` of the read.
            first_seq: The first seq that the run can still hold.
            redactions: The reason for each seq that a ``Redaction`` in the examined range names. The default takes them
                from ``log``. It is required if ``types`` leaves the markers out of ``log``.
        """
        self._view = log if isinstance(log, _View) else _View(_Tape(list(log)))
        self.agent = agent
        self.run = run
        self.version = version
        self.last_seq = version if last_seq is None else last_seq
        self.meta: Mapping[str, JsonValue] = meta or {}
        self.after = after
        self.types = None if types is None else frozenset(types)
        self.first_seq = first_seq
        self.redactions = redactions_in(self.log) if redactions is None else redactions

    @property
    def log(self) -> EventList:
        """The events in append order."""
        return EventList(self._view.tape.by_seq, self._view.length)

    @property
    def events(self) -> EventList:
        """The events by time, then by seq."""
        return EventList(self._view.by_time, self._view.length)

    def derive(self, kind: type[_Derived], question: Callable[[_Derived], _Result]) -> _Result:
        """Create a ``kind``, add every event of this log to it, call ``question`` with it, and return the result.

        The derived value is kept and extended with the snapshot, so a later call takes time only for new events.

        Args:
            kind: A class without constructor arguments, with the method ``add`` of ``Derived``.
            question: A function of the derived value. It runs under a lock and must not keep the value, because newer
                snapshots change it.
        """
        return self._view.derive(kind, question)

    def extend(self, newer: Snapshot) -> Snapshot:
        """Return this snapshot followed by ``newer``.

        The result equals a new read of the run: events that were redacted since are masked, and deleted events are left
        out. It takes time only for new events, except after a redaction or deletion, or if a new event is older than a
        known one.

        Args:
            newer: A snapshot that was loaded with ``after=self.last_seq`` and the same ``types``.

        Raises:
            InvalidArgument: ``newer`` is of another run or has other types.
            CursorOutOfRange: There is a gap or an overlap between the two snapshots. It is also raised if ``types``
                includes ``redacted`` and an event of another type was redacted since. Load the run again then.
        """
        if (newer.agent, newer.run) != (self.agent, self.run):
            raise InvalidArgument(
                f"cannot extend a snapshot of {self.agent}/{self.run} with one of {newer.agent}/{newer.run}"
            )
        if newer.types != self.types:
            raise InvalidArgument(
                f"cannot extend a snapshot of types {_type_names(self.types)} with one of types "
                f"{_type_names(newer.types)}"
            )
        if newer.after != self.last_seq:
            raise CursorOutOfRange(
                f"cannot extend a snapshot that ends at seq {self.last_seq} with one that begins after seq "
                f"{newer.after}: load it with after={self.last_seq}"
            )
        view = self._remaining(newer)
        return Snapshot(
            self.agent,
            self.run,
            view.followed_by(newer.log) if newer.log else view,
            version=newer.version,
            last_seq=newer.last_seq,
            meta=newer.meta,
            after=self.after,
            types=self.types,
            first_seq=newer.first_seq,
            redactions={**self.redactions, **newer.redactions} if newer.redactions else self.redactions,
        )

    def _remaining(self, newer: Snapshot) -> _View:
        """Return this snapshot's events, without deleted ones and with the redactions of ``newer`` applied."""
        if newer.first_seq == self.first_seq and not newer.redactions:
            return self._view
        masked = {seq: reason for seq, reason in newer.redactions.items() if self._holds(seq, newer)}
        remaining: list[Event] = []
        for event in self.log:
            reason = masked.pop(event.seq, None)
            if event.seq < newer.first_seq:
                continue
            current = event if reason is None else redacted_form(event, reason)
            if self.types is None or current.type in self.types:
                remaining.append(current)
        if masked and self.types is not None and _REDACTED in self.types:
            raise CursorOutOfRange(
                f"event {min(masked)}, which the types left out, was redacted and is of the type {_REDACTED!r} now: "
                f"load the run again, with after={self.after}"
            )
        return _View(_Tape(remaining))

    def _holds(self, seq: int, newer: Snapshot) -> bool:
        return max(self.after + 1, newer.first_seq) <= seq <= self.last_seq

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return (
            (self.agent, self.run, self.version, self.last_seq, self.after, self.types, self.first_seq)
            == (other.agent, other.run, other.version, other.last_seq, other.after, other.types, other.first_seq)
            and self.meta == other.meta
            and self.log == other.log
        )

    __hash__ = None  # type: ignore[assignment]  # events may hold mutable values

    def __repr__(self) -> str:
        return f"<Snapshot {self.agent}/{self.run} version {self.version}, {len(self.log)} events>"

    def __reduce__(self) -> tuple[object, ...]:
        options = {
            name: getattr(self, name)
            for name in ("version", "last_seq", "meta", "after", "types", "first_seq", "redactions")
        }
        return partial(Snapshot, **options), (self.agent, self.run, list(self.log))


def require_snapshot(value: object) -> None:
    """Raise ``InvalidArgument``, with what to do, if ``value`` is not a ``Snapshot``."""
    if not isinstance(value, Snapshot):
        advice = "await it first" if inspect.isawaitable(value) else "load the run with load_run"
        raise InvalidArgument(f"expected a Snapshot, got {describe(value)}: {advice}")


def redactions_in(events: Iterable[Event]) -> dict[int, str]:
    """Return the seqs that the ``Redaction`` markers among ``events`` name, each with the reason of its last marker."""
    reasons: dict[int, str] = {}
    for event in events:
        if isinstance(event.data, Redaction):
            reasons.update(dict.fromkeys(event.data.seqs, event.data.reason))
    return reasons


def _type_names(types: frozenset[str] | None) -> str:
    return "all" if types is None else ", ".join(sorted(types)) or "none"
