"""Tests ``health``, ``audit_events`` and ``evolution_events``."""

from __future__ import annotations

from typing import Any

from agent_memory_log import SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Candidate, Episode, Evidence, Fact, Preference, Record, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.extraction.merger import ModelMerger
from agent_memory_log.models import ScriptedModel
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url
from tests.memory.test_search_vectors import Meaning

__all__ = ["open_memory_store", "store_url"]


def opened(store: SyncStore, **hooks: Any) -> tuple[SyncMemory, SetClock]:
    clock = SetClock()
    return SyncMemoryClient(store, clock=clock, extractor=SaidPreferences(), **hooks).of(somebody(user="1")), clock


def test_health_counts_what_needs_attention(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store)
    store.append_events("agent", "run", new_event(UserMessage("language=english")), new_event(UserMessage("hello")))
    me.derive("agent", "run")
    store.append_events("agent", "run", new_event(UserMessage("tone=dry")))
    me.write([Candidate(Episode("error"), text="dull", importance=0)])
    me.write([Candidate(Fact("yes", "I love jazz")), Candidate(Fact("no", "I hate jazz"))])
    me.write([Candidate(Preference("password", "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2))])
    health = me.health()
    assert health.active == {"episode": 1, "fact": 2, "preference": 1}
    assert health.layers == {"working": 4}
    assert (health.weak, health.conflicts_open, health.runs) == (0, 1, 1)
    assert (health.runs_behind, health.events_behind) == (1, 1)
    assert sum(health.blocked.values()) == 1
    assert (health.maintained_at, health.maintenance_open, health.with_vectors) == (None, False, None)
    clock.move(days=70)
    me.derive("agent", "run")
    assert me.health().weak == 1
    me.maintain(limit=1)
    assert me.health().maintenance_open
    me.maintain()
    health = me.health()
    assert (health.weak, health.events_behind, health.maintenance_open) == (0, 0, False)
    assert health.maintained_at == clock.time
    assert health.closed == {"archived": 1}
    assert me.forget_all().records
    assert me.health().active == {}
    store.append_events("agent", "run", new_event(UserMessage("tone=kind")))
    assert (me.health().runs_behind, me.health().events_behind) == (1, 1)
    store.delete_run("agent", "run")  # nothing is left to read
    assert (me.health().runs_behind, me.health().events_behind) == (0, 0)


def test_health_shows_how_much_search_has_read(open_memory_store: OpenStore) -> None:
    me, _ = opened(open_memory_store(), embedder=Meaning(tokens=True))
    assert me.health().indexed is None
    me.remember(key="pet", value="a puppy")
    assert (me.health().indexed, me.health().with_vectors) == (0, None)
    me.search("hound")
    assert (me.health().indexed, me.health().with_vectors) == (1, 1)
    me.remember(key="tone", value="dry")
    assert (me.health().indexed, me.health().with_vectors) == (0.5, 0.5)


def test_health_leaves_out_the_vectors_of_expired_records(open_memory_store: OpenStore) -> None:
    me, clock = opened(open_memory_store(), embedder=Meaning(tokens=True))
    me.remember(key="pet", value="a puppy", ttl_days=1)
    me.search("hound")
    clock.move(days=2)
    assert me.health().with_vectors is None
    me.remember(key="tone", value="dry")
    me.search("hound")
    assert me.health().with_vectors == 1


def test_the_audit_has_every_change_and_no_value(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store)
    store.append_events("agent", "run", new_event(UserMessage("language=value1")))
    me.derive("agent", "run")
    clock.move(minutes=1)
    me.remember(key="language", value="value2")
    me.remember(key="language", value="value2")
    record = me.get(key="language")
    assert record is not None
    me.update(record.id, importance=1)
    me.context("language")
    me.delete(record.id)
    me.note_stop("too_long", phase="capture", key="tone")
    me.maintain()
    changes = me.audit_events()
    assert [change.action for change in changes][::-1] == [
        "remembered",
        "derived",
        "remembered",
        "closed",
        "restated",
        "changed",
        "used",
        "closed",
        "stopped",
        *["maintained"] * 4,
    ]
    by_action = {change.action: change for change in reversed(changes)}
    assert by_action["remembered"].by == "user"
    assert by_action["derived"].reason == "run agent/run up to 1"
    assert (by_action["changed"].reason, by_action["changed"].key) == ("importance", "language")
    assert by_action["closed"].reason == "archived: deleted"
    assert (by_action["stopped"].key, by_action["stopped"].reason) == ("tone", "too_long")
    assert "value" not in str(changes)
    assert me.audit_events(limit=2) == changes[:2]
    assert me.audit_events(since=clock.time) == tuple(change for change in changes if change.time >= clock.time)
    assert {change.action for change in me.audit_events(until=clock.time)} == {"remembered", "derived"}


def test_the_audit_names_nothing_that_was_forgotten_or_lost_its_evidence(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, _ = opened(store)
    seq = store.append_events("agent", "run", new_event(UserMessage("secretkey=value"))).version
    me.derive("agent", "run")
    me.remember(key="hiddenkey", value="v")
    me.forget(key="hiddenkey")
    blocked = Candidate(
        Preference("blockedkey", "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2), evidence=(Evidence("agent", "run", seq),)
    )
    me.write([blocked])
    assert "secretkey" in str(me.audit_events())
    assert "blockedkey" in str(me.audit_events())
    (record,) = me.list()
    store.redact_events("agent", "run", [seq])
    for client in (me, SyncMemoryClient(store).of(me.principal)):
        changes = str(client.audit_events())
        assert not any(word in changes for word in ("secretkey", "hiddenkey", "blockedkey", record.id))
        assert client.evolution_events(record.id) is None


def test_a_story_goes_back_to_the_records_that_a_record_was_made_from(open_memory_store: OpenStore) -> None:
    me, clock = opened(open_memory_store())
    first = me.remember(key="city", value="Bern").record
    clock.move(days=1)
    me.context("city")
    second = me.remember(key="city", value="Basel").record
    clock.move(days=1)
    assert first is not None
    assert second is not None
    me.delete(second.id)
    clock.move(days=1)
    third = me.restore(second.id).record
    assert third is not None
    story = me.evolution_events(third.id)
    assert story is not None
    assert story.sources == (second.id, first.id)
    assert [(step.record, step.text) for step in story.events] == [
        (first.id, 'remembered "city: Bern" from user'),
        (first.id, "put into a context once"),
        (second.id, 'remembered "city: Basel" from user; replaces "city: Bern"'),
        (first.id, 'superseded by "city: Basel"'),
        (second.id, "archived (deleted)"),
        (third.id, 'remembered "city: Basel" from user; brings back "city: Basel"'),
    ]
    assert [step.time for step in story.events] == sorted(step.time for step in story.events)
    assert me.evolution_events("unknown") is None


def test_a_story_names_a_merged_record_once(open_memory_store: OpenStore) -> None:
    class Both:
        def merge(self, record: Record, candidate: Candidate, /) -> str:
            return f"{record.value} and {candidate.value}"

    me, _ = opened(open_memory_store(), merger=Both())
    first, second = (me.remember(key="city", value=value).record for value in ("Bern", "Basel"))
    assert first is not None
    assert second is not None
    story = me.evolution_events(second.id)
    assert story is not None
    assert story.sources == (first.id,)


def test_a_model_writes_the_summary() -> None:
    model = ScriptedModel(['{"summary": "Atlas has problems."}'])
    me, clock = opened(open_sync_store("memory:"), merger=ModelMerger(model))
    for text in ("Atlas failed.", "Atlas is slow.", "Atlas is old."):
        me.remember(Episode("discovery"), text=text, entities=["Atlas"])
    clock.move(days=31)
    assert len(me.maintain().consolidated) == 1
    assert [record.text for record in me.list()] == ["Atlas has problems."]
