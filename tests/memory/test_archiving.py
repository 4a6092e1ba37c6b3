"""A deleted memory is archived and can be restored; a forgotten one cannot."""

from __future__ import annotations

import pytest

from agent_memory_log import UserMessage, new_event
from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.memory import Extraction, Link, RunSlice, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.memory.policy.rules import MemoryPolicy
from agent_memory_log.memory.records.messages import ConversationTurn
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


def _remembered(me: SyncMemory, key: str = "language", value: str = "english") -> str:
    record = me.remember(key=key, value=value).record
    assert record is not None
    return record.id


def _finds(me: SyncMemory, word: str) -> bool:
    return any(hit.record is not None and word in hit.text for hit in me.search(word, top_k=20))


def test_a_deleted_memory_is_found_by_no_call_until_it_is_restored(open_memory_store: OpenStore) -> None:
    me = SyncMemoryClient(open_memory_store()).of(somebody())
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    record = _remembered(me)
    assert _finds(other, "english")
    outcome = me.delete(record)
    assert (outcome.action, outcome.reason) == ("archived", "deleted")
    for memory in (me, other):
        assert memory.get(id=record) is None
        assert memory.get(key="language") is None
        assert not _finds(memory, "english")
        assert "english" not in memory.context("language").text
        assert [old.id for old in memory.list(status="archived")] == [record]
    restored = other.restore(record)
    assert restored.action == "written"
    assert restored.record is not None
    assert restored.record.links == (Link("restores", record),)
    for memory in (me, other):
        current = memory.get(key="language")
        assert current is not None
        assert (current.value, current.id) == ("english", restored.record.id)
        assert _finds(memory, "english")


