"""Converts an ATIF document to runs, and its steps to events.

If a step has this library's events in ``extra``, the events are restored with the texts of the step. Any other step is
converted to new events. Data without a field in an event is stored in ``structured``, so that the same step can be
written again.
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
    EXTRA_KEY,
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
from agent_memory_log.transcript.json_types import is_list, is_map
from agent_memory_log.transfer.importing import derived_event_id

DOCUMENT = "document"
"""The key in a run's ``meta["atif"]`` for the imported document without its steps."""

SUBAGENTS = "subagents"
"""The key in a run's ``meta["atif"]`` for the agent and run names of the embedded trajectories, in order."""

PARENT = "parent_run"
"""The key in a sub-agent's ``meta`` for its parent: ``agent``, ``run`` and the ``tool_call_id`` that started it."""


_EMBEDDED = "subagent_trajectories"


class AtifRun(msgspec.Struct, frozen=True):
    """A run that was read from a trajectory. Iteration yields it and all runs inside it.

    Attributes:
        agent: The name of the agent.
        run: The name of the run.
        events: The events in append order, with ids and seqs.
        meta: The metadata to store with the run.
        subagents: The runs of the embedded trajectories.
    """

    agent: str
    run: str
    events: tuple[Event, ...]
    meta: Mapping[str, JsonValue]
    subagents: tuple[AtifRun, ...] = ()

    def __iter__(self) -> Iterator[AtifRun]:
        """Yield this run and all runs inside it."""
        yield self
        for inner in self.subagents:
            yield from inner

    def snapshot(self) -> Snapshot:
        """Return the run as a snapshot, as a store returns it."""
        version = self.events[-1].seq if self.events else 0
        first_seq = self.events[0].seq if self.events else 1
        return Snapshot(
            self.agent, self.run, self.events, version=version, meta=self.meta, after=first_seq - 1, first_seq=first_seq
        )


def from_atif(
    trajectory: object, *, agent: str | None = None, run: str | None = None, timestamp: datetime | None = None
) -> AtifRun:
    """Convert an ATIF document to a run, with the runs of its sub-agents.

    The same document with the same names gives the same event ids, so a second import stores nothing new.

        imported = from_atif(json.load(file))
        imported.agent, imported.run, len(imported.events)

    Args:
        trajectory: The document as a map.
        agent: The agent's name for this run and for the runs of all sub-agents. A sub-agent's run is then named like
            ``s-1:researcher:t``, after the outer run, the sub-agent, and its own run or ``trajectory_id``. By default,
            each run has the agent's name from the document.
        run: The run's name. By default, it is the name in a document of this library, or else ``session_id``, or else
            ``trajectory_id``.
        timestamp: The time of all events if the document has no times; by default the current time. A step without a
            time gets the time of the step before it.

    Raises:
        DecodeError: The document is invalid, or two of its runs have the same name. The message has the path.
        SchemaTooNew: The document's ATIF version is too new.
        InvalidArgument: ``timestamp`` has no time zone.
    """
    if timestamp is not None and timestamp.utcoffset() is None:
        raise InvalidArgument(f"timestamp must be timezone-aware, got {describe(timestamp)}")
    return read_trajectory(trajectory, agent, run, timestamp or datetime.now(UTC), bound=agent is not None)


def read_trajectory(
    trajectory: object, agent: str | None, run: str | None, timestamp: datetime, *, bound: bool
) -> AtifRun:
    """Convert a document as ``from_atif`` does. Unless ``bound``, sub-agents keep their own names."""
    imported = _Reader(timestamp, bound=bound).read(own_document(trajectory), "trajectory", agent, run, None)
    names: set[tuple[str, str]] = set()
    for atif_run in imported:
        name = (atif_run.agent, atif_run.run)
        if name in names:
            raise DecodeError(f"two runs of the trajectory are named {'/'.join(name)}; import them separately")
        names.add(name)
    return imported


class _Outer(msgspec.Struct, frozen=True):
    """The run around an embedded trajectory. ``callers`` maps each ``trajectory_id`` to the call that started it."""

    agent: str
    run: str
    is_ours: bool
    callers: dict[str, str]


