"""A state machine compares the graph of memory with one that networkx holds.

Two clients write relations, notes and links, delete, supersede and forget them, and erase their evidence. After each
step, both see the same neighbours, paths and traces as networkx does.
"""

from __future__ import annotations

import itertools
from typing import Any, cast

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from agent_memory_log import SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Evidence, Principal, Relation, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.relations.adjacency import Adjacency, adjacency_of
from agent_memory_log.memory.stream.context import Context
from tests.effort import EXAMPLES
from tests.memory.stores import OpenStore, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

NAMES = ("Ana", "ANA", "Bob", "Dr. Eva Ruiz", "eva ruíz")
_LETTERS = str.maketrans("0123456789.", "abcdefghijk")
KEYS = {"Ana": "ana", "ANA": "ana", "Bob": "bob", "Dr. Eva Ruiz": "eva ruiz", "eva ruíz": "eva ruiz"}
PREDICATES = ("knows", "likes")
SCOPES = ("user", "workspace")
_tenants = itertools.count()


class GraphIsNetworkx(RuleBasedStateMachine):
    def __init__(self, stores: list[SyncStore]) -> None:
        super().__init__()
        self.stores = stores
        self.clock = SetClock()
        self.principal = Principal(f"graph machine {next(_tenants)}", dict.fromkeys(SCOPES, "x"))
        self.clients = [self.new_client(number) for number in range(len(stores))]
        self.active: dict[str, tuple[str, list[tuple[str, str, str]], int]] = {}
        """The scope, the edges and the evidence (a seq, or 0) of each active record."""
        self.closed: dict[str, tuple[str, list[tuple[str, str, str]], int]] = {}
        self.said = 0

    def new_client(self, number: int) -> SyncMemory:
        return SyncMemoryClient(self.stores[number], clock=self.clock).of(self.principal)

    @rule(
        client=st.integers(0, 1),
        scope=st.sampled_from(SCOPES),
        subject=st.sampled_from(NAMES),
        predicate=st.sampled_from(PREDICATES),
        other=st.sampled_from(NAMES),
        cites=st.booleans(),
    )
    def relate(self, client: int, scope: str, subject: str, predicate: str, other: str, *, cites: bool) -> None:
        self.clock.move(seconds=1)
        evidence: tuple[Evidence, ...] = ()
        if cites:
            event = new_event(UserMessage(f"{subject} {predicate} {other}"), timestamp=self.clock.time)
            seq = self.stores[client].append_events("agent", self.principal.tenant, event).version
            evidence = (Evidence("agent", self.principal.tenant, seq),)
        outcome = self.clients[client].remember(Relation(subject, predicate, other), scope=scope, evidence=evidence)
        assert outcome.record is not None
        edge = (f"entity:{KEYS[subject]}", predicate, f"entity:{KEYS[other]}")
        if outcome.action == "written":
            seq = evidence[0].seq if evidence else 0
            self.active[outcome.record.id] = (scope, [edge], seq)
        else:  # an equal relation has more support, so the loss of this statement changes nothing
            assert self.active[outcome.record.id][1] == [edge]
            self.active[outcome.record.id] = (scope, [edge], 0)

    @rule(client=st.integers(0, 1), name=st.sampled_from(NAMES), data=st.data())
    def add(self, client: int, name: str, data: st.DataObject) -> None:
        self.clock.move(seconds=1)
        parent = data.draw(st.none() | st.sampled_from([*self.active, *self.closed]) if self.active else st.none())
        replaced = data.draw(st.none() | st.sampled_from(list(self.active)) if self.active else st.none())
        # A text with a number would contradict the note before it.
        text = "note " + str(self.clock.time.timestamp()).translate(_LETTERS)
        record = (
            self.clients[client].add(text, entity_refs=(name,), causal_parent_id=parent, supersedes_id=replaced).record
        )
        assert record is not None
        edges = [(record.id, "mentions", f"entity:{KEYS[name]}")]
        if parent is not None:
            edges.append((record.id, "derived_from", parent))
        if replaced is not None:
            edges.append((record.id, "supersedes", replaced))
            self.closed[replaced] = self.active.pop(replaced)
        self.active[record.id] = (record.scope, edges, 0)

    @precondition(lambda self: self.active)
    @rule(client=st.integers(0, 1), data=st.data())
    def delete(self, client: int, data: st.DataObject) -> None:
        self.clock.move(seconds=1)
        record = data.draw(st.sampled_from(list(self.active)))
        self.clients[client].delete(record)
        self.closed[record] = self.active.pop(record)

    @precondition(lambda self: any(seq for *_, seq in self.active.values()))
    @rule(client=st.integers(0, 1), data=st.data())
    def erase_evidence(self, client: int, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from([seq for *_, seq in self.active.values() if seq]))
        self.stores[client].redact_events("agent", self.principal.tenant, [seq], reason="wish")
        for records in (self.active, self.closed):
            for record in [record for record, (*_, own) in records.items() if own == seq]:
                del records[record]

    @precondition(lambda self: self.closed)
    @rule(client=st.integers(0, 1), data=st.data())
    def forget_closed(self, client: int, data: st.DataObject) -> None:
        """Forget the notes among the closed records, which no other record equals."""
        record = data.draw(st.sampled_from(list(self.closed)))
        if self.closed[record][1][0][1] == "mentions":
            self.clients[client].forget(id=record)
            del self.closed[record]

    @rule(client=st.integers(0, 1))
    def restart(self, client: int) -> None:
        self.clients[client] = self.new_client(client)

    def graph(self, *, closed: bool) -> nx.MultiDiGraph[str]:
        """Return the graph of the active records, or that of the links of all records."""
        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
        records = {**self.closed, **self.active} if closed else self.active
        graph.add_nodes_from(records)
        for record, (_, edges, _) in records.items():
            for source, kind, target in edges:
                is_link = kind in {"derived_from", "supersedes"}
                if (is_link and target in records) or (not closed and not is_link):
                    graph.add_edge(source, target, (record, kind))
        return graph

    @invariant()
    def neighbours_are_those_of_networkx(self) -> None:
        graph = self.graph(closed=False)
        undirected = graph.to_undirected(as_view=True)
        for client, name in itertools.product(self.clients, NAMES):
            node = f"entity:{KEYS[name]}"
            reached = client.neighbours(name, depth=3, limit=1_000)
            distances = nx.single_source_shortest_path_length(undirected, node, 3) if node in graph else {}
            assert {each.id: each.distance for each in reached.nodes} == distances
            near = {each for each, distance in distances.items() if distance < 3}
            assert sorted((edge.source, edge.target, (edge.record, edge.type)) for edge in reached.edges) == sorted(
                edge for edge in graph.edges(keys=True) if near & {edge[0], edge[1]}
            )

    @invariant()
    def traces_are_those_of_networkx(self) -> None:
        graph = self.graph(closed=True)
        for record in [*self.active, *self.closed][:4]:
            traced = self.clients[0].trace(record, depth=3)
            distances = nx.single_source_shortest_path_length(graph, record, 3)
            assert {step.record.id: step.depth for step in traced.steps} == distances
            around = self.clients[1].trace_graph(record, depth=2)
            both_ways = nx.single_source_shortest_path_length(graph.to_undirected(as_view=True), record, 2)
            assert {each.id for each in around.nodes} == set(both_ways)

    @invariant()
    def warm_edges_equal_new_ones(self) -> None:
        for client, scope in itertools.product(self.clients, SCOPES):
            assert isinstance(client._context, Context)
            warm, new = client._context.subject(scope).ask(
                lambda state: (
                    adjacency_of(state),
                    Adjacency((live.id, live.memory) for live in state.records.values()),
                )
            )
            assert {node: dict(edges) for node, edges in warm._edges.items()} == new._edges


