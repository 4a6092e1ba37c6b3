"""Deriving: each statement once, however often, by however many, and not again what was forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent_memory_log import (
    AgentMemoryLogError,
    AssistantMessage,
    Event,
    SyncStore,
    UnknownPayload,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import InvalidArgument, StoreClosed, StoreUnavailable
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
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


def _new(store: SyncStore, extractor: object = None) -> tuple[SyncMemory, str]:
    chosen = extractor or SaidPreferences()
    me = SyncMemoryClient(store, extractor=chosen).of(somebody())  # type: ignore[arg-type]  # whatever a test gives
    return me, f"run {me.principal.tenant}"


def _say(store: SyncStore, run: str, *texts: str) -> None:
    store.append_events("agent", run, *(new_event(UserMessage(text)) for text in texts))


def _values(me: SyncMemory) -> dict[str, str]:
    return {f"{one.scope}.{one.key}": one.value for one in me.list()}


def _stream(store: SyncStore, me: SyncMemory, scope: str = "user") -> list[Event]:
    return list(store.load_run(stream_of(me.principal.subject(scope)), "records").log)


def test_deriving_twice_writes_nothing_twice(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _new(store)
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


def test_the_same_said_again_is_more_evidence(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _new(store)
    _say(store, run, "language=english")
    me.derive("agent", run)
    _say(store, run, "language= ENGLISH ")
    (outcome,) = me.derive("agent", run).refreshed
    assert outcome.record is not None
    assert [one.seq for one in outcome.record.evidence] == [1, 2]
    assert me.list() == (outcome.record,)


def test_an_older_statement_does_not_take_the_place_of_a_newer(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _new(store)
    _say(store, run, "language=english", "language=german")
    me.derive("agent", run)
    for _ in range(2):
        (report,) = me.rederive()
        assert [one.action for one in report.outcomes] == ["outdated", "unchanged"]
        assert _values(me) == {"user.language": "german"}


def test_what_was_forgotten_is_not_learnt_again_but_a_later_statement_is(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _new(store)
    _say(store, run, "language=english; tone=dry")
    me.derive("agent", run)
    me.forget(key="language")
    (report,) = me.rederive()
    assert [one.action for one in report.outcomes] == ["forgotten", "unchanged"]
    # Another extractor may count the statements of an event in another way.
    (report,) = me.rederive(SaidPreferences("other"))
    assert {one.action for one in report.outcomes} == {"forgotten"}
    assert me.rebuild().equal
    assert _values(me) == {"user.tone": "dry"}
    _say(store, run, "language=french")
    me.derive("agent", run)
    assert _values(me) == {"user.tone": "dry", "user.language": "french"}


def test_what_was_outdated_is_forgotten_along(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _new(store)
    _say(store, run, "language=english", "language=german")
    late = SyncMemoryClient(store).of(me.principal)
    late.derive("agent", run, extractor=SaidPreferences())
    late.rederive(SaidPreferences())  # finds the older one outdated
    late.forget(key="language")
    (report,) = late.rederive(SaidPreferences())
    assert {one.action for one in report.outcomes} == {"forgotten"}
    assert late.list() == ()


def test_after_forget_all_a_conversation_that_goes_on_is_not_learnt_from(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _new(store)
    _say(store, run, "language=english", "tone=dry")
    me.forget_all(runs=[("agent", run)])
    _say(store, run, "channel=email")
    assert [one.key for one in me.derive("agent", run).written] == ["channel"]
    (report,) = me.rederive()
    assert [one.action for one in report.outcomes] == ["forgotten", "forgotten", "unchanged"]


def test_a_run_whose_meta_switches_memory_off_is_left_alone(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    extractor = SaidPreferences()
    me, run = _new(store, extractor)
    store.append_events("agent", run, new_event(UserMessage("language=english")), meta={"memory": False})
    report = me.derive("agent", run)
    assert (report.status, report.stop_reason, extractor.calls) == ("skipped", "memory_off", [])
    assert _stream(store, me) == []


class _Broken:
    name = "broken"

    def __init__(self, found: object) -> None:
        self.found = found

    def extract(self, _: RunSlice, /) -> Extraction:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found  # type: ignore[return-value]  # what it should not return


@pytest.mark.parametrize(
    ("found", "reason", "said"),
    [
        (RuntimeError("no model"), "extractor_failed", "RuntimeError: no model"),
        (AgentMemoryLogError("odd"), "extractor_failed", "odd"),
        (None, "extractor_failed", "expected an Extraction from the extractor"),
        (Extraction(stop_reason="llm_timeout"), "llm_timeout", ""),
        (Extraction((Candidate(Preference("", "v")),)), "extractor_failed", "key must be text"),
    ],
)
def test_a_failing_extractor_loses_nothing(open_memory_store: OpenStore, found: object, reason: str, said: str) -> None:
    store = open_memory_store()
    me, run = _new(store)
    _say(store, run, "language=english")
    report = me.derive("agent", run, extractor=_Broken(found))
    assert (report.status, report.stop_reason, report.position) == ("stopped", reason, 0)
    assert said in report.error
    noted, linked = _stream(store, me)
    assert noted.data.to_map()["reason"] == reason
    assert linked.data.to_map() == {"agent": "agent", "run": run, "seq": 0}
    assert len(me.derive("agent", run).written) == 1


class _Cites:
    """Proposes something for each event, whatever it is, that rests on it."""

    name = "cites"

    def extract(self, new: RunSlice, /) -> Extraction:
        return Extraction(
            tuple(
                Candidate(Preference(f"k{event.seq}", "v"), evidence=(Evidence(new.agent, new.run, event.seq),))
                for event in new.events
            )
        )


def test_what_was_recalled_is_no_evidence(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _new(store, _Cites())
    recalled = UnknownPayload(type="injected_context", data={"text": "language: english"})
    store.append_events("agent", run, *map(new_event, (UserMessage("a"), recalled, UserMessage("b"))))
    assert [one.key for one in me.derive("agent", run).written] == ["k1", "k3"]
    assert [one.action for one in me.rederive()[0].outcomes] == ["unchanged", "unchanged"]


def test_a_run_that_is_only_asked_anew_is_known_from_then_on(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _new(store)
    _say(store, run, "language=english")
    (report,) = me.rederive(runs=[("agent", run)])
    assert [one.action for one in report.outcomes] == ["written"]
    assert (me.derive("agent", run).after, me.stats().runs) == (1, 1)
    assert [one.action for one in me.rederive()[0].outcomes] == ["unchanged"]
    assert me.forget_all(evidence=True).evidence == 1


class _Waiting:
    """An extractor that waits for more, or, as ``stop_reason`` says, cannot do its work."""

    name = "waiting"

    def __init__(self, stop_reason: str = "") -> None:
        self.stop_reason = stop_reason

    def extract(self, new: RunSlice, /) -> Extraction:
        return Extraction(position=new.after, stop_reason=self.stop_reason)


@pytest.mark.parametrize("extractor", [RuleExtractor(), _Waiting(), _Waiting("llm_timeout")])
def test_a_run_of_one_turn_is_known_and_what_it_was_told_is_forgotten_with_the_memory(
    open_memory_store: OpenStore, extractor: Extractor
) -> None:
    store = open_memory_store()
    me, run = _new(store)
    record = me.remember(key="codeword", value="wolfram").record
    assert record is not None
    told = UnknownPayload("injected_context", {"text": "I prefer wolfram", "records": [record.id]})
    events = (told, UserMessage("hello"), AssistantMessage("Good day."))
    store.append_events("agent", run, *map(new_event, events))
    report = me.derive("agent", run, extractor=extractor)
    assert (report.position, report.outcomes) == (0, ())
    version = me.stats().events
    assert me.derive("agent", run, extractor=_Waiting()).position == 0
    assert me.stats().events == version, "it is noted once"
    assert me.forget(key="codeword", evidence=True).evidence == 1
    assert "wolfram" not in repr(store.load_run("agent", run).log)
    # What comes then is read from the first event, and what was recalled is not taken for the user's words.
    store.append_events("agent", run, *map(new_event, (UserMessage("Call me Kim."), AssistantMessage("Hello."))))
    learnt = me.derive("agent", run, extractor=RuleExtractor())
    assert [outcome.key for outcome in learnt.written] == ["preferred_name"]


def test_what_has_expired_is_not_learnt_again_from_the_same_words(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences(), clock=clock).of(somebody())
    run = f"run {me.principal.tenant}"
    _say(store, run, "language=english")
    me.derive("agent", run)
    clock.move(days=200)
    (outcome,) = me.rederive()[0].outcomes
    assert (outcome.action, outcome.reason) == ("outdated", "expired")
    assert me.list() == ()
    _say(store, run, "language=english")
    assert [one.value for one in (outcome.record for outcome in me.derive("agent", run).written) if one] == ["english"]


def test_another_writer_between_reading_and_writing(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read a moment ago is not written to as if it were the newest."""
    store = open_memory_store()
    me, run = _new(store)
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    _say(store, run, "language=english; codeword=x")
    extractor = SaidPreferences()
    raw: Any = extractor.extract

    def extract(new: RunSlice, /) -> Extraction:
        other.derive("agent", run, extractor=SaidPreferences())
        other.forget(key="codeword")
        found: Extraction = raw(new)
        return found

    monkeypatch.setattr(extractor, "extract", extract)
    assert me.derive("agent", run, extractor=extractor).outcomes == ()
    assert _values(me) == {"user.language": "english"}
    assert sum(event.type == "memory_derived" for event in _stream(store, me)) == 1


