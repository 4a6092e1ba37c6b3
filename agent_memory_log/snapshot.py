"""The snapshot: what one read of a run returned, and its cheap growth by what came after.

``extend`` costs what is new: snapshots of one run that grow from each other share one list of events, of which each
sees its own length. A law ties it to the store, and the conformance suite checks it: a snapshot extended by what is new
equals a new read of the run.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast, overload

from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.events.event import Event, redacted_form
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import Redacted, Redaction

_REDACTED = Redacted.event_type
_by_time = attrgetter("timestamp", "seq")


class EventList(Sequence[Event]):
    """An immutable sequence of events; equal to any list or tuple of equal events."""

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
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(f"event {index} of {self._length}")
        return self._events[place]

    def __iter__(self) -> Iterator[Event]:
        return islice(self._events, self._length)

    def __reversed__(self) -> Iterator[Event]:
        return map(self._events.__getitem__, range(self._length - 1, -1, -1))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (EventList, list, tuple)):
            return NotImplemented
        theirs = cast("Sequence[object]", other)
        return len(theirs) == self._length and all(mine == their for mine, their in zip(self, theirs, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as for list: events may hold mutable values

    def __repr__(self) -> str:
        return f"EventList({list(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return EventList, (list(self), self._length)  # without what later snapshots appended to the shared list


class Derived(Protocol):
    """Something computed from a log event by event, in order."""

    def add(self, place: int, event: Event, /) -> None:
        """Take in the event at ``place`` of the log."""
        ...


_Derived = TypeVar("_Derived", bound=Derived)
_Answer = TypeVar("_Answer")


class _Tape:
    """The list of events that snapshots share: in append order, and by time where that differs."""

    __slots__ = ("by_seq", "by_time", "derived", "lock")

    def __init__(self, by_seq: list[Event]) -> None:
        self.by_seq = by_seq
        ordered = all(_by_time(one) <= _by_time(two) for one, two in zip(by_seq, islice(by_seq, 1, None), strict=False))
        self.by_time = by_seq if ordered else sorted(by_seq, key=_by_time)
        self.lock = threading.Lock()
        self.derived: dict[type, tuple[int, Any]] = {}

    def append(self, newer: Sequence[Event]) -> None:
        """Take in ``newer`` at the end; the caller holds the lock."""
        by_time = sorted(newer, key=_by_time)
        late = bool(by_time and self.by_time and _by_time(by_time[0]) < _by_time(self.by_time[-1]))
        if self.by_time is self.by_seq and (late or by_time != list(newer)):
            self.by_time = list(self.by_seq)
        self.by_seq.extend(newer)
        if self.by_time is self.by_seq:
            return
        if late:
            # Older snapshots see a prefix of the list they were given, so an event that belongs inside it needs a new
            # one.
            place = bisect_right(self.by_time, _by_time(by_time[0]), key=_by_time)
            self.by_time = self.by_time[:place] + sorted([*self.by_time[place:], *by_time], key=_by_time)
        else:
            self.by_time.extend(by_time)


class _View:
    """What one snapshot sees of a tape: its first ``length`` events, whatever is appended later."""

    __slots__ = ("by_time", "length", "own", "tape")

    def __init__(self, tape: _Tape) -> None:
        """All that is on ``tape``, which nobody else appends to meanwhile."""
        self.tape = tape
        self.by_time = tape.by_time
        self.length = len(tape.by_seq)
        self.own: dict[type, Any] = {}

    def followed_by(self, newer: Sequence[Event]) -> _View:
        """A view of these events and ``newer``: on this tape, where nobody has appended something else."""
        tape = self.tape
        with tape.lock:
            if len(tape.by_seq) == self.length:
                tape.append(newer)
                return _View(tape)
        return _View(_Tape([*islice(tape.by_seq, self.length), *newer]))

    def derive(self, kind: type[_Derived], question: Callable[[_Derived], _Answer]) -> _Answer:
        tape = self.tape
        with tape.lock:
            known, shared = tape.derived.get(kind, (0, None))
            if known <= self.length:
                # Out of reach until it is whole again: an interrupt may come between any two lines.
                tape.derived.pop(kind, None)
                derived: _Derived = kind() if shared is None else shared
                for place in range(known, self.length):
                    derived.add(place, tape.by_seq[place])
                tape.derived[kind] = (self.length, derived)
                return question(derived)
            # A newer snapshot has asked already, and what it derived cannot go back.
            if kind not in self.own:
                own = kind()
                for place in range(self.length):
                    own.add(place, tape.by_seq[place])
                self.own[kind] = own
            return question(self.own[kind])


class Snapshot:
    """A run, or a part of it, as it was at one read. Immutable.

    - ``agent``, ``run``: what was read; ``meta``: the map kept with the run when it was created (``{}`` if none).
    - ``log``: the events in append order (by seq); replay uses it.
    - ``events``: the same events by time, then seq.
    - ``version``: the run's version at the read: the seq of its newest event, 0 if it never had one.
    - ``last_seq``: the last seq examined: continue with ``load_run(after=last_seq)``. It is ``version`` unless
      ``limit`` stopped the read.
    - ``after``, ``types``: what was asked for; ``first_seq``: the first seq the run can still hold, as those before it
      went with a deletion.
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
        """Made by backends. ``log`` is in seq order; ``last_seq`` defaults to ``version``.

        ``redactions`` maps each seq that a ``Redaction`` in the range examined names to its reason; it is needed where
        ``types`` leaves those markers out of ``log``, and taken from ``log`` otherwise.
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
        """The events by time, then seq."""
        return EventList(self._view.by_time, self._view.length)

    def derive(self, kind: type[_Derived], question: Callable[[_Derived], _Answer]) -> _Answer:
        """The answer of ``question`` to a ``kind`` that has taken in this snapshot's log, event by event.

        What is derived is kept and grown when the snapshot is extended, so that asking again costs what is new.
        ``question`` runs under a lock and must not keep what it is given: that belongs to newer snapshots too.
        """
        return self._view.derive(kind, question)

    def extend(self, newer: Snapshot) -> Snapshot:
        """This snapshot followed by ``newer``, which was loaded with ``after=self.last_seq`` and the same ``types``.

        Equal to a new read of the run: events that ``newer`` says were redacted are masked, and those before a deletion
        are gone. Costs what is new, except on a redaction or deletion, or when a new event's time is before an old
        one's. Raises ``InvalidArgument`` for another run or other types, ``CursorOutOfRange`` when there is a gap or an
        overlap between the two, or when ``types`` holds ``redacted`` and an event it had left out has been redacted
        since.
        """
        if (newer.agent, newer.run) != (self.agent, self.run):
            raise InvalidArgument(
                f"cannot extend a snapshot of {self.agent}/{self.run} with one of {newer.agent}/{newer.run}"
            )
        if newer.types != self.types:
            raise InvalidArgument(
                f"cannot extend a snapshot of types {_named(self.types)} with one of types {_named(newer.types)}"
            )
        if newer.after != self.last_seq:
            raise CursorOutOfRange(
                f"cannot extend a snapshot that ends at seq {self.last_seq} with one that begins after seq "
                f"{newer.after}: load it with after={self.last_seq}"
            )
        view = self._kept(newer)
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

    def _kept(self, newer: Snapshot) -> _View:
        """This snapshot's events, less what ``newer`` says is gone."""
        if newer.first_seq == self.first_seq and not newer.redactions:
            return self._view
        masked = {seq: reason for seq, reason in newer.redactions.items() if self._holds(seq, newer)}
        kept: list[Event] = []
        for event in self.log:
            reason = masked.pop(event.seq, None)
            if event.seq < newer.first_seq:
                continue
            stands = event if reason is None else redacted_form(event, reason)
            if self.types is None or stands.type in self.types:
                kept.append(stands)
        if masked and self.types is not None and _REDACTED in self.types:
            raise CursorOutOfRange(
                f"event {min(masked)}, which the types left out, was redacted and is of the type {_REDACTED!r} now: "
                f"load the run again, with after={self.after}"
            )
        return _View(_Tape(kept))

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


def redactions_in(events: Iterable[Event]) -> dict[int, str]:
    """The seqs that the ``Redaction`` markers among ``events`` name, each with the reason of the last that names it."""
    named: dict[int, str] = {}
    for event in events:
        if isinstance(event.data, Redaction):
            named.update(dict.fromkeys(event.data.seqs, event.data.reason))
    return named


def _named(types: frozenset[str] | None) -> str:
    return "all" if types is None else ", ".join(sorted(types)) or "none"
