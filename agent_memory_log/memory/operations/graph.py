"""The operations on the graph of records, entities, links and relations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from agent_memory_log.memory.operations.fields import RecordId, Scopes
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.records.reports.graphs import MemoryGraph, MemoryPaths, MemoryTrace

_Node = Annotated[str, Meta(description="The name of an entity, such as ``Ana Ruiz``, or the id of a record.")]
_Depth = Annotated[int, Meta(ge=1, le=10, description="The most edges from the start.")]
_Limit = Annotated[int, Meta(ge=1, le=1_000, description="Return at most this many nodes.")]
_ValidAt = Annotated[datetime | None, Meta(description="Only records that held at this time. Default: active ones.")]
_RecordsAt = Annotated[datetime | None, Meta(description="Only records that held at this time. Default: all.")]
_AsOf = Annotated[datetime | None, Meta(description="As memory was at this time. Default: now.")]


class Trace(Operation[MemoryTrace], frozen=True):
    """Return a record and the records that it came from, nearest first.

    Follows the links of each record, such as ``derived_from``, ``supersedes`` and ``contradicts``. The records have any
    status, unless ``valid_at`` is given. Returns no steps if there is no such record. Erased records, and those that
    may not be read, are left out.
    """

    positional = 2

    id: RecordId
    depth: _Depth = 5
    limit: _Limit = 100
    valid_at: _RecordsAt = None
    as_of: _AsOf = None
    scopes: Scopes = None


class TraceGraph(Operation[MemoryGraph], frozen=True):
    """Return the records that are linked to a record in either direction, and their links, as a graph.

    See ``trace``, which follows the links in one direction.
    """

    positional = 2

    id: RecordId
    depth: _Depth = 5
    limit: _Limit = 100
    valid_at: _RecordsAt = None
    as_of: _AsOf = None
    scopes: Scopes = None


class Neighbours(Operation[MemoryGraph], frozen=True):
    """Return the entities and records around an entity or a record: relations, links and the records that name it.

    Only active records count, unless ``valid_at`` is given: then those that held at that time. A value that was
    replaced held until its successor did. Names that are aliases mean the same entity.
    """

    positional = 2

    node: _Node
    depth: _Depth = 1
    limit: _Limit = 100
    valid_at: _ValidAt = None
    as_of: _AsOf = None
    scopes: Scopes = None


class Paths(Operation[MemoryPaths], frozen=True):
    """Return the paths between two entities or records, the shortest first. No path passes a node twice.

    ``valid_at`` and ``as_of`` have the meaning that they have for ``neighbours``.
    """

    positional = 3

    source: _Node
    target: _Node
    depth: _Depth = 4
    limit: Annotated[int, Meta(ge=1, le=100, description="Return at most this many paths.")] = 10
    valid_at: _ValidAt = None
    as_of: _AsOf = None
    scopes: Scopes = None


class ExportGraph(Operation[bytes], frozen=True):
    """Return the whole graph as GraphML, or as the N-Triples of RDF: the bytes of a file in UTF-8.

    ``valid_at`` and ``as_of`` have the meaning that they have for ``neighbours``.
    """

    positional = 1

    format: Annotated[Literal["graphml", "ntriples"], Meta(description="``graphml`` or ``ntriples``.")] = "graphml"
    valid_at: _ValidAt = None
    as_of: _AsOf = None
    scopes: Scopes = None
