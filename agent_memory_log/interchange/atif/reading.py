"""ATIF to runs: a document's steps to events.

A step that holds events of ours in its ``extra`` gives exactly those, with the texts that stand in the step. Any other
step gives the events it comes to, with what they have no field for in ``structured``, so that it can be written again
as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.interchange.atif.documents import (
    OURS,
    AtifStep,
    Document,
    JsonMap,
    Trajectory,
    check_document,
    read_time,
)
from agent_memory_log.interchange.atif.drafts import draft_of
from agent_memory_log.interchange.atif.foreign import foreign_events
from agent_memory_log.interchange.atif.images import ATIF
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transfer.importing import derived_event_id

DOCUMENT = "document"
"""In a run's ``meta``, under ``atif``: the document it was imported from, less its steps."""

SUBAGENTS = "subagents"
"""Beside it: agent and run of each embedded trajectory, in their order."""

PARENT = "parent_run"
"""In a run's ``meta``: the run whose sub-agent it is, ``{"agent", "run"}``, and the ``tool_call_id`` that began it."""


_EMBEDDED = "subagent_trajectories"


class AtifRun(msgspec.Struct, frozen=True):
    """A run that was read from a trajectory.

    - ``agent``, ``run``: what it is named; ``meta``: what is to be kept with it.
    - ``events``: its events, in append order, with their ids and seqs.
    - ``subagents``: the runs of the trajectories embedded in it.
    """

    agent: str
    run: str
    events: tuple[Event, ...]
    meta: Mapping[str, JsonValue]
    subagents: tuple[AtifRun, ...] = ()

    def __iter__(self) -> Iterator[AtifRun]:
        """This run, and all those inside it."""
        yield self
        for inner in self.subagents:
            yield from inner

    def snapshot(self) -> Snapshot:
        """The run as a store would give it."""
        version = self.events[-1].seq if self.events else 0
        first_seq = self.events[0].seq if self.events else 1
        return Snapshot(
            self.agent, self.run, self.events, version=version, meta=self.meta, after=first_seq - 1, first_seq=first_seq
        )


def from_atif(
    trajectory: object, *, agent: str | None = None, run: str | None = None, timestamp: datetime | None = None
) -> AtifRun:
    """The run that an ATIF document, as a map, stands for.

    ``agent`` and ``run`` name it; they default to what a document of ours says, to the agent's name, and to the
    ``session_id``, or else ``trajectory_id``. An ``agent`` is that of the runs of all sub-agents too: such a run is
    named after the outer run, the sub-agent and its own run or ``trajectory_id``, as ``s-1:researcher:t``.
    ``timestamp`` (default: now) is for the events of a document without any; a step without one has that of the step
    before it.

    The same document under the same name gives the same event ids, so that importing it twice stores it once. Raises
    ``DecodeError`` naming the place where the document is not what it should be, also where two of its runs have one
    name, ``SchemaTooNew``, and ``InvalidArgument`` for a ``timestamp`` without a time zone.

        found = from_atif(json.load(file))
        found.agent, found.run, len(found.events)
    """
    if timestamp is not None and timestamp.utcoffset() is None:
        raise InvalidArgument(f"timestamp must be timezone-aware, found {describe(timestamp)}")
    return read_trajectory(trajectory, agent, run, timestamp or datetime.now(UTC), bound=agent is not None)


def read_trajectory(
    trajectory: object, agent: str | None, run: str | None, timestamp: datetime, *, bound: bool
) -> AtifRun:
    """``from_atif``; where it is not ``bound``, sub-agents keep their own names whatever the ``agent``."""
    found = _read_run(check_document(trajectory), agent, run, timestamp, "trajectory", bound=bound)
    names: set[tuple[str, str]] = set()
    for one in found:
        if (one.agent, one.run) in names:
            raise DecodeError(f"two runs of the trajectory are named {one.agent}/{one.run}: import them by themselves")
        names.add((one.agent, one.run))
    return found


