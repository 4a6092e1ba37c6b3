"""Tests that contradicting memories stay linked, can be resolved and reopened, and fall with their evidence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec
import pytest

from agent_memory_log import SyncStore, UserMessage, new_event
from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.memory import (
    Candidate,
    Episode,
    Evidence,
    Fact,
    Limit,
    Link,
    Note,
    Quotas,
    Record,
    Source,
    SyncMemory,
    SyncMemoryClient,
)
from agent_memory_log.memory.policy import MemoryPolicy
from agent_memory_log.memory.records.reports.conflicts import Trust
from tests.growth import calls_of
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

Keep = Literal["first", "second", "both", "merged"]


def remembered(me: SyncMemory, key: str, value: str, **options: Any) -> Record:
    record = me.remember(Fact(key, value), **options).record
    assert record is not None
    return record


def two_records(me: SyncMemory) -> tuple[Record, Record]:
    return remembered(me, "diet note", "I am a vegetarian"), remembered(me, "meal note", "I ate a steak for dinner")


def values_of(me: SyncMemory) -> set[str]:
    return {record.value for record in me.list()}


def trust_of(me: SyncMemory, record: Record) -> Trust:
    explanation = me.explain(record.id)
    assert explanation is not None
    assert explanation.trust is not None
    return explanation.trust


def test_a_write_links_the_records_that_it_contradicts_and_both_stay(open_memory_store: OpenStore) -> None:
    me = SyncMemoryClient(open_memory_store()).of(somebody())
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    older, newer = two_records(me)
    assert newer.links == (Link("contradicts", older.id),)
    for memory in (me, other):
        assert values_of(memory) == {"I am a vegetarian", "I ate a steak for dinner"}
        (pair,) = memory.conflicts()
        assert (pair.newer.id, pair.older.id) == (newer.id, older.id)
        assert (pair.kind, pair.reason, pair.status) == ("contradiction", "opposite", "open")
        assert memory.conflicts(status="resolved") == ()


def test_records_of_one_write_are_compared_too(open_memory_store: OpenStore) -> None:
    me = SyncMemoryClient(open_memory_store()).of(somebody())
    me.write([Candidate(Episode("said"), text=text) for text in ("I love jazz", "I play chess", "I hate jazz")])
    (pair,) = me.conflicts()
    assert (pair.older.text, pair.newer.text) == ("I love jazz", "I hate jazz")


def test_a_new_value_of_a_key_supersedes_and_is_no_conflict(open_memory_store: OpenStore) -> None:
    me = SyncMemoryClient(open_memory_store()).of(somebody())
    remembered(me, "home", "Bern")
    newer = remembered(me, "home", "Lyon")
    assert me.conflicts() == ()
    assert [link.type for link in newer.links] == ["supersedes"]
    assert values_of(me) == {"Lyon"}


@pytest.mark.parametrize(
    ("keep", "resolution", "left"),
    [
        ("first", "older", {"I am a vegetarian"}),
        ("second", "newer", {"I ate a steak for dinner"}),
        ("both", "both", {"I am a vegetarian", "I ate a steak for dinner"}),
        ("merged", "merged", {"eats meat at weekends"}),
    ],
)
def test_each_resolution_ends_the_conflict_and_can_be_undone(
    open_memory_store: OpenStore, keep: Keep, resolution: str, left: set[str]
) -> None:
    me = SyncMemoryClient(open_memory_store()).of(somebody())
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    older, newer = two_records(me)
    text = "eats meat at weekends" if keep == "merged" else ""
    pair = me.resolve(older.id, newer.id, keep=keep, text=text)
    assert (pair.status, pair.resolution) == ("resolved", resolution)
    assert values_of(other) == left
    assert other.conflicts() == ()
    assert [ended.resolution for ended in other.conflicts(status="resolved")] == [resolution]
    events = me.stats().events
    assert other.resolve(newer.id, older.id, keep=keep, text=text).resolution == resolution
    assert me.stats().events == events

    pair = other.unresolve(older.id, newer.id)
    assert (pair.status, pair.older.value, pair.newer.value) == ("open", older.value, newer.value)
    assert values_of(me) == {older.value, newer.value}
    assert len(me.conflicts()) == 1
    assert me.conflicts(status="resolved") == ()
    assert me.rebuild().equal


@pytest.mark.parametrize("keep", ["first", "second", "merged"])
def test_a_conflict_that_a_caller_linked_can_be_resolved_and_reopened(open_memory_store: OpenStore, keep: Keep) -> None:
    me = SyncMemoryClient(open_memory_store()).of(somebody())
    older = remembered(me, "a", "the blue door")
    newer = remembered(me, "b", "the red gate", links=[Link("contradicts", older.id)])
    (pair,) = me.conflicts()
    assert (pair.kind, pair.reason) == ("contradiction", "linked")
    me.resolve(older.id, newer.id, keep=keep, text="a purple hatch" if keep == "merged" else "")
    assert me.conflicts() == ()
    pair = me.unresolve(older.id, newer.id)
    assert (pair.status, pair.older.value, pair.newer.value) == ("open", "the blue door", "the red gate")
    assert values_of(me) == {"the blue door", "the red gate"}
    assert len(me.conflicts()) == 1


def test_only_a_conflict_can_be_resolved(open_memory_store: OpenStore) -> None:
    client = SyncMemoryClient(open_memory_store())
    me, stranger = client.of(somebody()), client.of(somebody())
    older, newer = two_records(me)
    third = remembered(me, "colour", "blue")
    for memory, first, second in ((me, older.id, third.id), (me, older.id, "unknown"), (stranger, older.id, newer.id)):
        for call in (partial(memory.resolve, keep="both"), memory.unresolve):
            with pytest.raises(InvalidArgument, match="there is no conflict between"):
                call(first, second)
    with pytest.raises(InvalidArgument, match="text is missing"):
        me.resolve(older.id, newer.id, keep="merged")
    assert stranger.conflicts() == ()
    assert len(me.conflicts()) == 1


def _import_line(me: SyncMemory, links: list[Link]) -> object:
    line: dict[str, object] = {"kind": "note", "data": {}, "text": "a passport", "links": links}
    return me.import_jsonl(b'{"format": "agent-memory-log-records/1"}\n' + msgspec.json.encode(line))


def _update(me: SyncMemory, links: list[Link]) -> object:
    record = me.remember(Note(), text="a passport").record
    assert record is not None
    return me.update(record.id, links=links)


_WRITES: tuple[Callable[[SyncMemory, list[Link]], object], ...] = (
    lambda me, links: me.remember(Note(), text="a passport", links=links),
    lambda me, links: me.add_from_draft(Candidate(Note(), text="a passport", links=tuple(links))),
    lambda me, links: me.write([Candidate(Note(), text="a passport", links=tuple(links))]),
    lambda me, links: me.write([Candidate(Note(), text="a passport", links=tuple(links))], origin="import"),
    _update,
    _import_line,
)


@pytest.mark.parametrize("write", _WRITES)
def test_a_caller_cannot_write_the_links_of_the_library(
    open_memory_store: OpenStore, write: Callable[[SyncMemory, list[Link]], object]
) -> None:
    me = SyncMemoryClient(open_memory_store()).of(somebody())
    older, newer = two_records(me)
    archived = remembered(me, "colour", "blue")
    me.delete(archived.id)
    targets = (older.id, newer.id, archived.id)
    write(me, [*(Link(name, target) for name in ("restores", "reconciled") for target in targets), Link("a", "b")])
    assert len(me.conflicts()) == me.health().conflicts_open == 1
    restored = me.restore(archived.id).record
    assert restored is not None
    assert restored.value == "blue"
    me.forget(id=older.id)
    (note,) = me.list(kinds=["note"])
    assert (note.text, note.links) == ("a passport", (Link("a", "b"),))


_LETTERS = str.maketrans("0123456789", "abcdefghij")


def test_the_work_for_each_conflict_of_one_record_stays_the_same(open_memory_store: OpenStore) -> None:
    counts: list[int] = []
    for size in (50, 200):
        me = SyncMemoryClient(open_memory_store()).of(somebody())
        hub = remembered(me, "door", "the blue door")
        links = (Link("contradicts", hub.id),)
        words = (str(number).translate(_LETTERS) for number in range(size))  # two numbers would be a conflict
        me.write([Candidate(Note(), text=f"gate{word} plank{word}", links=links) for word in words])
        assert len(me.conflicts()) == size
        counts.append(calls_of(me.conflicts))
    assert counts[1] < 4.6 * counts[0]


def test_a_merger_gives_the_merged_text(open_memory_store: OpenStore) -> None:
    class Both:
        def merge(self, record: Record, candidate: Candidate, /) -> str:
            return f"{record.value}; {candidate.value}"

    me = SyncMemoryClient(open_memory_store(), merger=Both()).of(somebody())
    older, newer = two_records(me)
    merged = me.resolve(older.id, newer.id, keep="merged").merged
    assert merged is not None
    assert merged.value == "I am a vegetarian; I ate a steak for dinner"


def test_a_merger_that_raises_ends_no_conflict(open_memory_store: OpenStore) -> None:
    class Broken:
        def merge(self, record: Record, candidate: Candidate, /) -> str:
            raise ConnectionError(f"no model for {record.id} and {candidate.key}")

    me = SyncMemoryClient(open_memory_store(), merger=Broken()).of(somebody())
    older, newer = two_records(me)
    with pytest.raises(InvalidArgument, match="the merger raised ConnectionError") as caught:
        me.resolve(older.id, newer.id, keep="merged")
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert len(me.conflicts()) == 1
    assert me.resolve(older.id, newer.id, keep="merged", text="eats meat at weekends").resolution == "merged"


def test_a_merged_text_passes_the_policy(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    older, newer = two_records(me)
    strict = SyncMemoryClient(store, policy=MemoryPolicy(allowed_keys=frozenset({"colour"}))).of(me.principal)
    with pytest.raises(MemoryStopped):
        strict.resolve(older.id, newer.id, keep="merged", text="eats meat at weekends")
    assert values_of(me) == {older.value, newer.value}


@pytest.mark.parametrize("text", ["eats meat at weekends", "x" * 5_000])
def test_a_merged_text_needs_consent_and_room(open_memory_store: OpenStore, text: str) -> None:
    me = SyncMemoryClient(open_memory_store(), quotas=Quotas(content_bytes=Limit(hard=1_000))).of(somebody())
    older, newer = two_records(me)
    if len(text) < 1_000:
        me.ask_consent("fact")
    reason = "consent_asked" if len(text) < 1_000 else "quota:content_bytes"
    with pytest.raises(MemoryStopped, match=reason):
        me.resolve(older.id, newer.id, keep="merged", text=text)
    assert {record.value for record in me.list(kinds=["fact"])} == {older.value, newer.value}
    assert len(me.conflicts()) == 1
    assert me.health().blocked == {reason: 1}


def test_a_limit_holds_when_a_conflict_is_opened_again(open_memory_store: OpenStore) -> None:
    me = SyncMemoryClient(open_memory_store(), quotas=Quotas(records=Limit(hard=2))).of(somebody())
    older, newer = two_records(me)
    me.resolve(older.id, newer.id, keep="first")
    me.remember(key="language", value="english", importance=0)
    me.unresolve(older.id, newer.id)
    assert values_of(me) == {older.value, newer.value}


def say(store: SyncStore, me: SyncMemory, run: str, text: str) -> None:
    store.append_events("chat", run, new_event(UserMessage(text)))
    me.derive("chat", run)


@pytest.mark.parametrize("erased", ["first", "second"])
def test_a_merged_record_falls_with_the_evidence_of_either_part(open_memory_store: OpenStore, erased: str) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    say(store, me, "first", "yes=I love jazz")
    say(store, me, "second", "no=I hate jazz")
    (pair,) = me.conflicts()
    me.resolve(pair.older.id, pair.newer.id, keep="merged", text="likes some jazz")
    assert values_of(me) == {"likes some jazz"}
    store.delete_run("chat", erased)
    assert values_of(me) == set()
    assert me.conflicts(status="resolved") == ()


def test_a_conflict_ends_when_a_record_loses_its_evidence(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    say(store, me, "first", "yes=I love jazz")
    say(store, me, "second", "no=I hate jazz")
    doubted = trust_of(me, me.conflicts()[0].newer)
    store.delete_run("chat", "first")
    assert me.conflicts() == ()
    (left,) = me.list()
    assert left.value == "I hate jazz"
    assert trust_of(me, left).value > doubted.value


def test_trust_rises_with_sources_and_falls_with_conflicts_and_age(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = SyncMemoryClient(open_memory_store(), clock=clock).of(somebody())
    web = Source("web", "page", reliability=0.6)

    def cited(run: str) -> Any:
        return {"source": web, "evidence": [Evidence("chat", run, 1)]}

    record = remembered(me, "plan", "I love jazz", **cited("one"))
    alone = trust_of(me, record)
    assert (alone.value, alone.source, alone.sources) == (0.6, 0.6, 1)
    remembered(me, "plan", "I love jazz", **cited("two"))
    confirmed = trust_of(me, record)
    assert confirmed.sources == 2
    assert confirmed.confirmed == 1
    assert confirmed.value > alone.value
    against = remembered(me, "mood", "I hate jazz", source=Source("user", "42"))
    doubted = trust_of(me, record)
    assert (doubted.conflicts, doubted.contradicted) == (1, 1)
    assert doubted.value < confirmed.value
    events = me.stats().events
    clock.move(days=1_000)
    assert trust_of(me, record).freshness == 0.5  # its half-life
    assert me.stats().events == events
    me.resolve(record.id, against.id, keep="first")
    risen = trust_of(me, record)
    assert (risen.conflicts, risen.doubt, risen.contradicted) == (0, 1.0, 0)


def test_a_full_memory_opens_no_conflict_that_would_end_at_once(open_memory_store: OpenStore) -> None:
    me = SyncMemoryClient(open_memory_store(), max_keyed=2).of(somebody())
    older, newer = two_records(me)
    me.resolve(newer.id, older.id, keep="first")
    other = remembered(me, "city", "Bern", importance=0.9)
    with pytest.raises(InvalidArgument, match="the memory is full"):
        me.unresolve(newer.id, older.id)
    assert values_of(me) == {newer.value, "Bern"}
    me.delete(other.id)
    assert me.unresolve(newer.id, older.id).status == "open"


def test_a_context_marks_the_older_record_and_never_has_it_alone(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = SyncMemoryClient(open_memory_store(), clock=clock).of(somebody())
    remembered(me, "a", "I love jazz", importance=0.9)
    me.remember(Episode("said"), text="I eat meat with my noodles")
    clock.move(days=1)
    remembered(me, "b", "I hate jazz", importance=0.1)
    me.remember(Episode("said"), text="I am a vegetarian")
    assert len(me.conflicts()) == 2
    complete = me.context("does the user eat meat with noodles?")
    marked = [line for line in complete.text.splitlines() if line.endswith(" (a newer memory contradicts this)")]
    assert ["jazz" in line or "noodles" in line for line in marked] == [True, True]
    assert len(complete.records) == 4
    shorter = [me.context("does the user eat meat with noodles?", max_tokens=tokens).text for tokens in range(50, 150)]
    assert any("hate jazz" in text and "love jazz" not in text for text in shorter)
    assert not any("love jazz" in text and "hate jazz" not in text for text in shorter)
    shorter = [me.context("does the user eat meat with noodles?", max_tokens=tokens).text for tokens in range(50, 250)]
    assert any("vegetarian" in text and "noodles" not in text for text in shorter)
    assert not any("noodles" in text and "vegetarian" not in text for text in shorter)
