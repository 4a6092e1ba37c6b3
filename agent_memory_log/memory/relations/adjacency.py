"""The edges of the records of a scope, by node. They are made from the records when a call first needs them.

``adjacency_of`` keeps the edges of a state and brings them up to date: it compares the records, and reads only those
that are new or changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from weakref import WeakKeyDictionary

from agent_memory_log.memory.entities import alias_key
from agent_memory_log.memory.records.kinds import Relation, read_kind
from agent_memory_log.memory.records.reports.graphs import ENTITY, MENTIONS, Edge
from agent_memory_log.memory.stream.payloads import MemoryRemembered
from agent_memory_log.memory.stream.state import State


def entity_id(name: str) -> str:
    """Return the id of the node of an entity. All aliases of a name have the same node."""
    return ENTITY + alias_key(name)


class Adjacency:
    """The edges of records, by node.

    Attributes:
        version: The version of the state that the edges were made from. -1: they were never made.
    """

    def __init__(self, memories: Iterable[tuple[str, MemoryRemembered]] = ()) -> None:
        """Read the edges of records."""
        self.version = -1
        self._memories: dict[str, MemoryRemembered] = {}
        self._edges: dict[str, dict[Edge, str]] = {}
        for record, memory in memories:
            self._add(record, memory)

    def update(self, state: State) -> None:
        """Bring the edges up to date with a state."""
        if self.version == state.version and len(self._memories) == len(state.records):
            return
        for record in [record for record in self._memories if record not in state.records]:
            self._remove(record)
        for record, live in state.records.items():
            if self._memories.get(record) is not live.memory:
                self._remove(record)
                self._add(record, live.memory)
        self.version = state.version

    def edges(self, node: str) -> Mapping[Edge, str]:
        """Return the edges of a node in both directions, each with the form of the node's name that it has.

        A record has the name ``""``. The order is that in which the edges were stated.
        """
        return self._edges.get(node, {})

    def all_edges(self) -> Iterator[Edge]:
        """Yield every edge once."""
        for node, edges in self._edges.items():
            yield from (edge for edge in edges if edge.source == node)

    def _add(self, record: str, memory: MemoryRemembered) -> None:
        self._memories[record] = memory
        for edge, source, target in _edges_of(record, memory):
            self._edges.setdefault(edge.target, {})[edge] = target
            self._edges.setdefault(edge.source, {})[edge] = source

    def _remove(self, record: str) -> None:
        if record not in self._memories:
            return
        for edge, *_ in _edges_of(record, self._memories.pop(record)):
            for node in (edge.source, edge.target):
                edges = self._edges.get(node, {})
                edges.pop(edge, None)
                if not edges:
                    self._edges.pop(node, None)


def _edges_of(record: str, memory: MemoryRemembered) -> Iterator[tuple[Edge, str, str]]:
    """Yield the edges of a record, each with the names of the entities at its ends. A record has the name ``""``."""
    for link in memory.links:
        yield Edge(record, link.type, link.target, record), "", ""
    ends: set[str] = set()
    if memory.kind == Relation.kind:
        relation = read_kind(memory.kind, memory.data)
        if isinstance(relation, Relation):
            source, target = entity_id(relation.subject), entity_id(relation.object)
            span = (memory.valid_from, memory.valid_until)
            yield Edge(source, relation.predicate, target, record, *span), relation.subject, relation.object
            ends = {source, target}
    for node, name in {entity_id(name): name for name in memory.entities}.items():
        if node not in ends:
            yield Edge(record, MENTIONS, node, record), "", name


_of_states: WeakKeyDictionary[State, Adjacency] = WeakKeyDictionary()


def adjacency_of(state: State) -> Adjacency:
    """Return the edges of a state's records. Call it only in ``Subject.ask``, as the state must not change."""
    adjacency = _of_states.get(state)
    if adjacency is None:
        adjacency = _of_states[state] = Adjacency()
    adjacency.update(state)
    return adjacency