class _Reader:
    """Reads the trajectories of one document."""

    def __init__(self, default_time: datetime, *, bound: bool) -> None:
        self._default_time = default_time
        self._bound = bound

    def read(self, document: JsonMap, path: str, agent: str | None, run: str | None, outer: _Outer | None) -> AtifRun:
        """Return the run of a trajectory. ``agent`` and ``run`` replace the names in the document."""
        trajectory = read_document(document, path)
        extra_data = _extra_data(document, path)
        own_agent = _own_name(extra_data, "agent", path) or trajectory.agent.name
        own_run = _own_name(extra_data, "run", path)
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
            raise DecodeError(f"{path}.agent.name is empty; pass agent=...")
        if not run:
            raise DecodeError(f"{path} has no session_id and no trajectory_id; pass run=...")
        events = _read_events(document, trajectory, run, self._default_time, path)
        inner = self._read_inner(document, path, _Outer(agent, run, extra_data is not None, _callers(trajectory)))
        meta = _foreign_meta(document, inner) if extra_data is None else extra_data.get("meta", {})
        if not isinstance(meta, Mapping):
            raise DecodeError(f"{path}.extra.{EXTRA_KEY}.meta must be a map, got {describe(meta)}")
        if extra_data is None and outer is not None and not outer.is_ours:
            caller = outer.callers.get(trajectory.trajectory_id or "")
            parent: JsonMap = {"agent": outer.agent, "run": outer.run}
            meta = {**meta, PARENT: {**parent, "tool_call_id": caller} if caller else parent}
        elif self._bound:
            meta = _bound_meta(meta, agent, outer, inner)
        return AtifRun(agent, run, events, meta, inner)

    def _read_inner(self, document: JsonMap, path: str, outer: _Outer) -> tuple[AtifRun, ...]:
        runs: list[AtifRun] = []
        trajectory_ids: set[object] = set()
        for index, embedded in enumerate(cast("list[JsonMap]", document.get(_EMBEDDED) or ())):
            inner_path = f"{path}.{_EMBEDDED}[{index}]"
            trajectory_id = embedded.get("trajectory_id")
            if not trajectory_id:
                raise DecodeError(f"{inner_path}.trajectory_id is missing; an embedded trajectory needs one")
            inner_run = self.read(embedded, inner_path, None, None, outer)
            if trajectory_id in trajectory_ids:
                raise DecodeError(f"{inner_path}.trajectory_id {describe(trajectory_id)} is used twice")
            trajectory_ids.add(trajectory_id)
            runs.append(inner_run)
        return tuple(runs)


def _foreign_meta(document: JsonMap, inner: Sequence[AtifRun]) -> JsonMap:
    """Return the metadata for the document of another tool, without its steps and embedded trajectories."""
    dropped = ("steps", _EMBEDDED) if inner else ("steps",)
    imported_document: JsonMap = {DOCUMENT: {key: value for key, value in document.items() if key not in dropped}}
    if inner:
        imported_document[SUBAGENTS] = [[subagent.agent, subagent.run] for subagent in inner]
    return {ATIF: imported_document}


def _bound_meta(
    meta: Mapping[str, JsonValue], agent: str, outer: _Outer | None, inner: Sequence[AtifRun]
) -> Mapping[str, JsonValue]:
    """Return a run's meta with ``agent`` as the agent of each run that it names."""
    changed = dict(meta)
    parent, imported_document = meta.get(PARENT), meta.get(ATIF)
    if isinstance(parent, Mapping):
        changed[PARENT] = {**parent, "agent": agent} if outer is None else {**parent, "agent": agent, "run": outer.run}
    if isinstance(imported_document, Mapping) and SUBAGENTS in imported_document:
        changed[ATIF] = {**imported_document, SUBAGENTS: [[subagent.agent, subagent.run] for subagent in inner]}
    return changed


def _callers(trajectory: Trajectory) -> dict[str, str]:
    """Return the id of the call that started each embedded trajectory, by ``trajectory_id``."""
    return {
        reference.trajectory_id: result.source_call_id
        for step in trajectory.steps
        if step.observation is not None
        for result in step.observation.results
        for reference in result.subagent_trajectory_ref or ()
        if reference.trajectory_id and result.source_call_id
    }


