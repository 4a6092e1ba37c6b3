"""The results of calls on the graph of memory: steps of a trace, nodes, edges, graphs and paths."""

from __future__ import annotations

from datetime import datetime

import msgspec

from agent_memory_log.memory.records.record import Record

ENTITY = "entity:"
"""The beginning of the id of an entity. The folded name follows, as ``alias_key`` returns it."""

MENTIONS = "mentions"
"""The type of the edge from a record to an entity that it names."""


class Edge(msgspec.Struct, frozen=True, gc=False):
    """An edge of the graph of memory.

    A relation is an edge between two entities. A link is an edge between two records. A record also has an edge
    ``mentions`` to each of its entities.

    Attributes:
        source: The id of a record, or ``entity:`` and a folded name.
        type: The predicate of the relation, or the type of the link.
        target: As ``source``.
        record: The id of the record that states the edge.
        valid_from: The time from which the relation holds, or None.
        valid_until: The time until which the relation holds, or None.
    """

    source: str
    type: str
    target: str
    record: str
    valid_from: datetime | None = None
    valid_until: datetime | None = None

    def other_end(self, node: str) -> str:
        """Return the end that is not ``node``. An edge from a node to itself has one end."""
        return self.target if node == self.source else self.source


class Node(msgspec.Struct, frozen=True):
    """A node of the graph: a record or an entity.

    Attributes:
        id: The id of the record, or ``entity:`` and the folded name.
        name: The text of the record, or the longest form of the entity's name.
        distance: The number of edges from the node where the call started.
        record: The record, or None for an entity.
    """

    id: str
    name: str
    distance: int = 0
    record: Record | None = None


class MemoryGraph(msgspec.Struct, frozen=True):
    """A part of the graph of memory.

    Attributes:
        nodes: The nodes, nearest first.
        edges: The edges between these nodes that the call followed.
        complete: Whether nothing was left out because of ``limit``.
    """

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    complete: bool = True


class TraceStep(msgspec.Struct, frozen=True):
    """A record in a trace, with the link that leads to it.

    Attributes:
        record: The record, with any status.
        depth: The number of links from the record that was traced.
        link: The type of the link, such as ``derived_from``. ``""`` for the record that was traced.
        of: The id of the record that has the link, or ``""``.
    """

    record: Record
    depth: int = 0
    link: str = ""
    of: str = ""


class MemoryTrace(msgspec.Struct, frozen=True):
    """The records that a record came from.

    Attributes:
        steps: The record itself, then the others, nearest first. Empty if there is no such record.
        complete: Whether nothing was left out because of ``limit``.
    """

    steps: tuple[TraceStep, ...] = ()
    complete: bool = True


class MemoryPaths(msgspec.Struct, frozen=True):
    """The paths between two nodes.

    Attributes:
        paths: The edges of each path, in order. The shortest path comes first. An edge may be passed backwards.
        complete: Whether no path was left out because of ``limit`` or the work that it needs.
    """

    paths: tuple[tuple[Edge, ...], ...] = ()
    complete: bool = True