def test_a_store_that_is_closed_meanwhile(tmp_path: Path) -> None:
    """Says so; whoever opens it again goes on as if nothing had been."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    store = open_sync_store(url)
    me, run = _new(store)
    _say(store, run, "language=english")
    with pytest.raises(StoreClosed):
        me.derive("agent", run, extractor=_Closes(store))
    with pytest.raises(StoreClosed):
        me.remember(key="k", value="v")
    with open_sync_store(url) as again:
        me = SyncMemoryClient(again, extractor=SaidPreferences()).of(me.principal)
        assert len(me.derive("agent", run).written) == 1


class _Closes:
    """Closes the store before it answers."""

    name = "closes"

    def __init__(self, store: SyncStore) -> None:
        self._store = store

    def extract(self, new: RunSlice, /) -> Extraction:
        self._store.close()
        return SaidPreferences().extract(new)


class _Short:
    """Says that it is done up to the second event, whatever it proposes."""

    name = "short"

    def extract(self, new: RunSlice, /) -> Extraction:
        return Extraction(SaidPreferences("short").extract(new).candidates, position=2)


def test_what_lies_beyond_the_position_is_read_again(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = _new(store, _Short())
    _say(store, run, "a=1", "b=2", "c=3")
    assert [one.key for one in me.derive("agent", run).written] == ["a", "b"]
    assert [one.key for one in me.derive("agent", run, extractor=SaidPreferences()).written] == ["c"]


def test_a_crash_between_two_scopes_writes_nothing_twice(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the extractor is a model, which says it in other words the second time."""
    store = open_memory_store()
    me, run = _new(store)
    _say(store, run, "language=english; workspace@channel=email")
    append: Any = store.append_events
    home = stream_of(me.principal.subject("user"))

    def dying(agent: str, *rest: Any, **options: Any) -> Any:
        if agent == home:
            raise StoreUnavailable("the process dies here")
        return append(agent, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(store, "append_events", dying)
        with pytest.raises(StoreUnavailable):
            me.derive("agent", run)

    class OtherWords(SaidPreferences):
        def extract(self, new: RunSlice, /) -> Extraction:
            found = super().extract(new).candidates
            return Extraction(
                tuple(
                    msgspec.structs.replace(one, data=Preference(one.key, f"{one.value}!"), valid_from=None)
                    for one in found
                )
            )

    again = SyncMemoryClient(store).of(me.principal)
    assert [one.key for one in again.derive("agent", run, extractor=OtherWords()).outcomes] == ["language"]
    assert _values(again) == {"user.language": "english!", "workspace.channel": "email"}


def test_reserved_runs_and_no_extractor(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, _ = _new(store)
    with pytest.raises(InvalidArgument, match="own runs"):
        me.derive(stream_of(me.principal.subject("user")), "records")
    with pytest.raises(InvalidArgument, match="no extractor"):
        SyncMemoryClient(store).of(me.principal).derive("agent", "run")


async def test_many_at_once_derive_each_statement_once(store_url: str) -> None:
    async with open_store(store_url) as store:
        principal = somebody()
        await store.append_events("agent", "run", *(new_event(UserMessage(f"k{n}=v; tone=dry")) for n in range(10)))
        clients = [MemoryClient(store, extractor=SaidPreferences()).of(principal) for _ in range(8)]
        reports = await asyncio.gather(*(client.derive("agent", "run") for client in clients))
        assert sum(len(report.written) for report in reports) == 11
        records = await clients[0].list()
        assert len(records) == 11
        assert all(len(set(one.evidence)) == len(one.evidence) for one in records)
        stream = await store.load_run(stream_of(principal.subject("user")), "records")
        assert sum(event.type == "memory_derived" for event in stream.log) == 1