def _read_events(
    document: JsonMap, trajectory: Trajectory, run: str, default_time: datetime, path: str
) -> tuple[Event, ...]:
    """Return the events of a document in append order."""
    times = [
        None if step.timestamp is None else read_time(step.timestamp, f"{path}.steps[{index}].timestamp")
        for index, step in enumerate(trajectory.steps)
    ]
    step_time = next((time for time in times if time is not None), default_time)
    # Another tool may have added steps to a document of this library. Their events must get other ids.
    kind = "atif-added" if _extra_data(document, path) is not None else "atif"
    placed = [(event.seq, event) for event in (_complete(*entry) for entry in _entries(document, path))]
    last_seq = max((seq for seq, _ in placed), default=0)
    is_mixed = False
    for index, (raw, step) in enumerate(zip(cast("list[JsonMap]", document["steps"]), trajectory.steps, strict=True)):
        step_path = f"{path}.steps[{index}]"
        step_time = times[index] or step_time
        if _extra_data(raw, step_path) is None:
            is_mixed = True
            for event in events_of(raw, step, step_time):
                event_id = derived_event_id(kind, run, step.step_id, len(placed))
                placed.append((last_seq, msgspec.structs.replace(event, event_id=event_id)))
            continue
        payloads = payloads_of(step)
        for entry, entry_path in _entries(raw, step_path):
            event = _restored(entry, payloads, step_time, entry_path)
            last_seq = max(last_seq, event.seq)
            placed.append((event.seq, event))
    # Events of another tool have no seq yet. They come directly after the event that they follow in the document.
    ordered = [event for _, event in sorted(placed, key=lambda item: (item[0], not item[1].seq))]
    return _renumbered(ordered) if is_mixed else tuple(ordered)


def _renumbered(events: list[Event]) -> tuple[Event, ...]:
    """Return the events with new seqs without gaps. Redaction markers get the new seqs too."""
    first = next((event.seq for event in events if event.seq), 1)
    moved = {event.seq: seq for seq, event in enumerate(events, first) if event.seq}
    numbered: list[Event] = []
    for seq, event in enumerate(events, first):
        data = event.data
        if isinstance(data, Redaction):
            data = Redaction(seqs=tuple(moved.get(old, old) for old in data.seqs), reason=data.reason)
        numbered.append(msgspec.structs.replace(event, seq=seq, data=data))
    return tuple(numbered)


# Steps with this library's data in ``extra``.


def _extra_data(holder: Mapping[str, JsonValue], path: str) -> Mapping[str, JsonValue] | None:
    extra = holder.get("extra")
    if not isinstance(extra, Mapping) or EXTRA_KEY not in extra:
        return None
    extra_data = extra[EXTRA_KEY]
    if not isinstance(extra_data, Mapping):
        raise DecodeError(f"{path}.extra.{EXTRA_KEY} must be a map, got {describe(extra_data)}")
    return extra_data


def _own_name(extra_data: Mapping[str, JsonValue] | None, name: str, path: str) -> str | None:
    if extra_data is None:
        return None
    value = extra_data.get(name)
    if not isinstance(value, str) or not value:
        raise DecodeError(f"{path}.extra.{EXTRA_KEY}.{name} must be non-empty text, got {describe(value)}")
    return value


def _entries(holder: Mapping[str, JsonValue], path: str) -> Iterator[tuple[JsonMap, str]]:
    extra_data = _extra_data(holder, path)
    listed: object = [] if extra_data is None else extra_data.get("events", [])
    events_path = f"{path}.extra.{EXTRA_KEY}.events"
    if not isinstance(listed, list):
        raise DecodeError(f"{events_path} must be a list, got {describe(listed)}")
    for index, entry in enumerate(cast("list[object]", listed)):
        if not isinstance(entry, dict):
            raise DecodeError(f"{events_path}[{index}] must be a map, got {describe(entry)}")
        yield cast("JsonMap", entry), f"{events_path}[{index}]"


def _complete(entry: JsonMap, path: str) -> Event:
    try:
        event = Event.from_map(entry)
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from error
    if not event.seq:
        raise DecodeError(f"{path}: seq is missing")
    return event


def _restored(entry: JsonMap, payloads: Mapping[str, EventData], step_time: datetime, path: str) -> Event:
    """Return the event of an entry: the payload of the step's field with the changes of the entry."""
    if "at" not in entry:
        return _complete(entry, path)
    payload = payload_at(entry, payloads, path)
    changes, without = entry.get("data", {}), entry.get("without", [])
    if not is_map(changes) or not is_list(without) or not all(isinstance(key, str) for key in without):
        raise DecodeError(f"{path}: data must be a map, and without must be a list of keys")
    data = {key: value for key, value in payload.to_map().items() if key not in without} | changes
    complete = {"timestamp": step_time, **entry, "type": payload.event_type, "data": data}
    return _complete(cast("JsonMap", complete), path)
