"""Runs to ATIF: a document that shows the run to any tool, and holds all of it for ours.

A run that was imported and is as it was gives the document it came from, and nothing else. Any other has, in the
``extra`` of document and steps, what ATIF has no field for: of each event its place in the step and what differs from
what stands there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any, cast

import msgspec

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.jsonvalue import JsonValue, encode_json, own_json
from agent_memory_log.events.payloads import EventData, ModelRequest, ToolResult
from agent_memory_log.interchange.atif.documents import OURS, SCHEMA_VERSION, AtifStep, JsonMap
from agent_memory_log.interchange.atif.images import ATIF
from agent_memory_log.interchange.atif.payloads import payload_at, payloads_of
from agent_memory_log.interchange.atif.reading import DOCUMENT, PARENT, SUBAGENTS, AtifRun, from_atif, read_trajectory
from agent_memory_log.interchange.atif.rendering import Positions, metrics_of, render_step
from agent_memory_log.interchange.steps import Steps
from agent_memory_log.interchange.usage import NO_USAGE, usage_in
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.requests import recorded_request
from agent_memory_log.transcript.residual import difference, same_json

_UNKNOWN_VERSION = "unknown"


def to_atif(snapshot: Snapshot, *, subagents: Iterable[Snapshot] = (), server_data: bool = True) -> dict[str, Any]:
    """The run as an ATIF document, a new map.

    ``from_atif`` gives the same events again: types, data, labels, timestamps, ids and seqs. A run that was imported
    from ATIF and has not changed gives the document it came from.

    ``subagents``: the runs to embed, in any order; whose ``meta`` names another of them as ``parent_run``
    (``{"agent", "run"}``) stands inside that one, and with a ``tool_call_id`` the call's result refers to it.
    ``server_data``: whether the tools' data for the application's own use goes along, out of any other tool's sight but
    not out of reach of who gets the document. Raises ``InvalidArgument`` for a run that is given twice.

        json.dump(to_atif(store.load_run("support-agent", "run-42")), file)
    """
    run = _tree(snapshot, list(subagents))
    if ATIF in snapshot.meta:
        document = _document(run, exact=True, with_extra=False, server_data=server_data)
        if _came_from(document, run):
            return document
        document = _document(run, exact=True, with_extra=True, server_data=server_data)
        if _can_be_read(document):
            return document
    return _document(run, exact=False, with_extra=True, server_data=server_data)


def _tree(snapshot: Snapshot, others: list[Snapshot]) -> AtifRun:
    """The run with those of its sub-agents in it."""
    outermost = (snapshot.agent, snapshot.run)
    names = {outermost}
    for other in others:
        if _name_of(other) in names:
            raise InvalidArgument(f"the run {other.agent}/{other.run} is given twice")
        names.add(_name_of(other))
    inner: dict[tuple[JsonValue, JsonValue], list[Snapshot]] = {}
    for other in others:
        parent = _map_in(other.meta, PARENT)
        named = (parent.get("agent"), parent.get("run"))
        # One that names no run given here, or itself, is embedded in the outermost.
        is_inner = all(isinstance(name, str) for name in named) and named in names and named != _name_of(other)
        inner.setdefault(named if is_inner else outermost, []).append(other)

    def with_inner(outer: Snapshot) -> AtifRun:
        listed = _map_in(outer.meta, ATIF).get(SUBAGENTS)
        order = {encode_json(name): at for at, name in enumerate(listed)} if isinstance(listed, list) else {}
        children = inner.pop(_name_of(outer), [])
        children.sort(key=lambda child: order.get(encode_json(_name_of(child)), len(order)))
        return AtifRun(outer.agent, outer.run, tuple(outer.log), outer.meta, tuple(map(with_inner, children)))

    run = with_inner(snapshot)
    if inner:
        left = next(iter(inner.values()))[0]
        raise InvalidArgument(f"the sub-agents' runs name each other as parent, as {left.agent}/{left.run} does")
    return run


def _name_of(snapshot: Snapshot) -> tuple[str, str]:
    return snapshot.agent, snapshot.run


def _map_in(meta: Mapping[str, JsonValue], key: str) -> Mapping[str, JsonValue]:
    held = meta.get(key)
    return held if isinstance(held, Mapping) else {}


# Whether it can be the document that the run was imported from.


def _came_from(document: JsonMap, run: AtifRun) -> bool:
    """Whether reading the document gives the run as it is."""
    # Events of a document without times have the time of the import, which only they know.
    times = [*dict.fromkeys(one.events[0].timestamp for one in run if one.events), datetime.now(UTC)]
    for time, bound in product(times, (False, True) if run.subagents else (False,)):
        try:
            found = read_trajectory(document, run.agent, run.run, time, bound=bound)
        except DecodeError:
            continue
        if _is_same(found, run):
            return True
    return False


def _is_same(one: AtifRun, other: AtifRun) -> bool:
    return (
        (one.agent, one.run) == (other.agent, other.run)
        and len(one.events) == len(other.events)
        and all(same_json(*(event.to_map() for event in pair)) for pair in zip(one.events, other.events, strict=True))
        and same_json(one.meta, other.meta)
        and len(one.subagents) == len(other.subagents)
        and all(map(_is_same, one.subagents, other.subagents))
    )


def _can_be_read(document: JsonMap) -> bool:
    try:
        from_atif(document)
    except DecodeError:
        return False  # what stands in structured under our name was put there by someone else
    return True


# Documents.


def _document(run: AtifRun, *, exact: bool, with_extra: bool, server_data: bool) -> JsonMap:
    """The document of a run: ``exact`` with what an imported one had beside its events, ``with_extra`` with ours."""
    split = Steps(run.events)
    steps: list[JsonMap] = []
    total = NO_USAGE
    for number, step in enumerate(split.steps, 1):
        rendered, positions = render_step(step, number, exact=exact)
        total = total.plus(usage_in(step.made))
        if with_extra:
            _hold(rendered, {"events": _entries(rendered, positions, server_data=server_data)})
        steps.append(rendered)
    kept = _map_in(run.meta, ATIF).get(DOCUMENT)
    document = cast("JsonMap", own_json(kept)) if exact and isinstance(kept, Mapping) else _new_document(run)
    document["steps"] = cast("list[JsonValue]", steps)
    inner = [_document(one, exact=exact, with_extra=with_extra, server_data=server_data) for one in run.subagents]
    if inner:
        document["subagent_trajectories"] = cast("list[JsonValue]", inner)
    if not with_extra:
        return document
    document["trajectory_id"] = document.get("trajectory_id") or f"{run.agent}/{run.run}"
    if "final_metrics" not in document:
        sums = {f"total_{key}": value for key, value in metrics_of(total).items()}
        document["final_metrics"] = {**sums, "total_steps": len(steps)}
    ours: JsonMap = {"agent": run.agent, "run": run.run, "meta": own_json(run.meta)}
    if split.before:
        ours["events"] = [event.to_map() for event in split.before]
    _hold(document, ours)
    _refer(steps, run.subagents, inner)
    return document


def _new_document(run: AtifRun) -> JsonMap:
    version, session = run.meta.get("agent_version"), run.meta.get("session_id")
    agent: JsonMap = {
        "name": run.agent,
        "version": version if isinstance(version, str) and version else _UNKNOWN_VERSION,
    }
    requests = [event.data for event in run.events if isinstance(event.data, ModelRequest)]
    if requests:
        agent["model_name"] = requests[-1].model
        definitions = recorded_request(run.snapshot(), requests[-1].provider, ()).definitions
        if definitions:
            agent["tool_definitions"] = [
                {
                    "type": "function",
                    "function": {"name": one.name, "description": one.description, "parameters": own_json(one.schema)},
                }
                for one in definitions
            ]
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": session if isinstance(session, str) and session else run.run,
        "agent": agent,
    }


def _hold(holder: JsonMap, ours: JsonMap) -> None:
    holder["extra"] = {**_map_in(holder, "extra"), OURS: ours}


def _entries(step: JsonMap, positions: Positions, *, server_data: bool) -> list[JsonValue]:
    try:
        payloads = payloads_of(msgspec.convert(step, AtifStep))
    except msgspec.ValidationError:
        payloads = {}  # what was put back makes no step; the document is then written without it
    entries: list[JsonValue] = []
    for event, position in sorted(positions, key=lambda placed: placed[0].seq):
        whole = event.to_map()
        if not server_data and isinstance(event.data, ToolResult):
            cast("JsonMap", whole["data"]).pop("server_data", None)
        entries.append(_entry(position, whole, step, payloads) if payloads and position else whole)
    return entries


def _entry(position: JsonMap, whole: JsonMap, step: JsonMap, payloads: Mapping[str, EventData]) -> JsonMap:
    """What of the event ``whole`` the step does not say."""
    payload = payload_at(position, payloads, "step")
    if payload.event_type != whole["type"]:
        return whole
    entry = dict(position)
    entry.update((key, whole[key]) for key in ("labels", "event_id", "seq") if key in whole)
    if whole["timestamp"] != step.get("timestamp"):
        entry["timestamp"] = whole["timestamp"]
    residual = difference(payload.to_map(), cast("JsonMap", whole["data"]))
    if "fields" in residual:
        entry["data"] = residual["fields"]
    if "without" in residual:
        entry["without"] = residual["without"]
    return entry


def _refer(steps: list[JsonMap], inner: Sequence[AtifRun], documents: Sequence[JsonMap]) -> None:
    """Have the results of the calls that began sub-agents refer to their trajectories."""
    began: dict[str, list[JsonValue]] = {}
    for run, document in zip(inner, documents, strict=True):
        call_id = _map_in(run.meta, PARENT).get("tool_call_id")
        if isinstance(call_id, str):
            began.setdefault(call_id, []).append({"trajectory_id": document["trajectory_id"]})
    for step in steps:
        for result in cast("list[JsonMap]", _map_in(step, "observation").get("results") or []):
            call_id = result.get("source_call_id")
            if isinstance(call_id, str) and call_id in began and "subagent_trajectory_ref" not in result:
                result["subagent_trajectory_ref"] = began[call_id]
