"""Turns memory records into triples for a knowledge graph, and finds the records about entities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from agent_memory_log.memory import Relation, alias_key
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.memory.records.record import Record
from agent_memory_log.processor.loops import GraphChanges, Triple

MOST_DEPTH = 5

_ROOT = "agent"
_RECORD = f"{_ROOT}.memory.record"
_LONGEST_LEVEL = 64
_AMBIGUOUS = re.compile(r"^[^/]+/[^/]+/[^/]+\Z|%2[5F]")
"""The names that are written with escapes: those with the form of an owner, and those that have escapes already."""


def triples_of(record: Record, principal: Principal) -> tuple[Triple, ...]:
    """Return the triples of an active record.

    A relation gives its subject, predicate and object. The subject of any other record is the owner of the memory, and
    its object the record's value, or its text if its kind has no keys.
    """
    data = record.data
    if isinstance(data, Relation):
        subject, name, value = _entity(data.subject), data.predicate, _entity(data.object)
    else:
        category = data.to_map().get("category")
        subject = _owner(principal, record.scope)
        name = record.key or (category if isinstance(category, str) else "") or record.memory_type
        value = record.value or record.text
    return (
        Triple(
            subject,
            f"{_ROOT}.{_level(record.kind)}.{_level(name)}",
            value,
            f"{record.source.kind}:{record.source.id}" if record.source.id else record.source.kind,
            record.updated,
            record.confidence,
            record.id,
        ),
    )


def changes_between(
    in_graph: Mapping[str, datetime], records: Iterable[Record], principal: Principal, now: datetime
) -> GraphChanges:
    """Return the triples that turn the graph of the records ``in_graph`` into that of the active ``records``."""
    active = {record.id: record for record in records}
    changed = [record for record in active.values() if in_graph.get(record.id) != record.updated]
    closed = [
        record_id
        for record_id in in_graph
        if record_id not in active or active[record_id].updated != in_graph[record_id]
    ]
    owner = _owner(principal, principal.home)
    return GraphChanges(
        tuple(triple for record in changed for triple in triples_of(record, principal)),
        tuple(Triple(owner, _RECORD, record_id, "memory", now, 1.0, record_id) for record_id in closed),
        {record.id: record.updated for record in active.values()},
    )


def about(records: Iterable[Record], ids: Iterable[str], depth: int) -> list[Record]:
    """Return the records about entities, the nearest first, then the most important, then the newest.

    A record is about its ``entities`` and about the ends of its relation. Each step of ``depth`` goes from the records
    so far to the other records about any of their entities.
    """
    every = list(records)
    names = {record.id: _names(record) for record in every}
    reached = set(map(alias_key, ids))
    nearest_first: dict[str, Record] = {}
    for _ in range(depth + 1):
        near = [
            record for record in every if record.id not in nearest_first and not reached.isdisjoint(names[record.id])
        ]
        if not near:
            break
        near.sort(key=lambda record: (-record.stars, -record.updated.timestamp(), record.id))
        nearest_first.update({record.id: record for record in near})
        reached = set[str]().union(*(names[record.id] for record in near))
    return list(nearest_first.values())


def _names(record: Record) -> frozenset[str]:
    data = record.data
    ends = (data.subject, data.object) if isinstance(data, Relation) else ()
    return frozenset(map(alias_key, (*record.entities, *ends)))


def _owner(principal: Principal, scope: str) -> str:
    """Return the node of the owner of a scope."""
    owner = principal.subject(scope)
    return "/".join(map(_escaped, (owner.tenant, owner.scope, owner.id)))


def _entity(name: str) -> str:
    """Return the node of an entity. It is its name, unless this is also the node of an owner, or of another name."""
    return _escaped(name) if _AMBIGUOUS.search(name) else name


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _level(name: str) -> str:
    """Return a name as one level of a predicate: lower case, with ``_`` for all but letters and digits."""
    level = "".join(character if character.isalnum() else "_" for character in name.strip().casefold())
    return level[:_LONGEST_LEVEL] or "value"
