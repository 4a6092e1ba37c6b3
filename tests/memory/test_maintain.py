"""Tests ``maintain``: it archives, links and consolidates, it can be undone, and it repeats nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import (
    Candidate,
    Episode,
    Evidence,
    Fact,
    Limit,
    MaintainReport,
    Quotas,
    Record,
    SyncMemory,
    SyncMemoryClient,
)
from agent_memory_log.memory.governance import maintenance
from agent_memory_log.memory.governance.summaries import sentences_of
from agent_memory_log.memory.records.principals import STREAM_RUN, stream_of
from agent_memory_log.memory.records.record import MERGES
from tests.memory.stores import OpenStore, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


def opened(store: SyncStore, **hooks: Any) -> tuple[SyncMemory, SetClock]:
    clock = SetClock()
    return SyncMemoryClient(store, clock=clock, **hooks).of(somebody(user="1")), clock


def episode(me: SyncMemory, text: str, **fields: Any) -> Record:
    fields = {"entities": ("Atlas",), **fields}
    record = me.remember(Episode(fields.pop("category", "discovery")), text=text, **fields).record
    assert record is not None
    return record


def append_message(store: SyncStore, text: str) -> Evidence:
    """Append a message, and return it as evidence."""
    seq = store.append_events("agent", "run", new_event(UserMessage(text))).version
    return Evidence("agent", "run", seq)


def three_episodes(me: SyncMemory, store: SyncStore) -> list[Record]:
    texts = ("Atlas failed on port 8080.", "Atlas needs 4 GB of memory.", "The owner of Atlas is Maria.")
    return [episode(me, text, evidence=(append_message(store, text),)) for text in texts]


def active(me: SyncMemory) -> list[str]:
    return sorted(record.text for record in me.list())


def test_weak_unused_records_are_archived_and_the_report_says_why(open_memory_store: OpenStore) -> None:
    me, clock = opened(open_memory_store())
    weak = episode(me, "A dull event", importance=0.25, entities=())
    episode(me, "An event", importance=0.75, entities=())
    clock.move(days=59)
    assert me.maintain().decayed == ()
    clock.move(days=3)
    (change,) = me.maintain().decayed
    assert (change.record, change.why) == (weak.id, "retrievability 0.10, not stated or used for 62 days")
    assert active(me) == ["An event"]
    assert [record.id for record in me.list(status="archived")] == [weak.id]
    me.restore(weak.id)
    assert active(me) == ["A dull event", "An event"]


def test_thresholds_of_weak_records_can_be_set() -> None:
    me, clock = opened(open_sync_store("memory:"))
    me.remember(key="language", value="english")
    clock.move(days=20)
    assert me.maintain(weak_below=0.9).decayed == ()
    assert len(me.maintain(weak_below=0.9, unused_days=19).decayed) == 1


def test_a_used_record_stays() -> None:
    me, clock = opened(open_sync_store("memory:"))
    episode(me, "A dull event", importance=0.25, entities=())
    clock.move(days=50)
    me.context("dull event")
    clock.move(days=50)
    assert me.maintain().decayed == ()


def test_expired_records_are_closed_and_layers_are_reported_once() -> None:
    me, clock = opened(open_sync_store("memory:"))
    me.remember(key="language", value="english", ttl_days=5)
    tone = me.remember(key="tone", value="dry").record
    assert tone is not None
    clock.move(days=6)
    report = me.maintain()
    assert [change.key for change in report.expired] == ["language"]
    assert [(change.record, change.why.partition(":")[0]) for change in report.demoted] == [
        (tone.id, "working to short_term")
    ]
    assert me.maintain().demoted == ()
    for _ in range(2):
        me.context("tone")
        me.maintain()
        clock.move(days=1)
    promoted = me.maintain().promoted
    assert promoted == () or promoted[0].record == tone.id
    evolution = me.evolution_events(tone.id)
    assert evolution is not None
    assert (evolution.layer, evolution.used_on_days) == ("long_term", 2)


def test_promotion_is_reported() -> None:
    me, clock = opened(open_sync_store("memory:"))
    tone = me.remember(key="tone", value="dry", importance=0.75).record
    assert tone is not None
    me.maintain()
    clock.move(days=1)
    me.context("tone")
    (change,) = me.maintain().promoted
    assert change.record == tone.id
    assert "used on 1 days" in change.why


def test_old_episodes_about_one_topic_become_one_record_that_cites_all(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store)
    parts = three_episodes(me, store)
    episode(me, "The cat slept.", entities=("Tom",))
    clock.move(days=29)
    assert me.maintain().consolidated == ()
    clock.move(days=2)
    (change,) = me.maintain().consolidated
    assert change.parts == tuple(record.id for record in parts)
    assert change.why == "3 episodes: discovery, 2026-11, atlas"
    record = me.get(id=change.record)
    assert record is not None
    assert record.text == "Atlas failed on port 8080. Atlas needs 4 GB of memory. The owner of Atlas is Maria."
    assert record.evidence == tuple(part.evidence[0] for part in parts)
    assert [link.target for link in record.links if link.type == MERGES] == [part.id for part in parts]
    assert active(me) == sorted((record.text, "The cat slept."))
    assert me.maintain().consolidated == ()
    assert {record.id for record in me.list(status="archived")} == {part.id for part in parts}


def test_a_consolidated_record_falls_with_a_part_and_the_other_parts_return(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store)
    parts = three_episodes(me, store)
    clock.move(days=31)
    assert len(me.maintain().consolidated) == 1
    store.redact_events("agent", "run", [parts[1].evidence[0].seq])
    assert active(me) == []
    report = me.maintain()
    assert [change.record for change in report.returned] == [parts[0].id, parts[2].id]
    assert active(me) == [parts[0].text, parts[2].text]
    assert me.maintain().returned == ()
    assert "4 GB" not in str(store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).log)


def test_forgetting_a_part_forgets_the_consolidated_record_and_keeps_the_others(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store)
    parts = three_episodes(me, store)
    clock.move(days=31)
    me.maintain()
    me.link_run("agent", "run")
    assert me.forget(id=parts[0].id, evidence=True).records == 2
    assert active(me) == []
    me.maintain()
    assert active(me) == [parts[1].text, parts[2].text]
    stream = str(store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).log)
    assert "8080" not in stream
    log = str(store.load_run("agent", "run").log)
    assert "8080" not in log
    assert "4 GB" in log


def test_forgetting_a_consolidated_record_forgets_its_parts(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store)
    three_episodes(me, store)
    clock.move(days=31)
    (change,) = me.maintain().consolidated
    assert me.forget(id=change.record).records == 4
    me.maintain()
    assert me.list() == ()
    assert me.list(status="archived") == ()
    assert "Atlas" not in str(store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).log)


def test_separate_undoes_a_consolidation(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store)
    parts = three_episodes(me, store)
    clock.move(days=31)
    (change,) = me.maintain().consolidated
    outcomes = me.separate(change.record).outcomes
    assert [outcome.action for outcome in outcomes] == ["written"] * 3
    assert active(me) == sorted(part.text for part in parts)
    assert {record.evidence for record in me.list()} == {part.evidence for part in parts}
    clock.move(days=40)
    assert me.maintain().consolidated == ()
    for unknown in (change.record, parts[0].id, "unknown"):
        with pytest.raises(InvalidArgument, match="no active record that was consolidated"):
            me.separate(unknown)


def test_near_duplicates_become_one_record_with_the_evidence_of_both(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, _ = opened(store)
    short = "Maria prefers green tea without any sugar in the morning"
    for text in (short, f"{short}!", f"{short} really"):
        episode(me, text, evidence=(append_message(store, text),))
    (change,) = me.maintain().consolidated
    assert change.why == "3 duplicates"
    assert active(me) == [f"{short} really"]
    assert [len(record.evidence) for record in me.list()] == [3]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I have lived in the old town of Bern for 3 years", "I have lived in the old town of Bern for 5 years"),
        ("I like the new office in the old town of Bern", "I do not like the new office in the old town of Bern"),
        ("Maria drinks green tea without sugar in the morning", "Maria drinks green tea without sugar in the evening"),
        ("We meet in the big room on Monday at noon sharp", "We meet in the big room on Tuesday at noon sharp"),
    ],
)
def test_records_that_differ_in_meaning_stay_apart(first: str, second: str) -> None:
    me, _ = opened(open_sync_store("memory:"))
    for text in (first, second):
        episode(me, text)
    assert me.maintain().consolidated == ()
    assert len(me.list()) == 2


def _profile(me: SyncMemory, clock: SetClock) -> None:
    for key, value in (("seat", "window"), ("meal", "vegan"), ("coach", "quiet")):
        me.remember(key=f"travel.{key}", value=value)
    me.remember(key="language", value="english")
    clock.move(days=12)


def count_words(text: str) -> int:
    return len(text.split())


def test_a_consolidated_record_needs_consent_and_room(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store)
    _profile(me, clock)
    small = SyncMemoryClient(store, clock=clock, quotas=Quotas(content_bytes=Limit(hard=60))).of(me.principal)
    before = active(me)
    assert small.maintain(profile_tokens=1).consolidated == ()
    assert me.health().blocked == {"quota:content_bytes": 1}
    me.withdraw_consent("preference", "travel")
    assert me.maintain(profile_tokens=1).consolidated == ()
    assert sorted(record.text for record in me.list(kinds=["preference"])) == before
    assert me.health().blocked == {"consent_withdrawn": 1}


def test_a_large_profile_is_consolidated_by_the_first_part_of_its_keys(open_memory_store: OpenStore) -> None:
    me, clock = opened(open_memory_store(), count_tokens=count_words)
    _profile(me, clock)
    assert me.maintain(profile_tokens=20).consolidated == ()
    (change,) = me.maintain(profile_tokens=5).consolidated
    assert (change.key, change.why) == ("travel", "3 profile: travel")
    record = me.get(key="travel")
    assert record is not None
    assert record.value == "coach: quiet; meal: vegan; seat: window"
    assert me.maintain(profile_tokens=0).consolidated == ()
    me.remember(key="travel.meal", value="new")
    assert [change.key for change in me.maintain(profile_tokens=100).returned] == ["travel.seat", "travel.coach"]
    assert {record.key: record.value for record in me.list()} == {
        "travel.seat": "window",
        "travel.meal": "new",
        "travel.coach": "quiet",
        "language": "english",
    }


def test_forgetting_the_key_of_a_part_forgets_the_consolidated_profile() -> None:
    store = open_sync_store("memory:")
    me, clock = opened(store)
    _profile(me, clock)
    assert len(me.maintain(profile_tokens=1).consolidated) == 1
    me.forget(key="travel.meal")
    me.maintain()
    assert sorted(record.key for record in me.list()) == ["language", "travel.coach", "travel.seat"]
    assert "vegan" not in str(store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).log)


class Summaries:
    """A merger that writes summaries."""

    def __init__(self, answer: str | Exception | None) -> None:
        self.answer = answer
        self.texts: list[Sequence[str]] = []

    def merge(self, record: Record, candidate: Candidate, /) -> str | None:
        raise AssertionError(record, candidate)

    def summarize(self, texts: Sequence[str], /) -> str | None:
        self.texts.append(texts)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [None, "  ", RuntimeError("no model")])
def test_episodes_without_a_summary_stay(answer: str | Exception | None) -> None:
    store = open_sync_store("memory:")
    merger = Summaries(answer)
    me, clock = opened(store, merger=merger)
    parts = three_episodes(me, store)
    clock.move(days=31)
    assert me.maintain().consolidated == ()
    assert merger.texts == [[part.text for part in parts]]
    assert len(me.list()) == 3


def test_a_merger_writes_the_summary_and_a_dry_run_does_not_ask_it() -> None:
    store = open_sync_store("memory:")
    merger = Summaries("Atlas has problems.")
    me, clock = opened(store, merger=merger)
    three_episodes(me, store)
    clock.move(days=31)
    assert len(me.maintain(dry_run=True).consolidated) == 1
    assert merger.texts == []
    me.maintain()
    assert active(me) == ["Atlas has problems."]


def test_a_summary_passes_the_redactor() -> None:
    store = open_sync_store("memory:")
    me, clock = opened(store, merger=Summaries("The key is sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2))
    three_episodes(me, store)
    clock.move(days=31)
    assert me.maintain().consolidated == ()
    assert len(me.list()) == 3


def _without_ids(report: MaintainReport) -> list[object]:
    return [
        [(change.kind, change.key, change.why, change.parts) for change in getattr(report, name)]
        for name in ("promoted", "demoted", "decayed", "expired", "conflicts_found", "consolidated")
    ]


def _mixed(me: SyncMemory, store: SyncStore, clock: SetClock) -> None:
    three_episodes(me, store)
    episode(me, "dull", importance=0, entities=())
    me.remember(key="language", value="english", ttl_days=1)
    for text in ("I like jazz music", "I do not like jazz music any more"):
        me.remember(Fact("music " + text[:8], text))
    clock.move(days=100)


def test_a_dry_run_reports_what_the_next_call_does_and_writes_nothing(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store)
    _mixed(me, store, clock)
    agent = stream_of(me.principal.subject("user"))
    before = store.load_run(agent, STREAM_RUN).log
    dry = me.maintain(dry_run=True)
    assert store.load_run(agent, STREAM_RUN).log == before
    real = me.maintain()
    assert _without_ids(real) == _without_ids(dry)
    assert real.decayed
    assert real.expired
    assert real.consolidated


def test_calls_with_a_limit_do_the_same_as_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SLICE", 2)
    reports: list[list[MaintainReport]] = []
    for limit in (None, 1, 3):
        store = open_sync_store("memory:")
        me, clock = opened(store)
        _mixed(me, store, clock)
        parts = [me.maintain(limit=limit)]
        while parts[-1].remaining:
            parts.append(me.maintain(limit=limit))
        reports.append(parts)
    in_one_call, *in_parts = [
        {
            name: sorted((change.kind, change.key, change.why) for part in parts for change in getattr(part, name))
            for name in ("demoted", "decayed", "expired", "conflicts_found", "consolidated")
        }
        for parts in reports
    ]
    assert in_parts == [in_one_call, in_one_call]
    assert len(reports[0]) == 1
    assert len(reports[1]) > 5


def test_the_records_that_remain_are_counted_by_the_change_of_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SLICE", 2)
    me, _ = opened(open_sync_store("memory:"))
    for number in range(6):
        me.add(f"The number of part {number} is {number * 7}.")
    for record in me.list():
        me.update(record.id, text=f"{record.text} It was counted.")
    report = me.maintain(limit=8)  # ageing looks at six records, and the search for conflicts at two
    assert report.remaining == 4 + 6


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40), min_size=1, max_size=6))
def test_sentences_stay_within_the_limit_and_come_from_the_texts(texts: list[str]) -> None:
    if not any(text.strip() for text in texts):
        return
    sentences = sentences_of(texts, 10_000)
    assert len(sentences_of(texts, 50)) <= 50
    assert all(word in " ".join(texts).split() for word in sentences.split())


def test_sentences_name_each_fact_once_in_order() -> None:
    texts = ["Atlas failed. It needs 4.5 GB.", "It needs 4.5 GB. Maria fixed it!", "Atlas failed."]
    assert sentences_of(texts) == "Atlas failed. It needs 4.5 GB. Maria fixed it!"


def test_a_limit_holds_when_parts_become_records_again(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store, quotas=Quotas(records=Limit(hard=3)))
    parts = three_episodes(me, store)
    clock.move(days=31)
    (change,) = me.maintain().consolidated
    for text in ("Maria likes tea.", "The office is in Bern."):
        episode(me, text, importance=0)
    outcomes = me.separate(change.record).outcomes
    archived = [outcome.record for outcome in outcomes if outcome.action == "archived"]
    assert [record.text for record in archived if record is not None] == ["Maria likes tea.", "The office is in Bern."]
    assert active(me) == sorted(part.text for part in parts)


def test_a_part_returns_when_consent_is_given(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store)
    parts = three_episodes(me, store)
    clock.move(days=31)
    me.maintain()
    me.ask_consent("episode")
    store.redact_events("agent", "run", [parts[1].evidence[0].seq])
    for _ in range(2):
        assert me.maintain().returned == ()
    assert me.health().blocked == {}
    me.give_consent("episode")
    assert [change.record for change in me.maintain().returned] == [parts[0].id, parts[2].id]


def test_maintain_reports_what_gives_way_to_a_returned_record(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, clock = opened(store, quotas=Quotas(records=Limit(hard=3)))
    parts = three_episodes(me, store)
    clock.move(days=31)
    me.maintain()
    unimportant = [
        episode(me, text, importance=0, entities=()) for text in ("Maria likes tea.", "The office is in Bern.")
    ]
    store.redact_events("agent", "run", [parts[1].evidence[0].seq])
    report = me.maintain()
    assert len(report.returned) == 2
    (change,) = report.decayed
    assert (change.record, change.why) == (unimportant[0].id, "the memory is over its limit")
    assert active(me) == sorted([parts[0].text, parts[2].text, unimportant[1].text])