def _read_run(
    document: Document, agent: str | None, run: str | None, default_time: datetime, where: str, *, bound: bool
) -> AtifRun:
    read = document.read
    ours = _ours(document.raw, where)
    agent = agent or _named(ours, "agent", where) or read.agent.name
    run = run or _named(ours, "run", where) or read.session_id or read.trajectory_id
    if not agent:
        raise DecodeError(f"{where}.agent.name is empty: give the agent's name")
    if not run:
        raise DecodeError(f"{where} has neither session_id nor trajectory_id: give the run's name")
    events = _Events(document, run, default_time, where).read()
    inner = tuple(
        _read_inner(Document(raw, found), agent, run, default_time, f"{where}.{_EMBEDDED}[{index}]", bound=bound)
        for index, (raw, found) in enumerate(_embedded(document))
    )
    if ours is not None:
        meta = ours.get("meta", {})
        if not isinstance(meta, Mapping):
            raise DecodeError(f"{where}.extra.{OURS}.meta must be a map, found {describe(meta)}")
        return AtifRun(agent, run, events, _bound_meta(meta, agent, inner) if bound else meta, inner)
    dropped = ("steps", _EMBEDDED) if inner else ("steps",)
    kept_document: JsonMap = {DOCUMENT: {key: value for key, value in document.raw.items() if key not in dropped}}
    if inner:
        kept_document[SUBAGENTS] = [[one.agent, one.run] for one in inner]
        callers = _callers(read)
        inner = tuple(
            # The meta of a run of ours says whose it is.
            one if _is_ours(raw) else _with_parent(one, agent, run, callers.get(found.trajectory_id or ""))
            for one, (raw, found) in zip(inner, _embedded(document), strict=True)
        )
    return AtifRun(agent, run, events, {ATIF: kept_document}, inner)


def _read_inner(
    document: Document, agent: str, run: str, default_time: datetime, where: str, *, bound: bool
) -> AtifRun:
    """The run of a trajectory embedded in ``agent``/``run``."""
    ours = _ours(document.raw, where)
    inner_agent = _named(ours, "agent", where) or document.read.agent.name
    inner_run = _named(ours, "run", where)
    name = inner_run or f"{run}:{document.read.trajectory_id}"
    if not bound:
        return _read_run(document, None, name, default_time, where, bound=False)
    if inner_agent != agent:
        name = f"{run}:{inner_agent}:{inner_run or document.read.trajectory_id}"
    found = _read_run(document, agent, name, default_time, where, bound=True)
    parent = found.meta.get(PARENT)
    if not isinstance(parent, Mapping):
        return found
    return msgspec.structs.replace(found, meta={**found.meta, PARENT: {**parent, "agent": agent, "run": run}})


def _bound_meta(meta: Mapping[str, JsonValue], agent: str, inner: tuple[AtifRun, ...]) -> Mapping[str, JsonValue]:
    """The meta of a run of ours, naming no runs but those of ``agent``."""
    changed = dict(meta)
    parent, kept_document = meta.get(PARENT), meta.get(ATIF)
    if isinstance(parent, Mapping):
        changed[PARENT] = {**parent, "agent": agent}
    if isinstance(kept_document, Mapping) and SUBAGENTS in kept_document:
        changed[ATIF] = {**kept_document, SUBAGENTS: [[one.agent, one.run] for one in inner]}
    return changed


def _embedded(document: Document) -> list[tuple[JsonMap, Trajectory]]:
    raw = cast("list[JsonMap]", document.raw.get(_EMBEDDED) or [])
    return list(zip(raw, document.read.subagent_trajectories or (), strict=True))


def _with_parent(inner: AtifRun, agent: str, run: str, call_id: str | None) -> AtifRun:
    parent: JsonMap = {"agent": agent, "run": run}
    if call_id:
        parent["tool_call_id"] = call_id
    return msgspec.structs.replace(inner, meta={**inner.meta, PARENT: parent})


def _callers(trajectory: Trajectory) -> dict[str, str]:
    """Which call began which embedded trajectory."""
    return {
        reference.trajectory_id: result.source_call_id
        for step in trajectory.steps
        if step.observation is not None
        for result in step.observation.results
        for reference in result.subagent_trajectory_ref or ()
        if reference.trajectory_id and result.source_call_id
    }


