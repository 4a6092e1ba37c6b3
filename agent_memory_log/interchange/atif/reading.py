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
from agent_memory_log.events.payloads import EventData, Redaction
from agent_memory_log.interchange.atif.documents import (
    OURS,
    JsonMap,
    Trajectory,
    check_version,
    own_document,
    read_document,
    read_time,
)
from agent_memory_log.interchange.atif.foreign_steps import events_of
from agent_memory_log.interchange.atif.images import ATIF
from agent_memory_log.interchange.atif.payloads import payload_at, payloads_of
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.kinds import is_list, is_map
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
    found = _Reader(timestamp, bound=bound).read(own_document(trajectory), "trajectory", agent, run, None)
    names: set[tuple[str, str]] = set()
    for one in found:
        if (one.agent, one.run) in names:
            raise DecodeError(f"two runs of the trajectory are named {one.agent}/{one.run}: import them by themselves")
        names.add((one.agent, one.run))
    return found


class _Outer(msgspec.Struct, frozen=True):
    """The run that a trajectory is embedded in; ``callers``: which of its calls began which trajectory."""

    agent: str
    run: str
    is_ours: bool
    callers: dict[str, str]


class _Reader:
    """Reads the trajectories of one document."""

    def __init__(self, default_time: datetime, *, bound: bool) -> None:
        self._default_time = default_time
        self._bound = bound

    def read(self, document: JsonMap, where: str, agent: str | None, run: str | None, outer: _Outer | None) -> AtifRun:
        """The run of a trajectory, named ``agent`` and ``run`` if those are given."""
        trajectory = read_document(document, where)
        ours = _ours(document, where)
        own_agent = _own_name(ours, "agent", where) or trajectory.agent.name
        own_run = _own_name(ours, "run", where)
        if outer is None:
            check_version(trajectory.schema_version)
            agent = agent or own_agent
            run = run or own_run or trajectory.session_id or trajectory.trajectory_id
        else:
            is_renamed = self._bound and own_agent != outer.agent
            agent = outer.agent if self._bound else own_agent
            inner_run = own_run or trajectory.trajectory_id
            run = f"{outer.run}:{own_agent}:{inner_run}" if is_renamed else own_run or f"{outer.run}:{inner_run}"
        if not agent:
            raise DecodeError(f"{where}.agent.name is empty: give the agent's name")
        if not run:
            raise DecodeError(f"{where} has neither session_id nor trajectory_id: give the run's name")
        events = _read_events(document, trajectory, run, self._default_time, where)
        inner = self._read_inner(document, where, _Outer(agent, run, ours is not None, _callers(trajectory)))
        meta = _foreign_meta(document, inner) if ours is None else ours.get("meta", {})
        if not isinstance(meta, Mapping):
            raise DecodeError(f"{where}.extra.{OURS}.meta must be a map, found {describe(meta)}")
        if ours is None and outer is not None and not outer.is_ours:
            caller = outer.callers.get(trajectory.trajectory_id or "")
            parent: JsonMap = {"agent": outer.agent, "run": outer.run}
            meta = {**meta, PARENT: {**parent, "tool_call_id": caller} if caller else parent}
        elif self._bound:
            meta = _bound_meta(meta, agent, outer, inner)
        return AtifRun(agent, run, events, meta, inner)

    def _read_inner(self, document: JsonMap, where: str, outer: _Outer) -> tuple[AtifRun, ...]:
        runs: list[AtifRun] = []
        trajectory_ids: set[object] = set()
        for index, embedded in enumerate(cast("list[JsonMap]", document.get(_EMBEDDED) or ())):
            place = f"{where}.{_EMBEDDED}[{index}]"
            trajectory_id = embedded.get("trajectory_id")
            if not trajectory_id:
                raise DecodeError(f"{place}.trajectory_id is missing: an embedded trajectory needs one")
            found = self.read(embedded, place, None, None, outer)
            if trajectory_id in trajectory_ids:
                raise DecodeError(f"{place}.trajectory_id {describe(trajectory_id)} is that of another one before it")
            trajectory_ids.add(trajectory_id)
            runs.append(found)
        return tuple(runs)