@pytest.mark.hypothesis  # for make torture
def test_the_graph_behaves_like_one_of_networkx(open_memory_store: OpenStore, store_url: str) -> None:
    stores = [open_memory_store(), open_memory_store()]

    class OnThisStore(GraphIsNetworkx):
        def __init__(self) -> None:
            super().__init__(stores)

    share = {"memory": 2, "sqlite": 5}.get(store_url.partition(":")[0], 20)
    run_state_machine_as_test(OnThisStore, settings=settings(max_examples=EXAMPLES // share, stateful_step_count=12))


PEOPLE = [f"P{number}" for number in range(6)]


@pytest.mark.hypothesis  # for make torture
@settings(deadline=None, max_examples=EXAMPLES // 2)
@given(
    st.lists(st.tuples(st.sampled_from(PEOPLE), st.sampled_from(PREDICATES), st.sampled_from(PEOPLE)), max_size=12),
    st.integers(1, 5),
)
def test_paths_are_the_simple_paths_of_networkx(triples: list[tuple[str, str, str]], depth: int) -> None:
    me = SyncMemoryClient(open_sync_store("memory:"), clock=SetClock()).of(somebody())
    graph: nx.MultiGraph[str] = nx.MultiGraph()
    graph.add_nodes_from(("P0", "P1"))
    for subject, predicate, target in dict.fromkeys(triples):
        me.remember(Relation(subject, predicate, target))
        graph.add_edge(subject, target, (subject, predicate))
    result = me.paths("P0", "P1", depth=depth, limit=100)
    lengths = [len(path) for path in result.paths]
    assert lengths == sorted(lengths)
    passed = {tuple((edge.source.removeprefix("entity:"), edge.type) for edge in path) for path in result.paths}
    expected = {
        tuple((key[0].lower(), key[1]) for _, _, key in path)
        for path in cast("Any", nx.all_simple_edge_paths(graph, "P0", "P1", cutoff=depth))
    }
    assert len(result.paths) == len({tuple(edge.record for edge in path) for path in result.paths})
    if result.complete:
        assert passed == expected
    else:
        assert passed <= expected