class _Events:
    """The events of one document."""

    def __init__(self, document: Document, run: str, default_time: datetime, where: str) -> None:
        self._document = document
        self._run = run
        self._where = where
        # Another tool may have put a step between ours: its events must not get the ids that ours have.
        self._kind = "atif-added" if _ours(document.raw, where) is not None else "atif"
        times = [
            read_time(step.timestamp, f"{where}.steps[{index}].timestamp")
            for index, step in enumerate(document.read.steps)
            if step.timestamp is not None
        ]
        self._time = times[0] if times else default_time
        self._found: list[tuple[int, Event]] = []
        self._last_seq = 0

    def read(self) -> tuple[Event, ...]:
        """All of them, in append order."""
        steps = cast("list[JsonMap]", self._document.raw["steps"])
        for entry, place in _entries(self._document.raw, self._where):
            self._take(_whole(entry, place))
        is_mixed = False
        for index, (raw, step) in enumerate(zip(steps, self._document.read.steps, strict=True)):
            place = f"{self._where}.steps[{index}]"
            if step.timestamp is not None:
                self._time = read_time(step.timestamp, f"{place}.timestamp")
            if _is_ours(raw):
                for entry, entry_place in _entries(raw, place):
                    self._take(_restored(entry, step, self._time, entry_place))
            else:
                is_mixed = True
                for event in foreign_events(raw, step, self._time):
                    self._add(event, step)
        ordered = [event for _, event in sorted(self._found, key=_place_of)]
        return _renumbered(ordered) if is_mixed else tuple(ordered)

    def _take(self, event: Event) -> None:
        self._last_seq = max(self._last_seq, event.seq)
        self._found.append((event.seq, event))

    def _add(self, event: Event, step: AtifStep) -> None:
        """An event of another tool's step: behind what stands before it in the document."""
        event_id = derived_event_id(self._kind, self._run, step.step_id, len(self._found))
        self._found.append((self._last_seq, msgspec.structs.replace(event, event_id=event_id)))


def _place_of(found: tuple[int, Event]) -> tuple[int, int]:
    place, event = found
    return place, 0 if event.seq else 1


def _renumbered(events: list[Event]) -> tuple[Event, ...]:
    """Seqs without gaps, and redaction markers that name those their events have now."""
    first = next((event.seq for event in events if event.seq), 1)
    moved = {event.seq: seq for seq, event in enumerate(events, first) if event.seq}
    numbered: list[Event] = []
    for seq, event in enumerate(events, first):
        data = event.data
        if isinstance(data, Redaction):
            data = Redaction(seqs=tuple(moved.get(one, one) for one in data.seqs), reason=data.reason)
        numbered.append(msgspec.structs.replace(event, seq=seq, data=data))
    return tuple(numbered)


# Steps of ours.


def _ours(holder: Mapping[str, JsonValue], where: str) -> Mapping[str, JsonValue] | None:
    extra = holder.get("extra")
    if not isinstance(extra, Mapping) or OURS not in extra:
        return None
    found = extra[OURS]
    if not isinstance(found, Mapping):
        raise DecodeError(f"{where}.extra.{OURS} must be a map, found {describe(found)}")
    return found


def _is_ours(holder: JsonValue) -> bool:
    extra = holder.get("extra") if isinstance(holder, Mapping) else None
    return isinstance(extra, Mapping) and OURS in extra


def _named(ours: Mapping[str, JsonValue] | None, name: str, where: str) -> str | None:
    if ours is None:
        return None
    found = ours.get(name)
    if not isinstance(found, str) or not found:
        raise DecodeError(f"{where}.extra.{OURS}.{name} must be non-empty text, found {describe(found)}")
    return found


def _entries(holder: Mapping[str, JsonValue], where: str) -> Iterator[tuple[JsonMap, str]]:
    ours = _ours(holder, where)
    listed: object = [] if ours is None else ours.get("events", [])
    place = f"{where}.extra.{OURS}.events"
    if not isinstance(listed, list):
        raise DecodeError(f"{place} must be a list, found {describe(listed)}")
    for index, entry in enumerate(cast("list[object]", listed)):
        if not isinstance(entry, dict):
            raise DecodeError(f"{place}[{index}] must be a map, found {describe(entry)}")
        yield cast("JsonMap", entry), f"{place}[{index}]"


def _whole(entry: JsonMap, where: str) -> Event:
    try:
        event = Event.from_map(entry)
    except DecodeError as error:
        raise DecodeError(f"{where}: {error}") from error
    if not event.seq:
        raise DecodeError(f"{where}: seq is missing")
    return event


def _restored(entry: JsonMap, step: AtifStep, step_time: datetime, where: str) -> Event:
    """The event of an entry: what the step says of it, less and plus what the entry does."""
    if "at" not in entry:
        return _whole(entry, where)
    draft = draft_of(entry, step, where)
    data = draft.to_map()
    changes, without = entry.get("data", {}), entry.get("without", [])
    if not isinstance(changes, Mapping):
        raise DecodeError(f"{where}: data must be a map, found {describe(changes)}")
    if (
        isinstance(without, str)
        or not isinstance(without, Sequence)
        or not all(isinstance(key, str) for key in without)
    ):
        raise DecodeError(f"{where}: without must be a list of keys, found {describe(without)}")
    for key in without:
        data.pop(cast("str", key), None)
    found = {"timestamp": step_time, **entry, "type": draft.event_type, "data": {**data, **changes}}
    return _whole(cast("JsonMap", found), where)
