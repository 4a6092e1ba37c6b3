"""Consent: without it nothing is stored, and a withdrawal forgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.memory import (
    Candidate,
    Episode,
    Evidence,
    Fact,
    Outcome,
    Preference,
    SyncMemory,
    SyncMemoryClient,
    UnknownKind,
    stream_of,
)
from agent_memory_log.memory.policy import MemoryExecution, MemoryPolicy
from agent_memory_log.memory.records.kinds import Consent, fold_key
from agent_memory_log.memory.records.messages import ConversationTurn
from agent_memory_log.memory.records.principals import STREAM_RUN
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

SECRET = "marzipan"


def me_in(open_memory_store: OpenStore, **options: Any) -> SyncMemory:
    return SyncMemoryClient(open_memory_store(), extractor=SaidPreferences(), **options).of(somebody())


def statuses(me: SyncMemory) -> Mapping[str, str]:
    """Return the status of each consent by its key."""
    return {record.key: record.value for record in me.list(kinds=["consent"])}


def stored(me: SyncMemory) -> set[str]:
    """Return the texts of all records except consents."""
    return {record.text for record in me.list() if record.kind != "consent"}


def test_asked_blocks_given_allows_and_withdrawn_forgets(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    me.remember(key="sweet", value="nougat")
    outcome = me.ask_consent("preference", "sweet")
    assert (outcome.action, outcome.kind, outcome.record and outcome.record.value) == ("written", "consent", "asked")
    assert stored(me) == {"sweet: nougat"}, "asking forgets nothing"
    blocked = me.remember(key="sweet", value=SECRET)
    assert (blocked.action, blocked.reason, blocked.record) == ("blocked", "consent_asked", None)
    assert me.give_consent("preference", "Sweet ").action == "written"
    assert me.remember(key="sweet", value=SECRET).action == "written"
    assert me.remember(key="drink", value="tea").action == "written"
    report = me.withdraw_consent("preference", "sweet")
    assert report.records == 2
    assert stored(me) == {"drink: tea"}
    assert me.history("sweet", kind="preference") == ()
    assert me.remember(key="SWEET", value=SECRET).reason == "consent_withdrawn"
    assert statuses(me) == {"preference/sweet": "withdrawn"}
    assert SECRET not in repr(store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).log)
    assert me.rebuild().equal


def test_a_consent_for_a_key_comes_before_that_for_its_kind(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store)
    me.ask_consent("fact")
    me.give_consent("fact", "name")
    assert me.remember(key="name", value="Ada", kind="fact").action == "written"
    assert me.remember(key="age", value="36", kind="fact").reason == "consent_asked"
    assert me.remember(key="age", value="36").action == "written", "a preference is another kind"
    me.withdraw_consent("fact", "name")
    me.give_consent("fact")
    assert me.remember(key="name", value="Ada", kind="fact").reason == "consent_withdrawn"
    assert me.remember(key="age", value="36", kind="fact").action == "written"


def test_a_withdrawal_for_a_kind_forgets_records_with_and_without_keys(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store)
    me.remember(Episode("error"), text="one")
    me.remember(Episode("error"), text="two")
    me.remember(key="drink", value="tea")
    me.remember(UnknownKind("health/%", {"key": "a/b", "value": "x"}))
    assert me.withdraw_consent("episode").records == 2
    assert me.remember(Episode("error"), text="three").reason == "consent_withdrawn"
    assert me.withdraw_consent("health/%", "a/b").records == 1
    assert stored(me) == {"drink: tea"}
    assert me.withdraw_consent("episode").records == 0, "it may be repeated"


def test_a_withdrawal_reaches_the_records_that_repeat_the_value(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = me_in(open_memory_store, clock=clock)
    for key in ("travel.seat", "travel.meal"):
        me.remember(key=key, value=f"{SECRET} {key}")
    clock.move(days=5)
    assert len(me.maintain(profile_tokens=1, weak_below=0).consolidated) == 1
    me.withdraw_consent("preference", "travel.seat")
    assert f"{SECRET} travel.seat" not in me.export_jsonl().decode()
    me.maintain(profile_tokens=100, weak_below=0)
    assert stored(me) == {f"travel.meal: {SECRET} travel.meal"}


def test_asking_again_takes_back_no_given_consent(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store)
    me.give_consent("fact")
    again = me.ask_consent("fact")
    assert (again.action, again.record and again.record.value) == ("unchanged", "given")
    assert me.give_consent("fact").action == "unchanged"
    me.withdraw_consent("fact")
    assert me.ask_consent("fact").action == "written"
    assert statuses(me) == {"fact/": "asked"}


def test_consents_of_a_scope_and_of_others_are_apart(open_memory_store: OpenStore) -> None:
    client = SyncMemoryClient(open_memory_store())
    me, other = client.of(somebody()), client.of(somebody())
    me.withdraw_consent("preference")
    assert me.remember(key="drink", value="tea").action == "blocked"
    assert me.remember(key="drink", value="tea", scope="workspace").action == "written"
    assert other.remember(key="drink", value="tea").action == "written"
    with pytest.raises(MemoryStopped, match="team"):
        me.give_consent("preference", scope="team")


def _derive(me: SyncMemory) -> list[Outcome]:
    me._store.get().append_events("chat", me.principal.tenant, new_event(UserMessage(f"sweet={SECRET}")))
    return list(me.derive("chat", me.principal.tenant).outcomes)


def _import(me: SyncMemory) -> list[Outcome]:
    source = SyncMemoryClient(open_sync_store(f"memory:{me.principal.tenant}")).of(me.principal)
    source.remember(key="sweet", value=SECRET)
    return list(me.import_jsonl(source.export_jsonl()).outcomes)


def _update(me: SyncMemory) -> list[Outcome]:
    (record,) = me.list(kinds=["preference"])
    return [me.update(record.id, value=SECRET), me.update(record.id, text=SECRET)]


def _restore(me: SyncMemory) -> list[Outcome]:
    (record,) = me.list(kinds=["preference"])
    me.delete(record.id)
    return [me.restore(record.id)]


WAYS: Mapping[str, Callable[[SyncMemory], list[Outcome]]] = {
    "remember": lambda me: [me.remember(key="sweet", value=SECRET)],
    "write": lambda me: list(me.write([Candidate(Preference("sweet", SECRET))]).outcomes),
    "write as import": lambda me: list(me.write([Candidate(Preference("sweet", SECRET))], origin="import").outcomes),
    "the same value": lambda me: [me.remember(key="sweet", value="nougat")],
    "derive": _derive,
    "ingest": lambda me: list(me.ingest([ConversationTurn("user", f"sweet={SECRET}")], "chat").outcomes),
    "import": _import,
    "update": _update,
    "restore": _restore,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", ["sweet", ""])
def test_no_way_leads_around_consent(open_memory_store: OpenStore, way: str, key: str) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    me.remember(key="sweet", value="nougat")
    me.ask_consent("preference", key)
    outcomes = WAYS[way](me)
    assert {(outcome.action, outcome.reason) for outcome in outcomes} == {("blocked", "consent_asked")}
    assert outcomes
    assert SECRET not in repr(store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).log)
    assert me.stats().blocked == {"consent_asked": len(outcomes)}


WRONG: Mapping[str, Callable[[SyncMemory], list[Outcome]]] = {
    "remember": lambda me: [me.remember(Consent("fact", "", "given"))],
    "a map": lambda me: [
        me.remember(UnknownKind("consent", {"about_kind": "fact", "about_key": "", "status": "given"}))
    ],
    "write": lambda me: list(me.write([Candidate(Consent("fact", "", "given"))]).outcomes),
    "update": lambda me: [me.update(me.list(kinds=["consent"])[0].id, ttl_days=1)],
}


@pytest.mark.parametrize("way", WRONG)
def test_only_the_calls_for_consent_change_it(open_memory_store: OpenStore, way: str) -> None:
    me = me_in(open_memory_store)
    me.withdraw_consent("fact")
    (outcome,) = WRONG[way](me)
    assert (outcome.action, outcome.reason) == ("blocked", "consent_by_its_own_calls_only")
    assert statuses(me) == {"fact/": "withdrawn"}


def test_a_consent_survives_deletion_and_forgetting(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store)
    me.give_consent("preference", "drink")
    me.withdraw_consent("fact")
    (first, second) = me.list(kinds=["consent"])
    me.remember(key="drink", value="tea")
    for record in (first, second):
        assert me.delete(record.id).action == "unchanged"
        assert me.forget(id=record.id).records == 0
        assert me.forget(key=record.key).records == 0
    assert me.forget_all().records == 1
    assert stored(me) == set()
    assert statuses(me) == {"preference/drink": "given", "fact/": "withdrawn"}
    assert me.rebuild().equal
    assert me.remember(key="name", value="Ada", kind="fact").reason == "consent_withdrawn"
    assert SyncMemoryClient(open_memory_store()).of(me.principal).list() == me.list()


def test_an_export_has_consents_and_the_newest_wins(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    client = SyncMemoryClient(open_memory_store(), clock=clock)
    source, target = client.of(somebody()), client.of(somebody())
    source.give_consent("fact")
    export = source.export_jsonl()
    clock.move(days=1)
    source.withdraw_consent("fact")
    clock.move(days=1)
    target.import_jsonl(source.export_jsonl())
    assert statuses(target) == {"fact/": "withdrawn"}
    (outcome,) = target.import_jsonl(export).outcomes
    assert outcome.action == "outdated"
    assert statuses(target) == {"fact/": "withdrawn"}


def test_an_imported_consent_does_not_end_and_does_not_fall_with_evidence(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    store = open_memory_store()
    me = SyncMemoryClient(store, clock=clock).of(somebody())
    agent = f"agent {me.principal.tenant}"
    store.append_events(agent, "run", new_event(UserMessage("forget my health")))
    withdrawn = Candidate(
        Consent("fact", "", "withdrawn"),
        valid_until=clock.time + timedelta(days=1),
        evidence=(Evidence(agent, "run", 1),),
    )
    me.write([withdrawn], origin="import")
    store.redact_events(agent, "run", [1])
    clock.move(days=2)
    me.maintain()
    me.purge()
    assert statuses(me) == {"fact/": "withdrawn"}
    assert me.remember(key="health", value="asthma", kind="fact").reason == "consent_withdrawn"


def test_a_consent_is_not_told_to_a_model(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store)
    me.give_consent("preference", "drink")
    me.remember(key="drink", value="tea")
    assert "consent" not in me.context("what do I drink?").text
    assert me.search("consent to remember") == ()


@pytest.mark.parametrize("kind", ["", "  ", "consent", "message", "k" * 513])
def test_wrong_kinds_are_refused(open_memory_store: OpenStore, kind: str) -> None:
    me = me_in(open_memory_store)
    for call in (me.ask_consent, me.give_consent, me.withdraw_consent):
        with pytest.raises(InvalidArgument, match=r"^kind must"):
            call(kind)
        with pytest.raises(InvalidArgument, match=r"^key must"):
            call("fact", "k" * 513)
    assert me.list() == ()


def test_redactor_and_execution_check_a_consent_and_the_policy_of_keys_does_not(open_memory_store: OpenStore) -> None:
    policy = MemoryPolicy(allowed_keys=frozenset({"drink"}))
    me = me_in(open_memory_store, policy=policy, execution=MemoryExecution(denied_scopes=frozenset({"workspace"})))
    with pytest.raises(MemoryStopped, match="redactor"):
        me.give_consent("fact", "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2)
    with pytest.raises(MemoryStopped, match="scope_denied_execution"):
        me.give_consent("fact", scope="workspace")
    assert me.list() == ()
    assert me.give_consent("preference", "sweet").action == "written"


KEYS = st.sampled_from(["", "a", "A ", "b", "a/b", "%2F"])
KINDS = st.sampled_from(["fact", "preference"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "give", "withdraw", "remember", "forget_all"]), KINDS, KEYS), max_size=12
)


@given(STEPS)
def test_stored_memories_follow_the_consents(steps: list[tuple[str, str, str]]) -> None:
    """Compare each step with a model: the consent of the key decides, then that of the kind."""
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody())
        consents: dict[tuple[str, str], str] = {}
        values: set[tuple[str, str]] = set()
        for name, kind, key in steps:
            place = (kind, fold_key(key))
            match name:
                case "ask":
                    me.ask_consent(kind, key)
                    if consents.get(place) != "given":
                        consents[place] = "asked"
                case "give":
                    me.give_consent(kind, key)
                    consents[place] = "given"
                case "withdraw":
                    me.withdraw_consent(kind, key)
                    consents[place] = "withdrawn"
                    values = {(k, v) for k, v in values if k != kind or place[1] not in ("", v)}
                case "remember":
                    data = (Fact if kind == "fact" else Preference)(key.strip() or "other", "v")
                    place = (kind, fold_key(data.key))
                    status = consents.get(place, consents.get((kind, ""), "given"))
                    assert (me.remember(data).action == "blocked") == (status != "given")
                    values |= {place} if status == "given" else set()
                case _:
                    me.forget_all()
                    values.clear()
            assert {(record.kind, fold_key(record.key)) for record in me.list(kinds=["fact", "preference"])} == values
        assert sorted(statuses(me).values()) == sorted(consents.values())
        assert me.rebuild().equal