def test_a_repeated_call_changes_nothing(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    record = _remembered(me)
    me.delete(record)
    assert (me.delete(record).action, me.delete(record).reason) == ("unchanged", "archived")
    first = me.restore(record)
    events = me.stats().events
    again = me.restore(record)
    assert again.action == "unchanged"
    assert again.record == first.record
    assert me.stats().events == events


def test_only_an_archived_record_can_be_restored(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = SyncMemoryClient(open_memory_store(), clock=clock).of(somebody())
    record = _remembered(me)
    assert me.restore(record).action == "unchanged"
    me.update(record, value="german")
    with pytest.raises(InvalidArgument, match="its status is superseded"):
        me.restore(record)
    assert (me.delete(record).action, me.delete(record).reason) == ("unchanged", "superseded")
    for call in (me.delete, me.restore):
        with pytest.raises(InvalidArgument, match="there is no record with the id 'unknown'"):
            call("unknown")
    short = me.remember(key="plan", value="trial", ttl_days=1).record
    assert short is not None
    clock.move(days=2)
    with pytest.raises(InvalidArgument, match="its status is expired"):
        me.restore(short.id)


def test_a_newer_value_stays(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = SyncMemoryClient(open_memory_store(), clock=clock).of(somebody())
    record = _remembered(me)
    me.delete(record)
    clock.move(minutes=1)
    _remembered(me, value="german")
    assert me.restore(record).action == "outdated"
    current = me.get(key="language")
    assert current is not None
    assert current.value == "german"


def test_a_user_cannot_archive_the_memory_of_another(open_memory_store: OpenStore) -> None:
    client = SyncMemoryClient(open_memory_store())
    me, other = client.of(somebody()), client.of(somebody())
    record = _remembered(me)
    with pytest.raises(InvalidArgument, match="there is no record"):
        other.delete(record)
    me.delete(record)
    with pytest.raises(InvalidArgument, match="there is no record"):
        other.restore(record)


def test_a_forgotten_memory_is_not_restored(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    run = f"run {me.principal.tenant}"
    store.append_events("agent", run, new_event(UserMessage("language=english")))
    (outcome,) = me.derive("agent", run).outcomes
    assert outcome.record is not None
    me.delete(outcome.record.id)
    me.forget(id=outcome.record.id)
    with pytest.raises(InvalidArgument, match="there is no record"):
        me.restore(outcome.record.id)


def test_an_archived_memory_falls_with_its_evidence(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    run = f"run {me.principal.tenant}"
    store.append_events("agent", run, new_event(UserMessage("language=english")))
    (outcome,) = me.derive("agent", run).outcomes
    assert outcome.record is not None
    me.delete(outcome.record.id)
    store.redact_events("agent", run, [1])
    with pytest.raises(InvalidArgument, match="there is no record"):
        me.restore(outcome.record.id)


def test_a_restored_memory_passes_the_policy(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    record = _remembered(me)
    me.delete(record)
    strict = SyncMemoryClient(store, policy=MemoryPolicy(allowed_keys=frozenset({"tone"}))).of(me.principal)
    with pytest.raises(MemoryStopped):
        strict.restore(record)
    assert me.get(key="language") is None


CHAT = (
    ("user", "Please answer in German from now on."),
    ("assistant", "Gern."),
    ("user", "Thanks."),
    ("assistant", "Bitte."),
    ("user", "Please always answer briefly."),
)


def _turns(*turns: tuple[str, str]) -> tuple[ConversationTurn, ...]:
    return tuple(ConversationTurn(role, text) for role, text in turns)  # type: ignore[arg-type]  # tests pass wrong roles too


def test_a_conversation_is_stored_once_and_learned_from(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=RuleExtractor()).of(somebody())
    first = me.ingest(_turns(*CHAT[:4]), "chat")
    assert [outcome.action for outcome in first.outcomes] == ["written"]
    again = me.ingest(_turns(*CHAT), "chat")
    assert again.position == 5
    assert [outcome.action for outcome in again.outcomes] == ["written"]
    assert me.ingest(_turns(*CHAT), "chat").outcomes == ()
    me.ingest(_turns(("assistant", "Ja.")), "chat", first_turn=5)
    run = store.load_run(first.agent, "chat")
    assert [event.data.to_map()["message"] for event in run.log] == [*(text for _, text in CHAT), "Ja."]
    assert any(hit.message is not None and "German" in hit.text for hit in me.search("German"))


def test_a_short_conversation_is_read_by_each_call(open_memory_store: OpenStore) -> None:
    class Failing:
        name = "failing"
        fails = True

        def extract(self, new: RunSlice, /) -> Extraction:
            if self.fails:
                raise OSError("no model")
            return RuleExtractor().extract(new)

    extractor = Failing()
    me = SyncMemoryClient(open_memory_store(), extractor=extractor).of(somebody())
    failed = me.ingest(_turns(("user", "I live in Leeds.")), "chat")
    assert failed.status == "stopped"
    extractor.fails = False
    assert [outcome.action for outcome in me.derive(failed.agent, failed.run).outcomes] == ["written"]
    assert [[outcome.action for outcome in report.outcomes] for report in me.rederive()] == [["unchanged"]]


def test_another_turn_at_the_same_place_is_refused(open_memory_store: OpenStore) -> None:
    me = SyncMemoryClient(open_memory_store(), extractor=RuleExtractor()).of(somebody())
    me.ingest(_turns(*CHAT), "chat")
    with pytest.raises(InvalidArgument, match=r"turns\[1\] differs from the turn that is stored"):
        me.ingest(_turns(CHAT[0], ("assistant", "Something else.")), "chat")
    with pytest.raises(InvalidArgument, match="role must be one of user, assistant"):
        me.ingest(_turns(("system", "Obey.")), "other")
    for name in ("", "x" * 513):
        with pytest.raises(InvalidArgument, match="source_id must be"):
            me.ingest(_turns(*CHAT), name)


def test_conversations_of_two_users_are_two_runs(open_memory_store: OpenStore) -> None:
    client = SyncMemoryClient(open_memory_store(), extractor=RuleExtractor())
    me, other = client.of(somebody()), client.of(somebody())
    mine = me.ingest(_turns(("user", "I prefer tea.")), "chat")
    assert mine.agent != other.ingest(_turns(("user", "I prefer coffee.")), "chat").agent
    assert not _finds(other, "tea")
    assert not any(hit.message is not None and "tea" in hit.text for hit in other.search("tea"))


def test_nothing_is_stored_without_an_extractor(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    before = len(store.list_runs(limit=1_000).runs)
    with pytest.raises(InvalidArgument, match="there is no extractor"):
        me.ingest(_turns(*CHAT), "chat")
    assert len(store.list_runs(limit=1_000).runs) == before
