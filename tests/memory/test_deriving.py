"""Tests that deriving writes each statement once, also when concurrent, and derives no forgotten statement again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from agent_memory_log import (
    AgentMemoryLogError,
    AssistantMessage,
    Event,
    SyncStore,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import InvalidArgument, StoreClosed, StoreUnavailable
from agent_memory_log.events.registry import payload_from_map
from agent_memory_log.memory import (
    Candidate,
    Evidence,
    Extraction,
    Extractor,
    MemoryClient,
    Preference,
    RunSlice,
    SyncMemory,
    SyncMemoryClient,
    stream_of,
)
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.memory.policy import MemoryPolicy
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


def _client_and_run(store: SyncStore, extractor: object = None) -> tuple[SyncMemory, str]:
    chosen = extractor or SaidPreferences()
    me = SyncMemoryClient(store, extractor=chosen).of(somebody())  # type: ignore[arg-type]  # tests pass invalid extractors too
    return me, f"run {me.principal.tenant}"


def _say(store: SyncStore, run: str, *texts: str) -> None:
    store.append_events("agent", run, *(new_event(UserMessage(text)) for text in texts))


def _values(me: SyncMemory) -> dict[str, str]:
    return {f"{record.scope}.{record.key}": record.value for record in me.list()}


def _stream(store: SyncStore, me: SyncMemory, scope: str = "user") -> list[Event]:
    return list(store.load_run(stream_of(me.principal.subject(scope)), "records").log)


def test_deriving_twice_writes_nothing_twice(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "hi", "language=english; tone=dry", "workspace@channel=email")
    report = me.derive("agent", run)
    assert (report.status, report.after, report.position, len(report.written)) == ("ok", 0, 3, 3)
    assert _values(me) == {"user.language": "english", "user.tone": "dry", "workspace.channel": "email"}
    (language, *_) = me.list()
    assert language.evidence == (Evidence("agent", run, 2, "said/1"),)
    before = _stream(store, me)
    again = me.derive("agent", run)
    assert (again.after, again.position, again.outcomes) == (3, 3, ())
    _say(store, run, "language=german")
    assert me.derive("agent", run).written[0].superseded == language.id
    assert _stream(store, me)[: len(before)] == before


def test_a_repeated_statement_adds_evidence(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "language=english")
    me.derive("agent", run)
    _say(store, run, "language= ENGLISH ")
    (outcome,) = me.derive("agent", run).refreshed
    assert outcome.record is not None
    assert [evidence.seq for evidence in outcome.record.evidence] == [1, 2]
    assert me.list() == (outcome.record,)


def test_a_report_of_many_repetitions_has_each_evidence_about_twice(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, *["language=english"] * 30)
    first, *repeated = me.derive("agent", run).outcomes
    assert [outcome.action for outcome in (first, *repeated)] == ["written", *["refreshed"] * 29]
    assert first.record is not None
    assert [outcome.record for outcome in repeated] == [None] * 28 + list(me.list())
    assert [len(outcome.evidence) for outcome in repeated] == [1] * 29
    assert [outcome.record for outcome in me.rederive()[0].outcomes] == [None] * 29 + list(me.list())


def test_an_older_statement_does_not_replace_a_newer_one(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "language=english", "language=german")
    me.derive("agent", run)
    for _ in range(2):
        (report,) = me.rederive()
        assert [outcome.action for outcome in report.outcomes] == ["outdated", "unchanged"]
        assert _values(me) == {"user.language": "german"}


def test_rederive_skips_forgotten_statements_but_not_later_ones(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "language=english; tone=dry")
    me.derive("agent", run)
    me.forget(key="language")
    (report,) = me.rederive()
    assert [outcome.action for outcome in report.outcomes] == ["forgotten", "unchanged"]
    # Another extractor may number the statements of an event differently.
    (report,) = me.rederive(SaidPreferences("other"))
    assert {outcome.action for outcome in report.outcomes} == {"forgotten"}
    assert me.rebuild().equal
    assert _values(me) == {"user.tone": "dry"}
    _say(store, run, "language=french")
    me.derive("agent", run)
    assert _values(me) == {"user.tone": "dry", "user.language": "french"}


def test_forgetting_a_key_forgets_outdated_statements_too(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "language=english", "language=german")
    me = SyncMemoryClient(store).of(me.principal)
    me.derive("agent", run, extractor=SaidPreferences())
    me.rederive(SaidPreferences())  # reports the older statement as outdated
    me.forget(key="language")
    (report,) = me.rederive(SaidPreferences())
    assert {outcome.action for outcome in report.outcomes} == {"forgotten"}
    assert me.list() == ()


def test_forget_all_excludes_the_earlier_events_of_given_runs(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "language=english", "tone=dry")
    me.forget_all(runs=[("agent", run)])
    _say(store, run, "channel=email")
    assert [outcome.key for outcome in me.derive("agent", run).written] == ["channel"]
    (report,) = me.rederive()
    assert [outcome.action for outcome in report.outcomes] == ["forgotten", "forgotten", "unchanged"]


def test_a_run_with_memory_off_is_skipped(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    extractor = SaidPreferences()
    me, run = _client_and_run(store, extractor)
    store.append_events("agent", run, new_event(UserMessage("language=english")), meta={"memory": False})
    report = me.derive("agent", run)
    assert (report.status, report.stop_reason, extractor.calls) == ("skipped", "memory_off", [])
    assert _stream(store, me) == []


class _Broken:
    name = "broken"

    def __init__(self, result: object) -> None:
        self.found = result

    def extract(self, _: RunSlice, /) -> Extraction:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found  # type: ignore[return-value]  # an invalid result


@pytest.mark.parametrize(
    ("result", "reason", "message"),
    [
        (RuntimeError("no model"), "extractor_failed", "RuntimeError: no model"),
        (AgentMemoryLogError("odd"), "extractor_failed", "odd"),
        (None, "extractor_failed", "expected an Extraction from the extractor"),
        (Extraction(stop_reason="llm_timeout"), "llm_timeout", ""),
        (Extraction(stop_reason="llm_timeout", error="too slow"), "llm_timeout", "too slow"),
    ],
)
def test_the_events_of_a_failed_extraction_are_read_again(
    open_memory_store: OpenStore, result: object, reason: str, message: str
) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "language=english")
    report = me.derive("agent", run, extractor=_Broken(result))
    assert (report.status, report.stop_reason, report.position) == ("stopped", reason, 0)
    assert message in report.error
    blocked, linked = _stream(store, me)
    assert blocked.data.to_map()["reason"] == reason
    assert linked.data.to_map() == {"agent": "agent", "run": run, "seq": 0}
    assert len(me.derive("agent", run).written) == 1


def test_an_error_that_stops_no_extraction_is_reported(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "language=english")
    candidates = (Candidate(Preference("language", "english")), Candidate(Preference("tone", " ")))
    report = me.derive("agent", run, extractor=_Broken(Extraction(candidates, error="one statement is too long")))
    assert (report.status, [outcome.action for outcome in report.outcomes]) == ("ok", ["written", "blocked"])
    assert report.error.startswith("one statement is too long; value must contain")


def test_candidates_that_cannot_be_stored_are_refused_alone(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "language=english")
    invalid = [Candidate(Preference("", "v")), Candidate(Preference("tone", " ")), Candidate(cast("Any", "text"))]
    extractor = _Broken(Extraction((*invalid, Candidate(Preference("tone", "dry")))))
    report = me.derive("agent", run, extractor=extractor)
    assert (report.status, report.position) == ("ok", 1)
    assert [outcome.key for outcome in report.written] == ["tone"]
    assert [outcome.reason for outcome in report.blocked] == ["invalid_candidate"] * 3
    assert "key must contain" in report.error
    assert "value must contain" in report.error
    assert "data must be a RecordData" in report.error


def test_policy_refuses_one_candidate_and_the_others_are_learnt(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    policy = MemoryPolicy(allowed_keys=frozenset({"language"}))
    me = SyncMemoryClient(store, extractor=SaidPreferences(), policy=policy).of(somebody())
    run = f"run {me.principal.tenant}"
    _say(store, run, "airport=gatwick; language=english")
    report = me.derive("agent", run)
    assert (report.status, report.position) == ("ok", 1)
    assert {outcome.key: (outcome.action, outcome.reason) for outcome in report.outcomes} == {
        "airport": ("blocked", "memory_key_not_allowed_policy:airport"),
        "language": ("written", ""),
    }
    assert me.stats().blocked == {"memory_key_not_allowed_policy:airport": 1}
    assert me.derive("agent", run).outcomes == ()


def test_policy_gives_preferences_their_lifetime(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    store = open_memory_store()
    principal = somebody()
    SyncMemoryClient(store, clock=clock).of(principal).remember(key="forever", value="v")
    me = SyncMemoryClient(store, clock=clock, policy=MemoryPolicy(preference_ttl_days=30)).of(principal)
    me.remember(key="policy", value="v")
    me.remember(key="own", value="v", ttl_days=7)
    me.remember(key="fact", value="v", kind="fact")
    assert {record.key: record.ttl_left_days(clock.time) for record in me.list()} == {
        "forever": None,
        "policy": 30,
        "own": 7,
        "fact": None,
    }


class _Cites:
    """An extractor that proposes one preference for each event of any type, with the event as evidence."""

    name = "cites"

    def extract(self, new: RunSlice, /) -> Extraction:
        return Extraction(
            tuple(
                Candidate(Preference(f"k{event.seq}", "v"), evidence=(Evidence(new.agent, new.run, event.seq),))
                for event in new.events
            )
        )


def test_injected_context_is_no_evidence(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store, _Cites())
    recalled = payload_from_map("injected_context", {"text": "language: english"})
    store.append_events("agent", run, *map(new_event, (UserMessage("a"), recalled, UserMessage("b"))))
    assert [outcome.key for outcome in me.derive("agent", run).written] == ["k1", "k3"]
    assert [outcome.action for outcome in me.rederive()[0].outcomes] == ["unchanged", "unchanged"]


def test_a_run_that_was_only_rederived_is_linked(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "language=english")
    (report,) = me.rederive(runs=[("agent", run)])
    assert [outcome.action for outcome in report.outcomes] == ["written"]
    assert (me.derive("agent", run).after, me.stats().runs) == (1, 1)
    assert [outcome.action for outcome in me.rederive()[0].outcomes] == ["unchanged"]
    assert me.forget_all(evidence=True).evidence == 1


class _Waiting:
    """An extractor that waits for more events, or stops with ``stop_reason``."""

    name = "waiting"

    def __init__(self, stop_reason: str = "") -> None:
        self.stop_reason = stop_reason

    def extract(self, new: RunSlice, /) -> Extraction:
        return Extraction(position=new.after, stop_reason=self.stop_reason)


@pytest.mark.parametrize("extractor", [RuleExtractor(), _Waiting(), _Waiting("llm_timeout")])
def test_forgetting_reaches_context_injected_into_a_run_without_candidates(
    open_memory_store: OpenStore, extractor: Extractor
) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    record = me.remember(key="codeword", value="wolfram").record
    assert record is not None
    injected = payload_from_map("injected_context", {"text": "I prefer wolfram", "records": [record.id]})
    events = (injected, UserMessage("hello"), AssistantMessage("Good day."))
    store.append_events("agent", run, *map(new_event, events))
    report = me.derive("agent", run, extractor=extractor)
    assert (report.position, report.outcomes) == (0, ())
    version = me.stats().events
    assert me.derive("agent", run, extractor=_Waiting()).position == 0
    assert me.stats().events == version, "the run is linked once"
    assert me.forget(key="codeword", evidence=True).evidence == 1
    assert "wolfram" not in repr(store.load_run("agent", run).log)
    # Later events are derived with the run's first event, and the injected context does not count as the user's words.
    store.append_events("agent", run, *map(new_event, (UserMessage("Call me Kim."), AssistantMessage("Hello."))))
    derived = me.derive("agent", run, extractor=RuleExtractor())
    assert [outcome.key for outcome in derived.written] == ["preferred_name"]


def test_an_expired_record_is_not_derived_again_from_the_same_event(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    store = open_memory_store()
    policy = MemoryPolicy(preference_ttl_days=180)
    me = SyncMemoryClient(store, extractor=SaidPreferences(), clock=clock, policy=policy).of(somebody())
    run = f"run {me.principal.tenant}"
    _say(store, run, "language=english")
    me.derive("agent", run)
    clock.move(days=200)
    (outcome,) = me.rederive()[0].outcomes
    assert (outcome.action, outcome.reason) == ("outdated", "expired")
    assert me.list() == ()
    _say(store, run, "language=english")
    assert [outcome.record.value for outcome in me.derive("agent", run).written if outcome.record] == ["english"]


def test_derive_retries_after_another_writer_appended(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store)
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    _say(store, run, "language=english; codeword=x")
    extractor = SaidPreferences()
    raw: Any = extractor.extract

    def extract(new: RunSlice, /) -> Extraction:
        other.derive("agent", run, extractor=SaidPreferences())
        other.forget(key="codeword")
        extraction: Extraction = raw(new)
        return extraction

    monkeypatch.setattr(extractor, "extract", extract)
    assert me.derive("agent", run, extractor=extractor).outcomes == ()
    assert _values(me) == {"user.language": "english"}
    assert sum(event.type == "memory_derived" for event in _stream(store, me)) == 1


def test_derive_continues_after_the_store_was_closed_and_reopened(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'm.db'}"
    store = open_sync_store(url)
    me, run = _client_and_run(store)
    _say(store, run, "language=english")
    with pytest.raises(StoreClosed):
        me.derive("agent", run, extractor=_Closes(store))
    with pytest.raises(StoreClosed):
        me.remember(key="k", value="v")
    with open_sync_store(url) as again:
        me = SyncMemoryClient(again, extractor=SaidPreferences()).of(me.principal)
        assert len(me.derive("agent", run).written) == 1


class _Closes:
    """An extractor that closes the store before it returns."""

    name = "closes"

    def __init__(self, store: SyncStore) -> None:
        self._store = store

    def extract(self, new: RunSlice, /) -> Extraction:
        self._store.close()
        return SaidPreferences().extract(new)


class _Short:
    """An extractor that returns position 2, but also candidates for the events after it."""

    name = "short"

    def extract(self, new: RunSlice, /) -> Extraction:
        return Extraction(SaidPreferences("short").extract(new).candidates, position=2)


def test_events_after_the_position_are_read_again(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _client_and_run(store, _Short())
    _say(store, run, "a=1", "b=2", "c=3")
    assert [outcome.key for outcome in me.derive("agent", run).written] == ["a", "b"]
    assert [outcome.key for outcome in me.derive("agent", run, extractor=SaidPreferences()).written] == ["c"]


def test_a_crash_between_two_scopes_writes_nothing_twice(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement is written once even if a model uses other words for it the second time."""
    store = open_memory_store()
    me, run = _client_and_run(store)
    _say(store, run, "language=english; workspace@channel=email")
    append: Any = store.append_events
    home = stream_of(me.principal.subject("user"))

    def failing_append(agent: str, *arguments: Any, **options: Any) -> Any:
        if agent == home:
            raise StoreUnavailable("the process dies here")
        return append(agent, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(store, "append_events", failing_append)
        with pytest.raises(StoreUnavailable):
            me.derive("agent", run)

    class OtherWords(SaidPreferences):
        def extract(self, new: RunSlice, /) -> Extraction:
            candidates = super().extract(new).candidates
            return Extraction(
                tuple(
                    msgspec.structs.replace(
                        candidate, data=Preference(candidate.key, f"{candidate.value}!"), valid_from=None
                    )
                    for candidate in candidates
                )
            )

    again = SyncMemoryClient(store).of(me.principal)
    assert [outcome.key for outcome in again.derive("agent", run, extractor=OtherWords()).outcomes] == ["language"]
    assert _values(again) == {"user.language": "english!", "workspace.channel": "email"}


def test_derive_refuses_reserved_agents_and_a_missing_extractor(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, _ = _client_and_run(store)
    with pytest.raises(InvalidArgument, match="reserved agent"):
        me.derive(stream_of(me.principal.subject("user")), "records")
    with pytest.raises(InvalidArgument, match="no extractor"):
        SyncMemoryClient(store).of(me.principal).derive("agent", "run")
    wrong: list[Any] = [RuleExtractor, "rules"]
    for extractor in wrong:
        with pytest.raises(InvalidArgument, match="expected an extractor with name and extract"):
            SyncMemoryClient(store, extractor=extractor).of(me.principal).derive("agent", "run")


async def test_concurrent_clients_derive_each_statement_once(store_url: str) -> None:
    async with open_store(store_url) as store:
        principal = somebody()
        await store.append_events("agent", "run", *(new_event(UserMessage(f"k{n}=v; tone=dry")) for n in range(10)))
        clients = [MemoryClient(store, extractor=SaidPreferences()).of(principal) for _ in range(8)]
        reports = await asyncio.gather(*(client.derive("agent", "run") for client in clients))
        assert sum(len(report.written) for report in reports) == 11
        records = await clients[0].list()
        assert len(records) == 11
        assert all(len(set(record.evidence)) == len(record.evidence) for record in records)
        stream = await store.load_run(stream_of(principal.subject("user")), "records")
        assert sum(event.type == "memory_derived" for event in stream.log) == 1


def test_300_orders_that_differ_in_one_word_are_all_active() -> None:
    orders = [
        f"Whenever I send you the minutes of a meeting of the board, list every decision first, then every open"
        f" question with the person who asked it, and end with topic {number}"
        for number in range(300)
    ]
    with open_sync_store("memory:") as store:
        me, run = _client_and_run(store, RuleExtractor())
        for number in range(0, 300, 50):
            _say(store, run, *(f"{order}." for order in orders[number : number + 50]))
            me.derive("agent", run)
        assert sorted(record.value for record in me.list()) == sorted(orders)
