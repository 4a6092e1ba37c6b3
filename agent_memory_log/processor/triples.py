"""Turns memory records into triples for a knowledge graph, and finds the records about entities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from agent_memory_log.memory.records.kinds import fold_text
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.memory.records.record import Record
from agent_memory_log.processor.loops import GraphChanges, Triple

MOST_DEPTH = 5

_ROOT = "agent"
_RECORD = f"{_ROOT}.memory.record"
_LONGEST_LEVEL = 64


def triples_of(record: Record, principal: Principal) -> tuple[Triple, ...]:
    """Return the triples of an active record.

    A record whose data has the texts ``subject``, ``predicate`` and ``object``, as a relation has, gives these. The
    subject of any other record is the owner of the memory, and its object the record's value, or its text if its kind
    has no keys.
    """
    subject_id = principal.subject(record.scope)
    owner = f"{subject_id.tenant}/{subject_id.scope}/{subject_id.id}"
    relation = _relation_of(record)
    if relation is None:
        name = record.key or _text(record.data.to_map().get("category")) or record.memory_type
        relation = owner, name, record.value or record.text
    subject, name, value = relation
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
    home = principal.subject(principal.home)
    owner = f"{home.tenant}/{home.scope}/{home.id}"
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
    reached = {fold_text(name) for name in ids}
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
    relation = _relation_of(record)
    ends = () if relation is None else (relation[0], relation[2])
    return frozenset(map(fold_text, (*record.entities, *ends)))


def _relation_of(record: Record) -> tuple[str, str, str] | None:
    """Return the subject, predicate and object of a record that relates two things, or None."""
    data = record.data.to_map()
    subject, predicate, value = (_text(data.get(name)) for name in ("subject", "predicate", "object"))
    return (subject, predicate, value) if subject and predicate and value else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _level(name: str) -> str:
    """Return a name as one level of a predicate: lower case, with ``_`` for all but letters and digits."""
    level = "".join(character if character.isalnum() else "_" for character in name.strip().casefold())
    return level[:_LONGEST_LEVEL] or "value"
