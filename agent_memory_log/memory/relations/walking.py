"""Walks the graph of memory: the part around a node, the records that a record came from, and paths between nodes.

The depth and the number of nodes and edges are bounded, and cycles are ordinary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from agent_memory_log.memory.records.reports.graphs import (
    ENTITY,
    Edge,
    MemoryGraph,
    MemoryPaths,
    MemoryTrace,
    TraceStep,
)
from agent_memory_log.memory.relations.adjacency import entity_id
from agent_memory_log.memory.relations.views import View

_EDGES_A_NODE: Final = 10
"""The most edges of a graph, for each of the most nodes."""

_MOST_STEPS: Final = 20_000
"""The most edges that a search for paths follows."""


def node_of(view: View, name: str) -> str | None:
    """Return the node with an id or with the name of an entity, or None."""
    if view.record(name) is not None:
        return name
    node = name if name.startswith(ENTITY) else entity_id(name)
    return node if view.node(node).name else None


def is_link(edge: Edge) -> bool:
    """Return whether an edge connects two records."""
    return not edge.source.startswith(ENTITY) and not edge.target.startswith(ENTITY)


def reach(
    view: View, start: str | None, depth: int, limit: int, follows: Callable[[Edge], bool] = lambda _: True
) -> MemoryGraph:
    """Return the nodes that are at most ``depth`` edges from a node, nearest first, and at most ``limit``."""
    if start is None:
        return MemoryGraph()
    distances = {start: 0}
    edges: dict[Edge, None] = {}
    most_edges = limit * _EDGES_A_NODE
    complete = True
    order = [start]
    for node in order:  # it grows meanwhile
        if distances[node] == depth:
            break
        for edge in view.edges(node):
            other = edge.other_end(node)
            if not follows(edge) or edge in edges:
                continue
            if len(edges) == most_edges or (other not in distances and len(distances) == limit):
                complete = False
                continue
            edges[edge] = None
            if other not in distances:
                distances[other] = distances[node] + 1
                order.append(other)
    return MemoryGraph(tuple(view.node(*item) for item in distances.items()), tuple(edges), complete)


def trace(view: View, start: str, depth: int, limit: int) -> MemoryTrace:
    """Return a record and the records that its links lead to, nearest first."""
    record = view.record(start)
    if record is None:
        return MemoryTrace()
    steps = {start: TraceStep(record)}
    complete = True
    order = [start]
    for node in order:  # it grows meanwhile
        if steps[node].depth == depth:
            break
        for edge in view.edges(node):
            if not is_link(edge) or edge.target in steps:  # the target of an incoming link is the node itself
                continue
            target = view.record(edge.target)
            if target is None:
                continue
            if len(steps) == limit:
                complete = False
                break
            steps[edge.target] = TraceStep(target, steps[node].depth + 1, edge.type, node)
            order.append(edge.target)
    return MemoryTrace(tuple(steps.values()), complete)


def paths(view: View, source: str | None, target: str | None, depth: int, limit: int) -> MemoryPaths:
    """Return the paths between two nodes that pass no node twice, the shortest first."""
    if source is None or target is None or source == target:
        return MemoryPaths()
    search = _PathSearch(view, target, depth)
    shortest: list[tuple[Edge, ...]] = []
    for path in search.from_node(source):
        if len(shortest) == limit:
            return MemoryPaths(tuple(shortest), complete=False)
        shortest.append(path)
    return MemoryPaths(tuple(shortest), search.left > 0)


class _PathSearch:
    """The search for the paths to a node. It first measures how far each node is from there.

    Attributes:
        left: How many edges the search may still follow.
    """

    def __init__(self, view: View, target: str, depth: int) -> None:
        self._target = target
        self._depth = depth
        self.left = _MOST_STEPS
        self._edges: dict[str, list[Edge]] = {}
        self._view = view
        self._distances = {target: 0}
        order = [target]
        for node in order:  # it grows meanwhile
            if self._distances[node] == depth:
                break
            for edge in self._edges_of(node):
                other = edge.other_end(node)
                if other not in self._distances:
                    self._distances[other] = self._distances[node] + 1
                    order.append(other)

    def _edges_of(self, node: str) -> list[Edge]:
        if node not in self._edges:
            self._edges[node] = list(islice(self._view.edges(node), max(self.left, 0)))
            self.left -= len(self._edges[node])
        return self._edges[node]

    def from_node(self, source: str) -> Iterator[tuple[Edge, ...]]:
        """Yield the paths from a node."""
        shortest = self._distances.get(source, self._depth + 1)
        for length in range(shortest, self._depth + 1):
            yield from self._of_length(source, length, {source: None}, [])

    def _of_length(
        self, node: str, length: int, passed: dict[str, None], path: list[Edge]
    ) -> Iterator[tuple[Edge, ...]]:
        for edge in self._edges_of(node):
            if self.left <= 0:
                return
            self.left -= 1
            other = edge.other_end(node)
            if other == self._target:
                if length == 1:
                    yield (*path, edge)
            elif other not in passed and self._distances.get(other, length) < length:
                yield from self._of_length(other, length - 1, {**passed, other: None}, [*path, edge])
