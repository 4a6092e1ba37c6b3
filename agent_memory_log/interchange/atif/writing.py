"""Converts runs to ATIF documents, which any tool can read and from which this library restores the same run.

An imported run that has not changed gives the original document again. For any other run, the ``extra`` fields of the
document and its steps hold the data that ATIF has no field for. For each event, this is its position in the step and
its differences from the step.
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
from agent_memory_log.interchange.atif.documents import EXTRA_KEY, SCHEMA_VERSION, AtifStep, JsonMap
from agent_memory_log.interchange.atif.images import ATIF
from agent_memory_log.interchange.atif.payloads import payload_at, payloads_of
from agent_memory_log.interchange.atif.reading import DOCUMENT, PARENT, SUBAGENTS, AtifRun, from_atif, read_trajectory
from agent_memory_log.interchange.atif.rendering import Positions, metrics_of, render_step
from agent_memory_log.interchange.steps import Steps
from agent_memory_log.interchange.usage import NO_USAGE, usage_in
from agent_memory_log.snapshot import Snapshot, require_snapshot
from agent_memory_log.transcript.differences import difference, same_json
from agent_memory_log.transcript.requests import recorded_request

_UNKNOWN_VERSION = "unknown"


def to_atif(snapshot: Snapshot, *, subagents: Iterable[Snapshot] = (), server_data: bool = True) -> dict[str, Any]:
    """Return the run as an ATIF document, a new map.

    ``from_atif`` restores the same events from it: types, data, labels, timestamps, ids and seqs. A run that was
    imported from ATIF and has not changed gives the original document.

        json.dump(to_atif(store.load_run("support-agent", "run-42")), file)

    Args:
        snapshot: The run.
        subagents: The runs of sub-agents to embed, in any order. If a run's ``meta`` has a ``parent_run`` (a map with
            ``agent`` and ``run``), it is embedded in that run. If the ``parent_run`` has a ``tool_call_id``, the result
            of that call refers to the embedded run.
        server_data: Whether to include the tools' ``server_data``. Other tools do not show it, but anyone who has the
            document can read it.

    Raises:
        InvalidArgument: A run is passed twice, or runs of sub-agents name each other as parent.
    """
    inner = list(subagents)
    for each in (snapshot, *inner):
        require_snapshot(each)
    run = _tree(snapshot, inner)
    if ATIF in snapshot.meta:
        document = _document(run, exact=True, with_extra=False, server_data=server_data)
        if _came_from(document, run):
            return document
        document = _document(run, exact=True, with_extra=True, server_data=server_data)
        if _can_be_read(document):
            return document
    return _document(run, exact=False, with_extra=True, server_data=server_data)


def _tree(snapshot: Snapshot, subagents: list[Snapshot]) -> AtifRun:
    """Return the run with the runs of its sub-agents inside it."""
    outermost = (snapshot.agent, snapshot.run)
    names = {outermost}
    for other in subagents:
        if _name_of(other) in names:
            raise InvalidArgument(f"the run {other.agent}/{other.run} is passed twice")
        names.add(_name_of(other))
    inner: dict[tuple[JsonValue, JsonValue], list[Snapshot]] = {}
    for other in subagents:
        parent = _map_in(other.meta, PARENT)
        parent_name = (parent.get("agent"), parent.get("run"))
        # A run whose parent is missing here, or is the run itself, is embedded in the outermost run.
        has_parent = all(isinstance(name, str) for name in parent_name) and parent_name in names
        is_inner = has_parent and parent_name != _name_of(other)
        inner.setdefault(parent_name if is_inner else outermost, []).append(other)

    def with_inner(outer: Snapshot) -> AtifRun:
        listed = _map_in(outer.meta, ATIF).get(SUBAGENTS)
        order = {encode_json(name): index for index, name in enumerate(listed)} if isinstance(listed, list) else {}
        children = inner.pop(_name_of(outer), [])
        children.sort(key=lambda child: order.get(encode_json(_name_of(child)), len(order)))
        return AtifRun(outer.agent, outer.run, tuple(outer.log), outer.meta, tuple(map(with_inner, children)))

    run = with_inner(snapshot)
    if inner:
        left = next(iter(inner.values()))[0]
        raise InvalidArgument(f"runs of sub-agents name each other as parent; one of them is {left.agent}/{left.run}")
    return run


def _name_of(snapshot: Snapshot) -> tuple[str, str]:
    return snapshot.agent, snapshot.run


def _map_in(meta: Mapping[str, JsonValue], key: str) -> Mapping[str, JsonValue]:
    value = meta.get(key)
    return value if isinstance(value, Mapping) else {}


# The checks that a document restores the run.


def _came_from(document: JsonMap, run: AtifRun) -> bool:
    """Return whether the document restores exactly this run."""
    # If a document has no times, its events have the time of the import, so that time is tried here.
    times = [*dict.fromkeys(inner.events[0].timestamp for inner in run if inner.events), datetime.now(UTC)]
    for time, bound in product(times, (False, True) if run.subagents else (False,)):
        try:
            restored = read_trajectory(document, run.agent, run.run, time, bound=bound)
        except DecodeError:
            continue
        if _is_same(restored, run):
            return True
    return False


def _is_same(left: AtifRun, right: AtifRun) -> bool:
    return (
        (left.agent, left.run) == (right.agent, right.run)
        and len(left.events) == len(right.events)
        and all(same_json(*(event.to_map() for event in pair)) for pair in zip(left.events, right.events, strict=True))
        and same_json(left.meta, right.meta)
        and len(left.subagents) == len(right.subagents)
        and all(map(_is_same, left.subagents, right.subagents))
    )


def _can_be_read(document: JsonMap) -> bool:
    try:
        from_atif(document)
    except DecodeError:
        return False  # another writer changed this library's data in structured
    return True


# Documents.


def _document(run: AtifRun, *, exact: bool, with_extra: bool, server_data: bool) -> JsonMap:
    """Return the document of a run.

    ``exact`` adds the imported data that no event has a field for. ``with_extra`` adds this library's ``extra`` fields.
    """
    split = Steps(run.events)
    steps: list[JsonMap] = []
    total = NO_USAGE
    for number, step in enumerate(split.steps, 1):
        rendered, positions = render_step(step, number, exact=exact)
        total = total.plus(usage_in(step.content))
        if with_extra:
            _set_extra(rendered, {"events": _entries(rendered, positions, server_data=server_data)})
        steps.append(rendered)
    original = _map_in(run.meta, ATIF).get(DOCUMENT)
    document = cast("JsonMap", own_json(original)) if exact and isinstance(original, Mapping) else _new_document(run)
    document["steps"] = cast("list[JsonValue]", steps)
    inner = [
        _document(subagent, exact=exact, with_extra=with_extra, server_data=server_data) for subagent in run.subagents
    ]
    if inner:
        document["subagent_trajectories"] = cast("list[JsonValue]", inner)
    if not with_extra:
        return document
    document["trajectory_id"] = document.get("trajectory_id") or f"{run.agent}/{run.run}"
    if "final_metrics" not in document:
        sums = {f"total_{key}": value for key, value in metrics_of(total).items()}
        document["final_metrics"] = {**sums, "total_steps": len(steps)}
    extra_data: JsonMap = {"agent": run.agent, "run": run.run, "meta": own_json(run.meta)}
    if split.before:
        extra_data["events"] = [event.to_map() for event in split.before]
    _set_extra(document, extra_data)
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
                    "function": {
                        "name": definition.name,
                        "description": definition.description,
                        "parameters": own_json(definition.schema),
                    },
                }
                for definition in definitions
            ]
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": session if isinstance(session, str) and session else run.run,
        "agent": agent,
    }


def _set_extra(holder: JsonMap, extra_data: JsonMap) -> None:
    holder["extra"] = {**_map_in(holder, "extra"), EXTRA_KEY: extra_data}


def _entries(step: JsonMap, positions: Positions, *, server_data: bool) -> list[JsonValue]:
    try:
        payloads = payloads_of(msgspec.convert(step, AtifStep))
    except msgspec.ValidationError:
        payloads = {}  # the restored data is no valid step; the caller then writes the document without it
    entries: list[JsonValue] = []
    for event, position in sorted(positions, key=lambda placed: placed[0].seq):
        event_map = event.to_map()
        if not server_data and isinstance(event.data, ToolResult):
            cast("JsonMap", event_map["data"]).pop("server_data", None)
        entries.append(_entry(position, event_map, step, payloads) if payloads and position else event_map)
    return entries


def _entry(position: JsonMap, event_map: JsonMap, step: JsonMap, payloads: Mapping[str, EventData]) -> JsonMap:
    """Return the data of the event ``event_map`` that the step does not have."""
    payload = payload_at(position, payloads, "step")
    if payload.event_type != event_map["type"]:
        return event_map
    entry = dict(position)
    entry.update((key, event_map[key]) for key in ("labels", "event_id", "seq") if key in event_map)
    if event_map["timestamp"] != step.get("timestamp"):
        entry["timestamp"] = event_map["timestamp"]
    residual = difference(payload.to_map(), cast("JsonMap", event_map["data"]))
    if "fields" in residual:
        entry["data"] = residual["fields"]
    if "without" in residual:
        entry["without"] = residual["without"]
    return entry


def _refer(steps: list[JsonMap], inner: Sequence[AtifRun], documents: Sequence[JsonMap]) -> None:
    """Add a reference to each trajectory to the result of the call that started the sub-agent."""
    references: dict[str, list[JsonValue]] = {}
    for run, document in zip(inner, documents, strict=True):
        call_id = _map_in(run.meta, PARENT).get("tool_call_id")
        if isinstance(call_id, str):
            references.setdefault(call_id, []).append({"trajectory_id": document["trajectory_id"]})
    for step in steps:
        for result in cast("list[JsonMap]", _map_in(step, "observation").get("results") or []):
            call_id = result.get("source_call_id")
            if isinstance(call_id, str) and call_id in references and "subagent_trajectory_ref" not in result:
                result["subagent_trajectory_ref"] = references[call_id]
