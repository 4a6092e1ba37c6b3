"""Carries out the operations on the graph of memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent_memory_log.memory.operations import ExportGraph, Neighbours, Paths, Trace, TraceGraph
from agent_memory_log.memory.records.reports.graphs import MemoryGraph, MemoryPaths, MemoryTrace
from agent_memory_log.memory.relations import walking
from agent_memory_log.memory.relations.exporting import graphml, ntriples
from agent_memory_log.memory.relations.views import View, past, present
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.steps import Steps, work


def trace(context: Context, call: Trace) -> Steps[MemoryTrace]:
    """Return a record and the records that it came from."""
    view = yield from past(context, call.scopes, call.valid_at, call.as_of, closed=True)
    return (yield from work(lambda: walking.trace(view, call.id, call.depth, call.limit)))


def trace_graph(context: Context, call: TraceGraph) -> Steps[MemoryGraph]:
    """Return the records that are linked to a record in either direction."""
    view = yield from past(context, call.scopes, call.valid_at, call.as_of, closed=True)
    start = None if view.record(call.id) is None else call.id
    return (yield from work(lambda: walking.reach(view, start, call.depth, call.limit, walking.is_link)))


def neighbours(context: Context, call: Neighbours) -> Steps[MemoryGraph]:
    """Return the entities and records around a node."""
    view = yield from _view(context, call)
    return (yield from work(lambda: walking.reach(view, walking.node_of(view, call.node), call.depth, call.limit)))


def paths(context: Context, call: Paths) -> Steps[MemoryPaths]:
    """Return the paths between two nodes."""
    view = yield from _view(context, call)

    def search() -> MemoryPaths:
        source, target = walking.node_of(view, call.source), walking.node_of(view, call.target)
        return walking.paths(view, source, target, call.depth, call.limit)

    return (yield from work(search))


def export_graph(context: Context, call: ExportGraph) -> Steps[bytes]:
    """Return the whole graph in a format."""
    view = yield from _view(context, call)
    return (yield from work(lambda: _FORMATS[call.format](view)))


_FORMATS: Mapping[str, Callable[[View], bytes]] = {"graphml": graphml, "ntriples": ntriples}


def _view(context: Context, call: Neighbours | Paths | ExportGraph) -> Steps[View]:
    if call.valid_at is None and call.as_of is None:
        return (yield from present(context, call.scopes))
    return (yield from past(context, call.scopes, call.valid_at, call.as_of, closed=False))
