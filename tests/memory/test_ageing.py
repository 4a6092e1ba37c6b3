"""Tests how records age: the curve, the effect of uses, and when uses are stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import SyncStore, open_store, open_sync_store
from agent_memory_log.memory import Episode, Evolution, MemoryClient, Principal, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.governance.ageing import LONGEST_STABILITY, retrievability, strength_of
from agent_memory_log.memory.records.principals import STREAM_RUN, stream_of
from agent_memory_log.memory.stream.payloads import MemoryRemembered, MemoryUsed
from agent_memory_log.memory.stream.state import Live
from tests.memory.stores import OpenStore, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

_START = datetime(2026, 1, 1, tzinfo=UTC)

days = st.floats(0, 40_000)
stabilities = st.floats(0.1, LONGEST_STABILITY)


def live_of(importance: float = 0.5, kind: str = "fact", used: tuple[int, ...] = ()) -> Live:
    memory = MemoryRemembered(kind, {"category": "error"}, importance=importance, text="text")
    return Live("id", 1, _START, _START, memory, used=used)


def evolution(me: SyncMemory, record: str) -> Evolution:
    result = me.evolution_events(record)
    assert result is not None
    return result


def uses_in(store: SyncStore, who: Principal) -> list[tuple[datetime, tuple[str, ...]]]:
    """Return the time and the records of each event that notes uses."""
    stream = store.load_run(stream_of(who.subject("user")), STREAM_RUN)
    return [(event.timestamp, event.data.records) for event in stream.log if isinstance(event.data, MemoryUsed)]


@given(days, days, stabilities)
def test_retrievability_falls_from_1_and_is_90_percent_after_the_stability(
    early: float, late: float, stability: float
) -> None:
    assert retrievability(0, stability) == 1
    assert retrievability(stability, stability) == pytest.approx(0.9)
    assert 0 < retrievability(max(early, late), stability) <= retrievability(min(early, late), stability) <= 1


@given(st.floats(0, 1), st.sampled_from(["fact", "episode", "unknown"]), st.lists(st.integers(0, 500), unique=True))
def test_each_day_of_use_doubles_the_stability_up_to_a_limit(importance: float, kind: str, ages: list[int]) -> None:
    used = tuple(sorted(_START.toordinal() + age for age in ages))[-16:]
    now = _START + timedelta(days=500)
    unused = strength_of(live_of(importance, kind), now)
    strength = strength_of(live_of(importance, kind, used), now)
    assert strength.stability_days == min(unused.stability_days * 2 ** len(used), LONGEST_STABILITY)
    assert strength.retrievability >= unused.retrievability
    assert strength.used_on_days == len(used)


def test_important_memories_and_facts_are_more_stable_than_unimportant_episodes() -> None:
    now = _START + timedelta(days=61)
    assert strength_of(live_of(0.25, "episode"), now).retrievability < 0.1
    assert strength_of(live_of(0.5, "episode"), now).retrievability > 0.1
    assert strength_of(live_of(0.25), now).retrievability > 0.4
    assert strength_of(live_of(1), now).stability_days == 40


def test_layers_follow_from_the_stability_and_the_last_use() -> None:
    later = _START + timedelta(days=3)
    assert strength_of(live_of(), _START).layer == "working"
    assert strength_of(live_of(), later).layer == "short_term"
    assert strength_of(live_of(used=(later.toordinal(),)), later).layer == "working"
    used_twice = live_of(used=(_START.toordinal(), later.toordinal()))
    assert strength_of(used_twice, later).layer == "long_term"
    assert strength_of(used_twice, _START).layer == "working", "a later use does not count"


def test_a_context_counts_as_a_use_and_the_next_write_stores_it(open_memory_store: OpenStore) -> None:
    store, clock, who = open_memory_store(), SetClock(), somebody(user="1")
    me = SyncMemoryClient(store, clock=clock).of(who)
    record = me.remember(key="language", value="english").record
    assert record is not None
    assert evolution(me, record.id).stability_days == 10
    before = store.load_run(stream_of(who.subject("user")), STREAM_RUN).version
    assert me.context("language").records == (record.id,)
    me.search("language")
    assert store.load_run(stream_of(who.subject("user")), STREAM_RUN).version == before, "reads do not write"
    me.remember(key="tone", value="dry")
    assert uses_in(store, who) == [(clock.time, (record.id,))]
    other = SyncMemoryClient(store, clock=clock).of(who)
    assert evolution(other, record.id).stability_days == 20
    assert evolution(other, record.id).used_on_days == 1


def test_uses_are_stored_at_most_once_a_minute(open_memory_store: OpenStore) -> None:
    store, clock, who = open_memory_store(), SetClock(), somebody(user="1")
    me = SyncMemoryClient(store, clock=clock).of(who)
    for number in range(130):
        me.remember(key="language", value=str(number))
        me.context("language")
        clock.move(seconds=1)
    times = [time for time, _ in uses_in(store, who)]
    assert len(times) == 3
    assert all(later - earlier >= timedelta(minutes=1) for earlier, later in pairwise(times))


def test_uses_of_one_day_count_once_and_the_next_day_counts_again(open_memory_store: OpenStore) -> None:
    store, clock, who = open_memory_store(), SetClock(), somebody(user="1")
    me = SyncMemoryClient(store, clock=clock).of(who)
    record = me.remember(key="language", value="english").record
    assert record is not None
    for days_used in (1, 2, 3):
        for _ in range(3):
            me.context("language")
            clock.move(minutes=2)
            me.remember(key="tone", value="dry")
        assert evolution(me, record.id).used_on_days == days_used
        assert evolution(me, record.id).stability_days == 10 * 2**days_used
        clock.move(days=1)


def test_closing_the_client_stores_uses(open_memory_store: OpenStore) -> None:
    store, clock, who = open_memory_store(), SetClock(), somebody(user="1")
    with SyncMemoryClient(store, clock=clock) as client:
        client.of(who).remember(Episode("error"), text="The build failed")
        (used,) = client.of(who).context("build").records
    assert [records for _, records in uses_in(store, who)] == [(used,)]


async def test_closing_a_client_whose_store_is_closed_raises_nothing() -> None:
    store = await open_store("memory:")
    client = MemoryClient(store)
    me = client.of(somebody(user="1"))
    await me.remember(key="language", value="english")
    await me.context("language")
    await store.aclose()
    await client.aclose()


def test_a_forgotten_record_leaves_no_use() -> None:
    store, who = open_sync_store("memory:"), somebody(user="1")
    me = SyncMemoryClient(store).of(who)
    me.remember(key="language", value="english")
    me.context("language")
    me.forget(key="language")
    me.remember(key="tone", value="dry")
    assert uses_in(store, who) == []


def test_a_kind_that_does_not_age_keeps_its_stability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Episode, "ages", False)
    strength = strength_of(live_of(0, "episode"), _START + timedelta(days=300))
    assert strength.stability_days == LONGEST_STABILITY
    assert msgspec.structs.asdict(strength)["layer"] == "long_term"