def _foreign_meta(document: JsonMap, inner: Sequence[AtifRun]) -> JsonMap:
    """What is kept of the document of another tool, less what becomes events and runs."""
    dropped = ("steps", _EMBEDDED) if inner else ("steps",)
    kept_document: JsonMap = {DOCUMENT: {key: value for key, value in document.items() if key not in dropped}}
    if inner:
        kept_document[SUBAGENTS] = [[one.agent, one.run] for one in inner]
    return {ATIF: kept_document}


def _bound_meta(
    meta: Mapping[str, JsonValue], agent: str, outer: _Outer | None, inner: Sequence[AtifRun]
) -> Mapping[str, JsonValue]:
    """The meta of a run, naming no runs but those of ``agent``."""
    changed = dict(meta)
    parent, kept_document = meta.get(PARENT), meta.get(ATIF)
    if isinstance(parent, Mapping):
        changed[PARENT] = {**parent, "agent": agent} if outer is None else {**parent, "agent": agent, "run": outer.run}
    if isinstance(kept_document, Mapping) and SUBAGENTS in kept_document:
        changed[ATIF] = {**kept_document, SUBAGENTS: [[one.agent, one.run] for one in inner]}
    return changed


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


def _read_events(
    document: JsonMap, trajectory: Trajectory, run: str, default_time: datetime, where: str
) -> tuple[Event, ...]:
    """The events of a document, in append order."""
    times = [
        None if step.timestamp is None else read_time(step.timestamp, f"{where}.steps[{index}].timestamp")
        for index, step in enumerate(trajectory.steps)
    ]
    step_time = next((time for time in times if time is not None), default_time)
    # Another tool may have put a step between ours: its events must not get the ids that ours have.
    kind = "atif-added" if _ours(document, where) is not None else "atif"
    found = [(event.seq, event) for event in (_whole(*entry) for entry in _entries(document, where))]
    last_seq = max((seq for seq, _ in found), default=0)
    is_mixed = False
    for index, (raw, step) in enumerate(zip(cast("list[JsonMap]", document["steps"]), trajectory.steps, strict=True)):
        place = f"{where}.steps[{index}]"
        step_time = times[index] or step_time
        if _ours(raw, place) is None:
            is_mixed = True
            for event in events_of(raw, step, step_time):  # behind what stands before them in the document
                event_id = derived_event_id(kind, run, step.step_id, len(found))
                found.append((last_seq, msgspec.structs.replace(event, event_id=event_id)))
            continue
        payloads = payloads_of(step)
        for entry, entry_place in _entries(raw, place):
            event = _restored(entry, payloads, step_time, entry_place)
            last_seq = max(last_seq, event.seq)
            found.append((event.seq, event))
    # Foreign events have no seq yet, and stand behind the one they follow.
    ordered = [event for _, event in sorted(found, key=lambda placed: (placed[0], not placed[1].seq))]
    return _renumbered(ordered) if is_mixed else tuple(ordered)


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


def _own_name(ours: Mapping[str, JsonValue] | None, name: str, where: str) -> str | None:
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


def _restored(entry: JsonMap, payloads: Mapping[str, EventData], step_time: datetime, where: str) -> Event:
    """The event of an entry: what the step says of it, less and plus what the entry does."""
    if "at" not in entry:
        return _whole(entry, where)
    payload = payload_at(entry, payloads, where)
    changes, without = entry.get("data", {}), entry.get("without", [])
    if not is_map(changes) or not is_list(without) or not all(isinstance(key, str) for key in without):
        raise DecodeError(f"{where}: data must be a map, and without must be a list of keys")
    data = {key: value for key, value in payload.to_map().items() if key not in without} | changes
    whole = {"timestamp": step_time, **entry, "type": payload.event_type, "data": data}
    return _whole(cast("JsonMap", whole), where)
