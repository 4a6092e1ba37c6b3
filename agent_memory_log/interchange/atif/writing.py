"""Runs to ATIF: a document that shows the run to any tool, and holds all of it for ours.

A run that was imported and is as it was gives the document it came from, and nothing else. Any other has, in the
``extra`` of document and steps, what ATIF has no field for: of each event its place in the step and what differs from
what stands there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any, cast

import msgspec

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.jsonvalue import JsonValue, encode_json, own_json
from agent_memory_log.events.payloads import ModelRequest, ToolResult
from agent_memory_log.interchange.atif.documents import OURS, SCHEMA_VERSION, AtifStep, JsonMap
from agent_memory_log.interchange.atif.drafts import draft_of
from agent_memory_log.interchange.atif.images import ATIF
from agent_memory_log.interchange.atif.reading import DOCUMENT, PARENT, SUBAGENTS, AtifRun, from_atif, read_trajectory
from agent_memory_log.interchange.atif.rendering import Place, metrics_of, render_step
from agent_memory_log.interchange.steps import Steps
from agent_memory_log.interchange.usage import NO_USAGE, usage_in
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.requests import recorded_request
from agent_memory_log.transcript.residual import same_json

_UNKNOWN_VERSION = "unknown"


class _Node(msgspec.Struct, frozen=True):
    """A run and those of its sub-agents."""

    snapshot: Snapshot
    inner: tuple[_Node, ...]


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
    node = _tree(snapshot, list(subagents))
    if ATIF in snapshot.meta:
        document = _came_from(node)
        if document is not None:
            return document
        document = _written(node, exact=True, server_data=server_data)
        if _reads(document):
            return document
    return _written(node, exact=False, server_data=server_data)


def _tree(snapshot: Snapshot, others: list[Snapshot]) -> _Node:
    outermost = (snapshot.agent, snapshot.run)
    names = {outermost}
    for one in others:
        if (one.agent, one.run) in names:
            raise InvalidArgument(f"the run {one.agent}/{one.run} is given twice")
        names.add((one.agent, one.run))
    inner: dict[tuple[str, str], list[Snapshot]] = {}
    for one in others:
        parent = _parent(one)
        agent, run = parent.get("agent"), parent.get("run")
        named = (agent, run) if isinstance(agent, str) and isinstance(run, str) else outermost
        # One that names no run given here, or itself, is embedded in the outermost.
        is_inner = named in names and named != (one.agent, one.run)
        inner.setdefault(named if is_inner else outermost, []).append(one)
    placed: set[tuple[str, str]] = set()
    node = _node(snapshot, inner, placed)
    left = [one for one in others if (one.agent, one.run) not in placed]
    if left:
        raise InvalidArgument(f"the sub-agents' runs name each other as parent, as {left[0].agent}/{left[0].run} does")
    return node


def _node(snapshot: Snapshot, inner: Mapping[tuple[str, str], list[Snapshot]], placed: set[tuple[str, str]]) -> _Node:
    listed = [encode_json(one) for one in _lists(_imported(snapshot).get(SUBAGENTS))]
    order = {name: at for at, name in reversed([*enumerate(listed)])}
    children = sorted(
        inner.get((snapshot.agent, snapshot.run), ()),
        key=lambda one: order.get(encode_json([one.agent, one.run]), len(listed)),
    )
    placed.update((one.agent, one.run) for one in children)
    return _Node(snapshot, tuple(_node(one, inner, placed) for one in children))


def _lists(value: JsonValue) -> list[Sequence[JsonValue]]:
    if not isinstance(value, Sequence):
        return []
    return [one for one in value if isinstance(one, Sequence)]


def _parent(snapshot: Snapshot) -> Mapping[str, JsonValue]:
    parent = snapshot.meta.get(PARENT)
    return parent if isinstance(parent, Mapping) else {}


def _imported(snapshot: Snapshot) -> Mapping[str, JsonValue]:
    kept = snapshot.meta.get(ATIF)
    return kept if isinstance(kept, Mapping) else {}


# A run that was imported.


def _came_from(node: _Node) -> JsonMap | None:
    """The document that the run was imported from; None if it has changed since, or was not imported."""
    document = _plain(node)
    if document is None:
        return None
    # Events of a document without times have the time of the import, which only they know.
    times = [*dict.fromkeys(_begins(node)), datetime.now(UTC)]
    for time, bound in product(times, (False, True) if node.inner else (False,)):
        try:
            found = read_trajectory(document, node.snapshot.agent, node.snapshot.run, time, bound=bound)
        except DecodeError:
            continue
        if _is_same(found, node):
            return document
    return None


def _begins(node: _Node) -> Iterator[datetime]:
    """When each of the runs began that has events."""
    if node.snapshot.log:
        yield node.snapshot.log[0].timestamp
    for inner in node.inner:
        yield from _begins(inner)


def _plain(node: _Node) -> JsonMap | None:
    root = _imported(node.snapshot).get(DOCUMENT)
    steps = Steps(node.snapshot.log)
    inner = [_plain(one) for one in node.inner]
    if not isinstance(root, Mapping) or steps.before or any(one is None for one in inner):
        return None
    document = cast("JsonMap", own_json(root))
    document["steps"] = [render_step(step, at, exact=True).step for at, step in enumerate(steps.steps, 1)]
    if inner:
        document["subagent_trajectories"] = inner
    return document


def _is_same(found: AtifRun, node: _Node) -> bool:
    snapshot = node.snapshot
    return (
        (found.agent, found.run) == (snapshot.agent, snapshot.run)
        and len(found.events) == len(snapshot.log)
        and all(same_json(one.to_map(), other.to_map()) for one, other in zip(found.events, snapshot.log, strict=True))
        and same_json(found.meta, snapshot.meta)
        and len(found.subagents) == len(node.inner)
        and all(_is_same(one, other) for one, other in zip(found.subagents, node.inner, strict=True))
    )


def _reads(document: JsonMap) -> bool:
    try:
        from_atif(document)
    except DecodeError:
        return False  # what stands in structured under our name was put there by someone else
    return True


# Any other run.


def _written(node: _Node, *, exact: bool, server_data: bool) -> JsonMap:
    snapshot = node.snapshot
    steps = Steps(snapshot.log)
    total = NO_USAGE
    written: list[JsonValue] = []
    for number, step in enumerate(steps.steps, 1):
        rendered = render_step(step, number, exact=exact)
        total = total.plus(usage_in(step.made))
        _hold(rendered.step, {"events": _entries(rendered.step, rendered.places, server_data=server_data)})
        written.append(rendered.step)
    document = _root(snapshot, exact=exact)
    document["steps"] = written
    if not exact or "final_metrics" not in document:
        sums = {f"total_{key}": value for key, value in metrics_of(total).items()}
        document["final_metrics"] = {**sums, "total_steps": len(written)}
    ours: JsonMap = {"agent": snapshot.agent, "run": snapshot.run, "meta": own_json(snapshot.meta)}
    if steps.before:
        ours["events"] = [event.to_map() for event in steps.before]
    _hold(document, ours)
    if node.inner:
        inner = [_written(one, exact=exact, server_data=server_data) for one in node.inner]
        document["subagent_trajectories"] = inner
        _refer(written, node, inner)
    return document


def _root(snapshot: Snapshot, *, exact: bool) -> JsonMap:
    root = _imported(snapshot).get(DOCUMENT)
    if exact and isinstance(root, Mapping):
        kept = cast("JsonMap", own_json(root))
        return {**kept, "trajectory_id": kept.get("trajectory_id") or f"{snapshot.agent}/{snapshot.run}"}
    version = snapshot.meta.get("agent_version")
    agent: JsonMap = {
        "name": snapshot.agent,
        "version": version if isinstance(version, str) and version else _UNKNOWN_VERSION,
    }
    requests = [event.data for event in snapshot.log if isinstance(event.data, ModelRequest)]
    if requests:
        agent["model_name"] = requests[-1].model
        definitions = recorded_request(snapshot, requests[-1].provider, ()).definitions
        if definitions:
            agent["tool_definitions"] = [
                {
                    "type": "function",
                    "function": {"name": one.name, "description": one.description, "parameters": own_json(one.schema)},
                }
                for one in definitions
            ]
    session = snapshot.meta.get("session_id")
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": session if isinstance(session, str) and session else snapshot.run,
        "trajectory_id": f"{snapshot.agent}/{snapshot.run}",
        "agent": agent,
    }


def _hold(holder: JsonMap, ours: JsonMap) -> None:
    extra = holder.get("extra")
    holder["extra"] = {**(extra if isinstance(extra, Mapping) else {}), OURS: ours}


def _entries(step: JsonMap, places: Iterable[Place], *, server_data: bool) -> list[JsonValue]:
    try:
        read = msgspec.convert(step, AtifStep)
    except msgspec.ValidationError:
        read = None  # what was put back makes no step; the document is then written without it
    entries: list[JsonValue] = []
    for place in sorted(places, key=lambda one: one.event.seq):
        whole = place.event.to_map()
        if not server_data and isinstance(place.event.data, ToolResult):
            cast("JsonMap", whole["data"]).pop("server_data", None)
        entries.append(whole if read is None or not place.at else _entry(place, whole, step, read))
    return entries


def _entry(place: Place, whole: JsonMap, step: JsonMap, read: AtifStep) -> JsonMap:
    """What of the event ``whole`` the step does not say."""
    entry: JsonMap = {"at": place.at}
    if place.span is not None:
        entry["span"] = list(place.span)
    if place.is_error:
        entry["is_error"] = True
    draft = draft_of(entry, read, place.at)
    if draft.event_type != whole["type"]:
        return whole
    said = draft.to_map()
    data = cast("JsonMap", whole["data"])
    changes = {key: value for key, value in data.items() if key not in said or not same_json(said[key], value)}
    without: list[JsonValue] = [key for key in said if key not in data]
    entry.update((key, whole[key]) for key in ("labels", "event_id", "seq") if key in whole)
    if whole["timestamp"] != step.get("timestamp"):
        entry["timestamp"] = whole["timestamp"]
    if changes:
        entry["data"] = changes
    if without:
        entry["without"] = without
    return entry


def _refer(steps: list[JsonValue], node: _Node, inner: list[JsonMap]) -> None:
    """Have the results of the calls that began sub-agents refer to their trajectories."""
    began: dict[str, list[JsonValue]] = {}
    for one, document in zip(node.inner, inner, strict=True):
        call_id = _parent(one.snapshot).get("tool_call_id")
        if isinstance(call_id, str):
            began.setdefault(call_id, []).append({"trajectory_id": document["trajectory_id"]})
    for step in cast("list[JsonMap]", steps):
        observation = cast("JsonMap", step.get("observation") or {})
        for result in cast("list[JsonMap]", observation.get("results") or []):
            call_id = result.get("source_call_id")
            if isinstance(call_id, str) and call_id in began and "subagent_trajectory_ref" not in result:
                result["subagent_trajectory_ref"] = began[call_id]
