"""Forgetting with evidence redacts repetitions of the value in its exchange; a sweep also redacts other linked runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import (
    AssistantMessage,
    EventData,
    Redacted,
    SyncStore,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    new_event,
    open_sync_store,
)
from agent_memory_log.errors import InvalidArgument, MemoryStopped, StoreUnavailable
from agent_memory_log.events.registry import payload_from_map
from agent_memory_log.memory import (
    Candidate,
    Evidence,
    Fact,
    ForgetReport,
    Preference,
    Principal,
    SyncMemory,
    SyncMemoryClient,
    stream_of,
)
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.memory.stream.payloads import MemoryTombstone
from agent_memory_log.memory.upkeep.mentions import Values
from tests.memory.stores import OpenStore, SaidPreferences, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

GREETING: tuple[EventData, ...] = (
    UserMessage("name=Kim"),
    Thinking(text="They want to be called KIM."),
    ToolCall("c1", "rename", payload_json='{"to": "\\nKim"}'),
    ToolResult("c1", "rename", result_json='"done"'),
    AssistantMessage("Hello K\u00edm!"),
    UserMessage("Where is my order?"),
    AssistantMessage("On its way, Kim."),
)


def _append(store: SyncStore, run: str, *events: EventData) -> str:
    store.append_events("agent", run, *map(new_event, events))
    return run


def _redacted(store: SyncStore, run: str) -> list[int]:
    return [event.seq for event in store.load_run("agent", run).log if isinstance(event.data, Redacted)]


def _matching_texts(me: SyncMemory) -> list[str]:
    """Return the texts with the value among the hits of a search. A search also returns adjacent messages."""
    return [hit.text for hit in me.search("Kim", top_k=99) if "kim" in hit.text.casefold()]


def _learned_name(store: SyncStore, principal: Principal | None = None) -> tuple[SyncMemory, str]:
    """Return a memory with a name derived from a run, and the run."""
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(principal or somebody())
    run = _append(store, f"run {me.principal.tenant}", *GREETING)
    me.derive("agent", run)
    return me, run


def test_forget_redacts_repetitions_in_the_exchange_and_reports_others(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _learned_name(store)
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    assert any(hit.message is not None for hit in other.search("Kim"))  # builds an index that holds the repetition
    report = me.forget(key="name", evidence=True)
    assert report == ForgetReport(1, 1, 4, (Evidence("agent", run, 7),))
    assert _redacted(store, run) == [1, 2, 3, 5]
    assert _matching_texts(other) == ["On its way, Kim."]


def test_forget_redacts_the_answer_that_repeats_a_rule_extracted_name(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=RuleExtractor()).of(somebody())
    run = f"run {me.principal.tenant}"
    exchange = (UserMessage("Call me Kim"), AssistantMessage("Hello Kim!"))
    _append(store, run, *exchange, UserMessage("Where is my order?"), AssistantMessage("On its way."))
    assert [outcome.record and outcome.record.value for outcome in me.derive("agent", run).written] == ["Kim"]
    assert {"Call me Kim", "Hello Kim!"} <= set(_matching_texts(me))
    assert me.forget(key="preferred_name", evidence=True) == ForgetReport(1, 1, 2)
    assert (me.search("Kim"), me.context("Kim").text) == ((), "")


def test_forget_reports_the_memories_that_came_from_the_same_message(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=RuleExtractor()).of(somebody())
    run = f"run {me.principal.tenant}"
    messages = UserMessage("Call me Kim. Please answer in German."), AssistantMessage("Hallo Kim!")
    _append(store, run, *messages, UserMessage("I live in Leeds."), AssistantMessage("Schön."))
    me.derive("agent", run)
    language = me.get(key="language")
    assert language is not None
    planned = me.forget(key="preferred_name", evidence=True, dry_run=True)
    assert planned.fallen == (language.id,)
    assert me.get(key="language") == language
    assert me.forget(key="preferred_name", evidence=True) == planned
    assert [record.value for record in me.list()] == ["Leeds"]


def test_forget_reports_a_memory_that_loses_the_rest_of_its_evidence(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    run = f"run {me.principal.tenant}"
    _append(store, run, UserMessage("Tea, please."), UserMessage("I live in Bern and drink tea."))
    me.link_run("agent", run)
    evidence = tuple(Evidence("agent", run, seq) for seq in (1, 2))
    me.write([Candidate(Preference("drink", "tea"), evidence=evidence)])
    me.write([Candidate(Fact("city", "Bern"), evidence=evidence[1:])])
    (drink,) = me.list(kinds=["preference"])
    store.redact_events("agent", run, [1])
    assert me.forget(key="city", evidence=True).fallen == (drink.id,)
    assert me.list() == ()


def test_search_returns_nothing_after_a_sweep(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _learned_name(store)
    later = _append(store, f"later {run}", UserMessage("It is kim again."), AssistantMessage("Welcome back."))
    me.link_run("agent", later)
    unlinked = _append(store, f"unlinked {run}", UserMessage("Kim"))
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    assert len(other.search("Kim", kinds=["message"])) == 4
    expected = ForgetReport(1, 1, 6)
    assert me.forget(key="name", sweep=True, dry_run=True) == expected
    assert len(other.search("Kim", kinds=["message"])) == 4, "a dry run changes nothing"
    assert me.forget(key="name", sweep=True) == expected
    for client in (me, other, SyncMemoryClient(open_memory_store()).of(me.principal)):
        assert client.search("Kim") == ()
        assert "kim" not in client.context("Kim").text.casefold()
    assert (_redacted(store, run), _redacted(store, later)) == ([1, 2, 3, 5, 7], [1])
    assert _redacted(store, unlinked) == []
    assert me.rebuild().equal
    assert other.rebuild().equal


@pytest.mark.parametrize("method", ["id", "all"])
def test_forget_by_id_and_forget_all_redact_repetitions(open_memory_store: OpenStore, method: str) -> None:
    store = open_memory_store()
    me, run = _learned_name(store)
    record = me.get(key="name")
    assert record is not None
    report = me.forget(id=record.id, evidence=True) if method == "id" else me.forget_all(evidence=True)
    assert (report.evidence, _redacted(store, run)) == (4, [1, 2, 3, 5])
    assert "Hello" not in repr(me.search("hello Kim", top_k=9))


def test_forget_without_evidence_changes_no_run(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _learned_name(store)
    assert me.forget(key="name") == ForgetReport(1, 1)
    assert _redacted(store, run) == []


def test_sweep_above_its_limit_erases_nothing_and_reports_the_count(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _learned_name(store)
    with pytest.raises(MemoryStopped, match=r"redact 5 events .* sweep_limit=4") as stopped:
        me.forget(key="name", sweep=True, sweep_limit=4)
    assert stopped.value.reason == "sweep_limit"
    assert me.get(key="name") is not None
    assert _redacted(store, run) == []
    assert me.forget(key="name", sweep=True, sweep_limit=5).evidence == 5
    with pytest.raises(InvalidArgument, match="sweep_limit"):
        me.forget(key="name", sweep_limit=0)


def test_common_word_does_not_redact_a_long_history() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody())
        me.remember(key="language", value="english")
        run = _append(store, "run", *(UserMessage(f"english {number}") for number in range(101)))
        me.link_run("agent", run)
        with pytest.raises(MemoryStopped, match="101 events"):
            me.forget(key="language", sweep=True)
        assert len(me.forget(key="language", evidence=True).elsewhere) == 101
        assert _redacted(store, run) == []


def test_forget_redacts_injected_context_that_quotes_a_repetition(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _learned_name(store)
    positions = [{"agent": "agent", "run": run, "seq": seq} for seq in (5, 6)]
    later = _append(
        store,
        f"later {run}",
        *(
            payload_from_map("injected_context", {"text": "Hello Kim!", "messages": [position]})
            for position in positions
        ),
    )
    me.link_run("agent", later)
    report = me.forget(key="name", evidence=True)
    assert _redacted(store, later) == [1]
    assert report.elsewhere == (Evidence("agent", later, 2), Evidence("agent", run, 7))


@pytest.mark.parametrize("sweep", [False, True])
def test_next_writer_finishes_an_erasure_after_a_crash(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch, sweep: bool
) -> None:
    store = open_memory_store()
    me, run = _learned_name(store)
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    assert other.search("Kim")
    raw: Any = store.redact_events

    def crash(agent: str, *arguments: Any, **options: Any) -> Any:
        if not agent.startswith("@"):
            raise StoreUnavailable("the process crashes here")
        return raw(agent, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(store, "redact_events", crash)
        with pytest.raises(StoreUnavailable):
            me.forget(key="name", evidence=True, sweep=sweep)
    assert _redacted(store, run) == [], "the erasure must be unfinished"
    stream = store.load_run(stream_of(me.principal.subject("user")), "records")
    assert "kim" not in repr(stream.log).casefold(), "a tombstone holds positions, not words"
    remaining = [] if sweep else ["On its way, Kim."]
    for client in (me, other, SyncMemoryClient(open_memory_store()).of(me.principal)):
        assert _matching_texts(client) == remaining
    other.remember(key="another", value="v")
    assert _redacted(store, run) == [1, 2, 3, 5, *([7] if sweep else [])]
    assert _matching_texts(me) == remaining
    assert me.rebuild().equal
    assert other.rebuild().equal
    redacted_agents: list[str] = []

    def note_agent(agent: str, *arguments: Any, **options: Any) -> Any:
        redacted_agents.append(agent)
        return raw(agent, *arguments, **options)

    monkeypatch.setattr(store, "redact_events", note_agent)
    me.remember(key="one more", value="v")
    assert "agent" not in redacted_agents, "an erasure is finished only once"


def test_repeated_forget_finishes_after_a_crash(open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_memory_store()
    me, run = _learned_name(store)

    def crash(*_: object, **__: object) -> None:
        raise StoreUnavailable("the process crashes here")

    with monkeypatch.context() as patched:
        patched.setattr(store, "redact_events", crash)
        with pytest.raises(StoreUnavailable):
            me.forget(key="name", evidence=True)
    assert me.forget(key="name", evidence=True).evidence == 4
    assert _redacted(store, run) == [1, 2, 3, 5]


def test_sweep_redacts_a_run_that_was_deleted_and_recreated_after_a_crash(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_memory_store()
    me, run = _learned_name(store)
    me.remember(key="nickname", value="Kim")

    def crash(*_: object, **__: object) -> None:
        raise StoreUnavailable("the process crashes here")

    with monkeypatch.context() as patched:
        patched.setattr(store, "redact_events", crash)
        with pytest.raises(StoreUnavailable):
            me.forget(key="name", evidence=True)
    store.delete_run("agent", run)
    new_seq = store.append_events("agent", run, new_event(UserMessage("Kim again"))).version
    me.forget(key="nickname", sweep=True)
    assert _redacted(store, run) == [new_seq]
    assert _matching_texts(me) == []


@pytest.mark.parametrize("sweep", [False, True])
def test_tombstone_in_an_ordinary_run_does_not_stop_forget(open_memory_store: OpenStore, sweep: bool) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    run = f"run {me.principal.tenant}"
    tombstone = MemoryTombstone(sources=(Evidence("Kim", "r", 1),))
    store.append_events("agent", run, new_event(tombstone), new_event(UserMessage("Kim")), reserved=True)
    me.link_run("agent", run)
    me.remember(key="name", value="Kim", evidence=[Evidence("agent", run, seq) for seq in (1, 2)])
    assert me.forget(key="name", evidence=not sweep, sweep=sweep).evidence == 1
    assert _redacted(store, run) == [2]
    assert me.remember(key="name", value="Tim").action == "written"


@pytest.mark.parametrize("sweep", [False, True])
def test_forget_reports_other_records_with_the_value(open_memory_store: OpenStore, sweep: bool) -> None:
    me, run = _learned_name(open_memory_store())
    first = me.remember(kind="fact", key="drink", value="k\u0130m\u00a0likes tea", evidence=[Evidence("agent", run, 1)])
    me.remember(kind="fact", key="drink", value="coffee")
    tagged = me.remember(kind="fact", key="team", value="blue", tags=["Kim"])
    me.remember(kind="fact", key="food", value="kimchi")
    expected = tuple(outcome.record.id for outcome in (first, tagged) if outcome.record is not None)
    assert me.forget(key="name", dry_run=True).other_records == ()
    assert me.forget(key="name", dry_run=True, evidence=True, sweep=sweep).other_records == expected
    assert me.forget(key="name", evidence=True, sweep=sweep).other_records == expected


def test_sweep_reads_each_linked_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_sync_store("memory:") as store:
        me, _ = _learned_name(store)
        for number in range(3):
            me.link_run("agent", _append(store, f"run {number}", UserMessage("Kim")))
        raw: Any = store.load_run
        read: list[str] = []

        def load_run(agent: str, run: str, **options: Any) -> Any:
            if agent == "agent":
                read.append(run)
            return raw(agent, run, **options)

        monkeypatch.setattr(store, "load_run", load_run)
        me.forget(key="name", sweep=True)
        assert len(read) == len(set(read)) == 4


@pytest.mark.parametrize("sweep", [False, True])
def test_forget_in_a_shared_scope_keeps_private_runs_of_other_users(open_memory_store: OpenStore, sweep: bool) -> None:
    store = open_memory_store()
    client = SyncMemoryClient(store, extractor=SaidPreferences())
    me = client.of(somebody(user="42", workspace="ops"))
    colleague = client.of(Principal(me.principal.tenant, {"user": "43", "workspace": "ops"}))
    run = f"run {me.principal.tenant}"
    _append(store, run, UserMessage("workspace@region=eu-west"), AssistantMessage("So it is eu-west."))
    me.derive("agent", run)
    shared = _append(store, f"shared {run}", UserMessage("eu-west is slow"))
    me.link_run("agent", shared, scope="workspace")
    report = colleague.forget(key="region", scope="workspace", evidence=True, sweep=sweep)
    assert report.evidence == int(sweep)
    assert report.elsewhere == (() if sweep else (Evidence("agent", shared, 1),))
    assert _redacted(store, run) == []
    assert _redacted(store, shared) == ([1] if sweep else [])


def test_author_can_redact_evidence_in_their_own_run(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody(user="42", workspace="ops"))
    run = f"run {me.principal.tenant}"
    _append(store, run, UserMessage("workspace@region=eu-west"), AssistantMessage("So it is eu-west."))
    me.derive("agent", run)
    assert me.forget(key="region", scope="workspace", evidence=True).evidence == 2
    assert _redacted(store, run) == [1, 2]


def test_sweep_skips_a_deleted_run(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _learned_name(store)
    store.delete_run("agent", run)
    assert me.forget(key="name", sweep=True) == ForgetReport(1, 1)


def test_swept_value_is_absent_from_the_sqlite_file(tmp_path: Path) -> None:
    secret = "wolfram-4711"
    with open_sync_store(f"sqlite:///{tmp_path / 'memory.db'}") as store:
        me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
        run = _append(store, "run", UserMessage(f"word={secret}"), AssistantMessage(f"I note {secret}."))
        me.derive("agent", run)
        me.search(secret)
        assert me.forget(key="word", sweep=True).evidence == 2
        store.compact()  # type: ignore[attr-defined]  # only SQLite stores have it
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert any(file.parent != tmp_path for file in files)
        assert not any(secret.encode() in file.read_bytes() for file in files)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Kim", "hello kim!"),
        ("Kim", "KIM's"),
        ("Kim.", "it is Kim, isn't it"),
        ("Kim", "K\u00adi\u200bm"),
        ("Kim", "\uff2b\uff49\uff4d"),
        ("Kim", "kim_smith"),
        ("Jos\u00e9", "jose"),
        ("jose", "Jose\u0301"),
        ("Stra\u00dfe", "STRASSE"),
        ("new york", "New\n\u00a0York"),
        ("C++", "c++, please"),
        ("Kim", "K\u2068i\u2069m"),
        ("\u2764\ufe0f", "I \u2764 it"),
        ("\u0645\u062d\u0645\u062f", "\u0645\u064f\u062d\u064e\u0645\u064e\u0651\u062f"),
        ("\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ("O'Brien", "Hi O\u2019Brien"),
        ("Jean\u2010Luc", "Hi Jean-Luc, or Jean\u2011Luc"),
        ('the "Kim" case', "the \u201cKim\u201d case"),
        (".NET", "I like .net"),
        ("+49 170 1234", "call +49 170 1234."),
        ("\u30ad\u30e0", "\u79c1\u306f\u30ad\u30e0\u3067\u3059"),
        ("\uae40\ucca0\uc218", "\uae40\ucca0\uc218\uc528"),
        ("\U0001f44d", "ok \U0001f44d\U0001f3fd"),
    ],
)
def test_value_matches_every_spelling_of_it(value: str, text: str) -> None:
    assert Values(["unrelated", value]).are_in(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Kim", "kimono"),
        ("Kim", "Hakim"),
        ("C++", "C"),
        (".NET", "the internet, net"),
        ("new york", "new yorker"),
        ("3", "3.5"),
        ("\u6771\u4eac", "\u4eac\u6771"),
        (" ... ", "so ... what"),
        ("", "text"),
    ],
)
def test_value_does_not_match_part_of_a_word(value: str, text: str) -> None:
    assert not Values([value]).are_in(text)


def test_value_matches_labels_names_numbers_and_nested_json() -> None:
    values = Values(["Kim", "4711"])
    assert values.are_in_event(new_event(UserMessage("hello"), labels={"speaker": "Kim"}))
    assert values.are_in_event(new_event(UnknownPayload("x", {"a": [{"kim": None}]})))
    assert values.are_in_event(new_event(UnknownPayload("x", {"a": [{"b": 4711}]})))
    assert values.are_in_event(new_event(ToolCall("c", "t", payload_json='{"a": "\\u004b\\u0069m"}')))
    assert values.are_in_event(new_event(ToolCall("c", "t", payload_json='{"a": "{\\"b\\": \\"x\\\\nKim\\"}"}')))
    assert not values.are_in_event(new_event(UserMessage("hello")))


@pytest.mark.parametrize(
    "event", [UserMessage("hello"), Thinking(text="hm"), ToolCall("c", "t"), AssistantMessage("hi")]
)
def test_value_does_not_match_standard_field_names_of_events(event: EventData) -> None:
    field_names = Values(["message", "text", "final", "signature", "true", "false", "tool_name", "structured", "queue"])
    assert not field_names.are_in_event(new_event(event))
    assert field_names.are_in_event(new_event(UnknownPayload("x", {"message": 1})))
