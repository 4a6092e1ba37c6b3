"""Tests of notes, relations, and the calls on the graph of memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_memory_log import SyncStore, UserMessage, new_event
from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.memory import (
    Candidate,
    Evidence,
    Fact,
    Link,
    MemoryGraph,
    Note,
    OpenExecution,
    Record,
    Relation,
    Source,
    SyncMemory,
    SyncMemoryClient,
)
from agent_memory_log.memory.search.indexed_texts import record_document
from agent_memory_log.memory.stream.context import Context
from tests.memory.stores import OpenStore, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(open_memory_store: OpenStore) -> SyncStore:
    return open_memory_store()


@pytest.fixture
def me(store: SyncStore, clock: SetClock) -> SyncMemory:
    return SyncMemoryClient(store, clock=clock).of(somebody())


def added(me: SyncMemory, content: str, **fields: Any) -> Record:
    """Add a note and return its record."""
    record = me.add(content, **fields).record
    assert record is not None
    return record


def related(me: SyncMemory, subject: str, predicate: str, target: str, **fields: Any) -> Record:
    """Remember a relation and return its record."""
    record = me.remember(Relation(subject, predicate, target), **fields).record
    assert record is not None
    return record


def names(graph: MemoryGraph) -> set[str]:
    """Return the names of the entities of a graph."""
    return {node.name for node in graph.nodes if node.record is None}


def triples(graph: MemoryGraph) -> set[tuple[str, str, str]]:
    """Return the edges of a graph with the names of their ends."""
    by_id = {node.id: node.name for node in graph.nodes}
    return {(by_id[edge.source], edge.type, by_id[edge.target]) for edge in graph.edges}


def test_a_note_has_the_fields_that_add_was_given(me: SyncMemory, clock: SetClock) -> None:
    parent, old = added(me, "Ana moved to Paris"), added(me, "Ana lives in Berlin")
    note = added(
        me,
        "Ana lives in Paris",
        source_id="chat 7",
        trust_score=0.6,
        memory_type="episodic",
        tags=("home",),
        importance=0.9,
        causal_parent_id=parent.id,
        supersedes_id=old.id,
        valid_until=clock.time + timedelta(days=3),
    )
    assert (note.data, note.text, note.memory_type, note.key) == (Note(), "Ana lives in Paris", "episodic", "")
    assert note.source == Source("user", "chat 7", 0.6)
    assert (note.entities, note.tags, note.importance) == (("Ana", "Paris"), ("home",), 0.9)
    assert set(note.links) == {Link("derived_from", parent.id), Link("supersedes", old.id)}
    assert note.supersedes == (old.id,)
    assert {record.text for record in me.list()} == {"Ana moved to Paris", "Ana lives in Paris"}
    assert [record.id for record in me.list(status="superseded")] == [old.id]
    assert me.get(id=note.id) == note


def test_an_equal_note_is_refreshed_unless_it_supersedes_another(me: SyncMemory) -> None:
    first, old = added(me, "Ana likes tea"), added(me, "Ana likes coffee")
    assert me.add("ana  LIKES tea").action == "refreshed"
    outcome = me.add("Ana likes tea", supersedes_id=old.id)
    assert outcome.action == "written"
    assert outcome.record is not None
    assert set(outcome.record.supersedes) == {first.id, old.id}
    assert me.list() == (outcome.record,)


def test_a_note_that_cannot_be_stored_is_refused(me: SyncMemory) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"content": " "}, "text"),
        ({"content": "x", "supersedes_id": "nobody"}, "supersedes_id"),
        ({"content": "x", "causal_parent_id": "nobody"}, "causal_parent_id"),
        ({"content": "x", "memory_type": "vague"}, "memory_type"),
    ]
    for arguments, name in refused:
        with pytest.raises(InvalidArgument, match=name):
            me.add(**arguments)
    other_scope = added(me, "The build is slow", scope="workspace")
    with pytest.raises(InvalidArgument, match="supersedes_id"):
        me.add("x", supersedes_id=other_scope.id, scope="user")
    assert added(me, "The build is fast", supersedes_id=other_scope.id).scope == "workspace"
    for part in ("subject", "predicate", "object"):
        fields = {"subject": "a", "predicate": "b", "object": "c", part: " "}
        with pytest.raises(InvalidArgument, match=f"^{part} must contain"):
            me.remember(Relation(**fields))


def test_a_draft_is_written_as_any_candidate(me: SyncMemory) -> None:
    outcome = me.add_from_draft(Candidate(Fact("city", "Paris"), source=Source("run", "chat 7")))
    assert outcome.action == "written"
    assert me.get(key="city") == outcome.record


def test_entities_are_found_unless_they_are_given(me: SyncMemory) -> None:
    outcome = me.remember(Fact("employer", "Siemens"))
    assert outcome.record is not None
    assert outcome.record.entities == ("Siemens",)
    assert added(me, "Ana met Bob", entity_refs=("Bob",)).entities == ("Bob",)
    changed = me.update(added(me, "Ana met Eva").id, text="Ana met Tom").record
    assert changed is not None
    assert changed.entities == ("Ana", "Tom")
    unchanged = me.update(added(me, "Ana saw Eva", entity_refs=("Eva",)).id, text="Ana saw nobody").record
    assert unchanged is not None
    assert unchanged.entities == ("Eva",)
    replaced = me.update(outcome.record.id, value="Bosch").record
    assert replaced is not None
    assert replaced.entities == ("Bosch",)


def test_a_found_name_counts_once_in_a_search(me: SyncMemory) -> None:
    first, second = added(me, "we met Ana"), added(me, "we met Eva", entity_refs=("Eva", "Tom"))
    assert isinstance(me._context, Context)
    lives = me._context.subject("user").ask(lambda state: [state.records[record.id] for record in (first, second)])
    assert [record_document(live).text.split() for live in lives] == [["we", "met", "Ana"], ["we", "met", "Eva", "Tom"]]


def test_neighbours_joins_aliases_but_not_two_people(me: SyncMemory) -> None:
    related(me, "Dr. Ana Ruiz", "works_at", "Acme")
    related(me, "ana ruíz", "knows", "Bob")
    related(me, "Ana", "lives_in", "Lima")
    graph = me.neighbours("Ana Ruiz")
    assert triples(graph) == {("Dr. Ana Ruiz", "works_at", "Acme"), ("Dr. Ana Ruiz", "knows", "Bob")}
    assert [node.distance for node in graph.nodes] == [0, 1, 1]
    assert names(me.neighbours("Ana")) == {"Ana", "Lima"}
    assert me.neighbours("Acme", depth=2) == me.neighbours("entity:acme", 2)
    assert names(me.neighbours("Acme", 2)) == {"Dr. Ana Ruiz", "Acme", "Bob"}
    assert me.neighbours("nobody") == MemoryGraph()


def test_neighbours_has_the_records_that_name_an_entity_and_their_links(me: SyncMemory) -> None:
    note = added(me, "we met Ana")
    answer = added(me, "send flowers", causal_parent_id=note.id)
    graph = me.neighbours("Ana", depth=2)
    assert [node.id for node in graph.nodes] == ["entity:ana", note.id, answer.id]
    assert graph.nodes[1].record == note
    assert triples(graph) == {
        ("we met Ana", "mentions", "Ana"),
        ("send flowers", "derived_from", "we met Ana"),
    }
    assert me.neighbours(note.id).nodes[0].record == note


def test_a_changed_record_changes_its_edges(me: SyncMemory) -> None:
    first, second = added(me, "we met Ana"), added(me, "we met Bob")
    assert names(me.neighbours("Ana")) == {"Ana"}
    me.update(first.id, entities=("Eva",), links=(Link("derived_from", second.id),))
    assert me.neighbours("Ana") == MemoryGraph()
    assert [node.id for node in me.neighbours("Eva", depth=2).nodes] == ["entity:eva", first.id, second.id]


def test_a_relation_holds_in_its_time(me: SyncMemory, clock: SetClock) -> None:
    def year(number: int) -> datetime:
        return datetime(number, 6, 1, tzinfo=UTC)

    old = related(me, "Ana", "works_at", "Acme", valid_from=year(2015), valid_until=year(2019))
    again = related(me, "Ana", "works_at", "Acme", valid_from=year(2024))
    earlier = related(me, "Ana", "works_at", "Acme", valid_from=year(2010), valid_until=year(2011))
    assert len({old.id, again.id, earlier.id}) == 3
    for number, record in ((2012, None), (2018, old), (2020, None), (2025, again), (2010, earlier)):
        edges = me.neighbours("Ana", valid_at=year(number) + timedelta(days=1)).edges
        assert [edge.record for edge in edges] == ([] if record is None else [record.id]), number
    assert [edge.valid_from for edge in me.neighbours("Ana").edges] == [year(2024)]
    me.remember(Relation("Ana", "works_at", "Acme"), valid_until=clock.time)  # it ends now
    assert me.neighbours("Ana") == MemoryGraph()
    assert me.neighbours("Ana", valid_at=clock.time - timedelta(days=1)).edges[0].record == again.id


def test_a_value_held_until_its_successor_did(me: SyncMemory, clock: SetClock) -> None:
    first = added(me, "we live in Berlin")
    start = clock.time
    clock.move(days=10)
    added(me, "we live in Paris", supersedes_id=first.id)
    assert names(me.neighbours("Berlin", valid_at=start)) == {"Berlin"}
    assert me.neighbours("Berlin") == me.neighbours("Berlin", valid_at=clock.time) == MemoryGraph()
    assert me.neighbours("Paris", valid_at=start) == MemoryGraph()
    clock.move(days=10)
    me.delete(added(me, "we moved to Rome").id)
    assert me.neighbours("Rome", valid_at=clock.time) == MemoryGraph()


def test_as_of_shows_the_memory_of_that_time(me: SyncMemory, clock: SetClock) -> None:
    before = clock.time
    clock.move(days=1)
    related(me, "Ana", "works_at", "Acme", valid_from=before - timedelta(days=100))
    then = clock.time
    clock.move(days=1)
    me.delete(me.list()[0].id)
    assert me.neighbours("Ana", as_of=before) == MemoryGraph()
    assert me.neighbours("Ana", valid_at=before) == MemoryGraph()
    assert names(me.neighbours("Ana", as_of=then)) == {"Ana", "Acme"}
    assert names(me.neighbours("Ana", valid_at=before - timedelta(days=1), as_of=then)) == {"Ana", "Acme"}
    assert me.paths("Ana", "Acme", as_of=then).paths
    assert not me.paths("Ana", "Acme").paths


def test_a_trace_leads_to_closed_records_nearest_first(me: SyncMemory) -> None:
    root = added(me, "root")
    middle = added(me, "middle", causal_parent_id=root.id)
    old = added(me, "old leaf")
    leaf = added(me, "leaf", causal_parent_id=middle.id, supersedes_id=old.id)
    me.delete(middle.id)
    steps = me.trace(leaf.id).steps
    assert [(step.record.text, step.depth, step.link) for step in steps] == [
        ("leaf", 0, ""),
        ("middle", 1, "derived_from"),
        ("old leaf", 1, "supersedes"),
        ("root", 2, "derived_from"),
    ]
    assert [step.record.status for step in steps] == ["active", "archived", "superseded", "active"]
    assert steps[3].of == middle.id
    assert [step.record.text for step in me.trace(leaf.id, 1).steps] == ["leaf", "middle", "old leaf"]
    cut = me.trace(leaf.id, limit=2)
    assert (len(cut.steps), cut.complete) == (2, False)
    assert me.trace(leaf.id).complete
    assert [step.record.text for step in me.trace(root.id).steps] == ["root"]
    assert {node.name for node in me.trace_graph(root.id).nodes} == {"root", "middle", "old leaf", "leaf"}
    assert me.trace("nobody").steps == ()
    assert me.trace_graph("nobody") == MemoryGraph()


def test_cycles_are_ordinary(me: SyncMemory) -> None:
    first = added(me, "first")
    second = added(me, "second", causal_parent_id=first.id)
    me.update(first.id, links=(Link("derived_from", second.id), Link("derived_from", first.id)))
    assert [step.record.text for step in me.trace(second.id, depth=10).steps] == ["second", "first"]
    related(me, "Ana", "likes", "Ana")
    related(me, "Ana", "likes", "Bob")
    related(me, "Bob", "likes", "Ana")
    assert names(me.neighbours("Ana", depth=10)) == {"Ana", "Bob"}
    assert [len(path) for path in me.paths("Ana", "Bob", depth=10).paths] == [1, 1]


def test_a_graph_is_cut_at_its_limit(me: SyncMemory) -> None:
    for number in range(30):
        related(me, "Hub", "has", f"Part{number}")
    cut = me.neighbours("Hub", limit=10)
    assert (len(cut.nodes), len(cut.edges), cut.complete) == (10, 9, False)
    assert me.neighbours("Hub", limit=31).complete
    for number in range(30):
        related(me, f"Part{number}", "in", "Box")
    five = me.paths("Hub", "Box", limit=5)
    assert (len(five.paths), five.complete) == (5, False)
    assert len(me.paths("Hub", "Box", limit=100, depth=2).paths) == 30


def test_an_erased_record_is_not_reached(store: SyncStore, me: SyncMemory, clock: SetClock) -> None:
    run = f"run {me.principal.tenant}"
    store.append_events("agent", run, *(new_event(UserMessage(text)) for text in ("one", "two")))
    evidence = (Evidence("agent", run, 1),)
    secret = related(me, "Ana", "hides", "Treasure", evidence=evidence)
    plan = added(me, "dig tomorrow", causal_parent_id=secret.id)
    second = related(me, "Ana", "likes", "Bob", evidence=(*evidence, Evidence("agent", run, 2)))
    assert names(me.neighbours("Ana")) == {"Ana", "Treasure", "Bob"}
    assert [step.record.id for step in me.trace(plan.id).steps] == [plan.id, secret.id]
    store.redact_events("agent", run, [1], reason="wish")
    fresh = SyncMemoryClient(store, clock=clock).of(me.principal)
    for memory in (me, fresh):
        assert names(memory.neighbours("Ana")) == {"Ana", "Bob"}
        assert memory.neighbours("Treasure") == MemoryGraph()
        assert [step.record.id for step in memory.trace(plan.id).steps] == [plan.id]
        assert memory.trace_graph(plan.id).edges == ()
        assert memory.neighbours(plan.id).edges == ()
        assert not memory.paths("Ana", "Treasure").paths
        assert names(memory.neighbours("Ana", valid_at=clock.time)) == {"Ana", "Bob"}
        for exported in (memory.export_graph(), memory.export_graph("ntriples")):
            assert b"reasure" not in exported
            assert b"Bob" in exported
    assert [edge.record for edge in me.neighbours("Bob").edges] == [second.id]
    me.forget(id=second.id)
    assert me.neighbours("Ana") == fresh.neighbours("Ana", as_of=clock.time) == MemoryGraph()


class _WithoutWorkspace(OpenExecution):
    """An execution that denies the workspace."""

    def retrieval_scopes(self, scopes: frozenset[str]) -> frozenset[str]:
        return scopes - {"workspace"}


def test_only_what_the_principal_may_read_is_reached(store: SyncStore, me: SyncMemory, clock: SetClock) -> None:
    stranger = SyncMemoryClient(store, clock=clock).of(somebody())
    foreign = related(stranger, "Ana", "owns", "Yacht")
    shared = related(me, "Ana", "works_at", "Acme", scope="workspace")
    own = added(me, "Ana is busy", causal_parent_id=shared.id)
    me.update(own.id, links=(*own.links, Link("derived_from", foreign.id)))
    assert names(me.neighbours("Ana")) == {"Ana", "Acme"}
    assert names(me.neighbours("Acme", depth=3)) == {"Ana", "Acme"}
    assert [step.record.id for step in me.trace(own.id).steps] == [own.id, shared.id]
    assert names(me.neighbours("Ana", scopes=["user"])) == {"Ana"}
    assert [step.record.id for step in me.trace(own.id, scopes=["user"]).steps] == [own.id]
    assert me.trace(foreign.id).steps == ()
    narrow = SyncMemoryClient(store, clock=clock, execution=_WithoutWorkspace()).of(me.principal)
    assert names(narrow.neighbours("Ana")) == {"Ana"}
    assert narrow.trace(shared.id).steps == ()
    assert b"Acme" not in narrow.export_graph()
    with pytest.raises(MemoryStopped):
        narrow.neighbours("Ana", scopes=["workspace"])


def test_a_relation_survives_an_export_and_an_import(store: SyncStore, me: SyncMemory, clock: SetClock) -> None:
    past: dict[str, Any] = {"valid_from": clock.time - timedelta(days=9), "valid_until": clock.time - timedelta(days=1)}
    related(me, "Ana", "worked_at", "Acme", **past)
    related(me, "Ana", "works_at", "Siemens")
    added(me, "Ana likes tea")
    other = SyncMemoryClient(store, clock=clock).of(somebody())
    other.import_jsonl(me.export_jsonl())
    assert triples(other.neighbours("Ana")) == triples(me.neighbours("Ana"))
    assert other.import_jsonl(me.export_jsonl()).outcomes[0].action == "unchanged"
