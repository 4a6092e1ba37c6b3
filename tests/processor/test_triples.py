"""Tests of triples: a graph that applies the changes holds what memory holds, and nothing that was forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import JsonValue, SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.memory import (
    Episode,
    Evidence,
    Fact,
    Link,
    Principal,
    Relation,
    Source,
    SyncMemory,
    SyncMemoryClient,
    UnknownKind,
)
from agent_memory_log.processor import GraphChanges, Loop, SyncLoopMemory, Triple
from tests.memory.stores import SetClock, somebody
from tests.processor.runs import stored


class Graph:
    """A graph that a receiver of the changes keeps."""

    def __init__(self) -> None:
        self.triples: set[Triple] = set()
        self.known: Mapping[str, datetime] = {}

    def apply(self, changes: GraphChanges) -> None:
        deleted = {triple.context for triple in changes.delete}
        self.triples = {triple for triple in self.triples if triple.context not in deleted} | set(changes.add)
        self.known = changes.records


class Parts(msgspec.Struct, frozen=True):
    """The parts of one test."""

    store: SyncStore
    loop: Loop
    memory: SyncMemory
    loops: SyncLoopMemory
    clock: SetClock


def parts(store: SyncStore) -> Parts:
    principal = somebody(user="42")
    clock = SetClock()
    client = SyncMemoryClient(store, clock=clock)
    return Parts(
        store, Loop("coder", "run", principal), client.of(principal), SyncLoopMemory(store, client, clock=clock), clock
    )


def owner(loop: Loop) -> str:
    return f"{loop.principal.tenant}/user/42"


def test_records_become_triples_of_three_levels() -> None:
    with open_sync_store("memory:") as store:
        setup = parts(store)
        language = setup.memory.remember(
            key="Language", value="english", source=Source("run", "coder/run"), confidence=0.9
        )
        setup.memory.remember(Fact("home.town", "Oslo"))
        setup.memory.remember(Episode("task_result"), text="Fixed the cache.")
        setup.memory.remember(Relation("Ana", "works at", "Acme"))
        triples = {triple.predicate: triple for triple in setup.loops.graph_changes(setup.loop).add}
        assert {(triple.subject, name, triple.object) for name, triple in triples.items()} == {
            (owner(setup.loop), "agent.preference.language", "english"),
            (owner(setup.loop), "agent.fact.home_town", "Oslo"),
            (owner(setup.loop), "agent.episode.task_result", "Fixed the cache."),
            ("Ana", "agent.relation.works_at", "Acme"),
        }
        triple = triples["agent.preference.language"]
        assert language.record is not None
        assert (triple.source, triple.confidence, triple.timestamp, triple.context) == (
            "run:coder/run",
            0.9,
            setup.clock.time,
            language.record.id,
        )
        assert triples["agent.fact.home_town"].source == "user"


def test_no_memory_speaks_for_the_owner_of_another_memory() -> None:
    with open_sync_store("memory:") as store:
        setup = parts(store)
        victim = owner(setup.loop)
        forged: dict[str, JsonValue] = {"subject": victim, "predicate": "prefers", "object": "it"}
        mallory = Loop("coder", "run", somebody(user="mallory"))
        memory = SyncMemoryClient(store).of(mallory.principal)
        memory.remember(UnknownKind("note2", forged), text="x")
        memory.remember(Relation(victim, "prefers", victim))
        note, relation = setup.loops.graph_changes(mallory).add
        assert note.subject == f"{mallory.principal.tenant}/user/mallory"
        assert relation.subject == relation.object == victim.replace("/", "%2F")


NAMES = st.text(alphabet="aé/%25F.", min_size=1, max_size=8).filter(lambda name: not name.isspace())


@given(NAMES, NAMES, NAMES, NAMES)
def test_entities_and_owners_have_different_nodes(first: str, second: str, tenant: str, user: str) -> None:
    nodes: list[str] = []
    with open_sync_store("memory:") as store:
        loop = Loop("coder", "run", Principal(tenant, {"user": user}))
        memory = SyncMemoryClient(store).of(loop.principal)
        memory.remember(Relation(first, "knows", second))
        memory.remember(Fact("town", "Oslo"))
        for triple in SyncLoopMemory(store, SyncMemoryClient(store)).graph_changes(loop).add:
            nodes += [triple.subject] if triple.object == "Oslo" else [triple.subject, triple.object]
    assert len(set(nodes)) == 2 + (first != second)


@pytest.mark.parametrize("name", ["AC/DC", "50 %", "100%", "/etc/hosts", "https://acme.com", "a/b/c/d"])
def test_names_stay_readable_in_the_graph(name: str) -> None:
    with open_sync_store("memory:") as store:
        setup = parts(store)
        setup.memory.remember(Relation(name, "knows", "Ana"))
        (triple,) = setup.loops.graph_changes(setup.loop).add
        assert triple.subject == name


@pytest.mark.parametrize("alias", ["Acme-Corp.", "acme corp", "ACME-CORP", "Acmé-Corp", "Acme"])
def test_aliases_of_an_entity_find_its_memories(alias: str) -> None:
    with open_sync_store("memory:") as store:
        setup = parts(store)
        setup.memory.remember(Relation("Ana", "works at", "Acme-Corp."))
        is_alias = bool(setup.memory.neighbours(alias).edges)
        assert is_alias or alias in ("acme corp", "Acme")
        assert ("Ana works at" in setup.loops.hydrate_for_entities(setup.loop, [alias], 0).text) == is_alias


@given(st.text(max_size=80).filter(lambda key: key.strip()))
def test_every_predicate_has_three_levels(key: str) -> None:
    with open_sync_store("memory:") as store:
        setup = parts(store)
        setup.memory.remember(UnknownKind("my.kind", {"key": key, "value": "x"}), text="x")
        for triple in setup.loops.graph_changes(setup.loop).add:
            levels = triple.predicate.split(".")
            assert len(levels) == 3
            assert all(level and level.replace("_", "a").isalnum() for level in levels)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "forget", "delete", "erase", "wait"]), st.integers(0, 3), st.sampled_from("xyz")
    ),
    max_size=12,
)


@given(_STEPS)
def test_a_graph_that_applies_the_changes_holds_what_memory_holds(steps: list[tuple[str, int, str]]) -> None:
    with open_sync_store("memory:") as store:
        setup = parts(store)
        graph = Graph()
        for number, (step, key, value) in enumerate(steps, 1):
            take(setup, step, f"key{key}", value, number)
            changes = setup.loops.graph_changes(setup.loop, graph.known)
            graph.apply(changes)
            assert graph.triples == set(setup.loops.graph_changes(setup.loop).add)
            assert {triple.context for triple in graph.triples} == {record.id for record in setup.memory.list()}
            again = setup.loops.graph_changes(setup.loop, graph.known)
            assert (again.add, again.delete) == ((), ())


def take(setup: Parts, step: str, key: str, value: str, number: int) -> None:
    """Take a step: remember, forget, archive, erase the evidence of a key, or let time pass."""
    record = setup.memory.get(key=key)
    if step == "set":
        stored(setup.store, [new_event(UserMessage(f"{key} is {value}"))], setup.loop)
        evidence = Evidence(
            setup.loop.agent, setup.loop.run, setup.store.load_run(setup.loop.agent, setup.loop.run).version
        )
        setup.memory.remember(key=key, value=value, evidence=[evidence], ttl_days=3)
    elif step == "forget":
        setup.memory.forget(key=key)
    elif step == "delete" and record is not None:
        setup.memory.delete(record.id)
    elif step == "erase" and record is not None:
        setup.store.redact_events(setup.loop.agent, setup.loop.run, [item.seq for item in record.evidence])
    elif step == "wait":
        setup.clock.move(days=1)
    setup.clock.move(seconds=number)


def test_a_deletion_holds_no_word_of_the_record() -> None:
    with open_sync_store("memory:") as store:
        setup = parts(store)
        setup.memory.remember(key="fruit", value="tangerine", links=[Link("about", "x")])
        in_graph = setup.loops.graph_changes(setup.loop).records
        setup.memory.forget(key="fruit")
        changes = setup.loops.graph_changes(setup.loop, in_graph)
        assert changes.add == ()
        (deletion,) = changes.delete
        assert [deletion.context] == list(in_graph)
        assert "tangerine" not in str(deletion)
        assert "fruit" not in str(deletion)


def test_a_changed_record_is_deleted_and_added() -> None:
    with open_sync_store("memory:") as store:
        setup = parts(store)
        record = setup.memory.remember(key="fruit", value="tangerine").record
        assert record is not None
        in_graph = setup.loops.graph_changes(setup.loop).records
        setup.clock.move(days=1)
        setup.memory.update(record.id, confidence=0.1)
        changes = setup.loops.graph_changes(setup.loop, in_graph)
        assert [triple.context for triple in changes.delete] == [record.id]
        assert [(triple.context, triple.confidence) for triple in changes.add] == [(record.id, 0.1)]


def test_a_triple_is_json_of_the_contract() -> None:
    triple = Triple("a", "agent.x.y", "o", "user", datetime.fromisoformat("2026-11-22T09:00:00Z"), 0.5)
    assert msgspec.json.decode(msgspec.json.encode(triple)) == {
        "subject": "a",
        "predicate": "agent.x.y",
        "object": "o",
        "source": "user",
        "timestamp": "2026-11-22T09:00:00Z",
        "confidence": 0.5,
    }


@pytest.mark.parametrize("scopes", [("user",), ("user", "workspace")])
def test_triples_name_the_owner_of_each_scope(scopes: tuple[str, ...]) -> None:
    with open_sync_store("memory:") as store:
        principal = somebody(**{scope: f"{scope} 1" for scope in scopes})
        client = SyncMemoryClient(store)
        for scope in scopes:
            client.of(principal).remember(key="name", value=scope, scope=scope)
        added = SyncLoopMemory(store, client).graph_changes(Loop("coder", "run", principal)).add
        assert [triple.subject for triple in added] == [f"{principal.tenant}/{scope}/{scope} 1" for scope in scopes]
