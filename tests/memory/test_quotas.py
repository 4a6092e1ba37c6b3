"""Quotas: the limits of a subject hold after each write, and the order in which records give way."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import Candidate, Episode, Fact, Preference, Record, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.records.quotas import Limit, LimitUse, Quotas
from agent_memory_log.memory.records.record import Status, stars_of
from agent_memory_log.models.tokens import estimate_tokens
from tests.memory.stores import OpenStore, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


def me_in(open_memory_store: OpenStore, quotas: Quotas, **options: Any) -> SyncMemory:
    return SyncMemoryClient(open_memory_store(), quotas=quotas, **options).of(somebody())


def texts(me: SyncMemory) -> list[str]:
    return [record.text for record in me.list()]


def episode(me: SyncMemory, text: str, stars: int = 3, **options: Any) -> list[tuple[str, str]]:
    """Remember an episode. Return the actions of the write, with the texts of the records."""
    candidate = Candidate(Episode("x"), text=text, importance=(stars - 1) / 4, **options)
    outcomes = me.write([candidate]).outcomes
    return [(outcome.action, "" if outcome.record is None else outcome.record.text) for outcome in outcomes]


def test_above_a_hard_limit_the_least_important_and_oldest_give_way(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = me_in(open_memory_store, Quotas(records=Limit(hard=3)), clock=clock)
    for text, stars in (("old", 3), ("older but important", 5), ("unimportant", 2)):
        clock.move(seconds=1)
        episode(me, text, stars)
    clock.move(seconds=1)
    assert episode(me, "new") == [("written", "new"), ("archived", "unimportant")]
    clock.move(seconds=1)
    assert episode(me, "newer") == [("written", "newer"), ("archived", "old")]
    assert texts(me) == ["older but important", "new", "newer"]
    assert {record.text for record in me.list(status="archived")} == {"unimportant", "old"}
    assert me.rebuild().equal


def test_a_new_value_of_a_key_takes_the_room_of_the_old_one(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store, Quotas(records=Limit(hard=2), content_bytes=Limit(hard=100)))
    for number in range(5):
        outcomes = me.write([Candidate(Preference("a", f"{number}")), Candidate(Preference("b", f"{number}"))]).outcomes
        assert [outcome.action for outcome in outcomes] == ["written", "written"]
    assert [record.value for record in me.list()] == ["4", "4"]
    assert me.list(status="archived") == ()


def test_expired_records_give_way_first(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = me_in(open_memory_store, Quotas(records=Limit(hard=2)), clock=clock)
    episode(me, "stays", 1)
    episode(me, "ends", 5, ttl_days=1)
    clock.move(days=2)
    assert episode(me, "new") == [("written", "new")]
    assert texts(me) == ["stays", "new"]
    assert [record.text for record in me.list(status="expired")] == ["ends"]


def test_above_a_soft_limit_only_records_with_few_stars_give_way(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store, Quotas(records=Limit(soft=2, hard=4)))
    for text in ("one", "two", "three"):
        assert episode(me, text) == [("written", text)]
    assert episode(me, "weak", 2) == [("written", "weak")], "a new record does not give way to itself"
    assert episode(me, "five") == [("written", "five"), ("archived", "weak")]
    assert episode(me, "six") == [("written", "six"), ("archived", "one")]
    assert len(texts(me)) == 4
    (use,) = [use for use in me.quotas() if use.scope == "user" and use.limit == "records"]
    assert use == LimitUse("user", "records", 4, 2, 4)


def test_a_record_that_is_larger_than_a_limit_is_blocked(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store, Quotas(content_bytes=Limit(hard=400), profile_tokens=Limit(hard=20)))
    me.remember(key="drink", value="tea")
    episode(me, "small")
    before = me.list()
    (outcome,) = me.write([Candidate(Episode("x"), text="x" * 400)]).outcomes
    assert (outcome.action, outcome.reason) == ("blocked", "quota:content_bytes")
    assert me.remember(key="book", value="word " * 30).reason == "quota:profile_tokens"
    assert me.update(before[0].id, tags=["t" * 400]).reason == "quota:content_bytes"
    assert me.list() == before
    assert me.stats().blocked == {"quota:content_bytes": 2, "quota:profile_tokens": 1}


def test_tokens_of_the_profile_make_only_keyed_records_give_way(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = me_in(open_memory_store, Quotas(profile_tokens=Limit(hard=12)), clock=clock)
    episode(me, "an unimportant episode that is far longer than the profile may be", 1)
    for key in ("first", "second", "third"):
        clock.move(seconds=1)
        me.remember(key=key, value="a value")
    profile = [record.text for record in me.list(kinds=["preference"])]
    assert profile == ["second: a value", "third: a value"]
    assert sum(map(estimate_tokens, profile)) <= 12
    assert len(me.list(kinds=["episode"])) == 1


def test_a_change_of_a_record_makes_room_too(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store, Quotas(content_bytes=Limit(hard=250)))
    for text in ("one", "two"):
        episode(me, text * 20)
    (first, _) = me.list()
    me.update(first.id, tags=["tag" * 40])
    assert [record.id for record in me.list()] == [first.id]


def test_consents_never_count_and_never_give_way(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store, Quotas(records=Limit(hard=1), content_bytes=Limit(hard=100)), max_keyed=1)
    for number in range(20):
        me.give_consent("preference", f"k{number}")
    me.remember(key="k1", value="v")
    me.remember(key="k2", value="v")
    assert [record.key for record in me.list(kinds=["preference"])] == ["k2"]
    assert len(me.list(kinds=["consent"])) == 20
    assert {use.limit: use.used for use in me.quotas(scopes=["user"])} == {
        "keyed": 1, "records": 1, "content_bytes": 42, "profile_tokens": 4
    }  # fmt: skip


def test_a_consent_makes_no_record_give_way(open_memory_store: OpenStore) -> None:
    store, principal = open_memory_store(), somebody()
    free = SyncMemoryClient(store).of(principal)
    for key in ("drink", "city", "name"):
        free.remember(key=key, value="x")
    free.remember(Fact("job", "nurse"))
    limited = SyncMemoryClient(store, quotas=Quotas(records=Limit(hard=3))).of(principal)
    limited.ask_consent("preference", "drink")
    limited.withdraw_consent("fact")
    assert {record.key for record in limited.list(kinds=["preference"])} == {"drink", "city", "name"}
    assert limited.list(kinds=["fact"]) == ()


def test_each_scope_has_its_own_limits(open_memory_store: OpenStore) -> None:
    me = me_in(open_memory_store, Quotas(records=Limit(hard=1)))
    me.remember(key="a", value="v")
    me.remember(key="a", value="v", scope="workspace")
    assert len(me.list()) == 2
    assert [(use.scope, use.limit, use.used, use.soft, use.hard) for use in me.quotas()] == [
        (scope, limit, used, None, hard)
        for scope in ("user", "workspace")
        for limit, used, hard in (
            ("keyed", 1, 1_000), ("records", 1, 1), ("content_bytes", 39, None), ("profile_tokens", 3, None)
        )
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "1"])
def test_wrong_limits_are_refused(wrong: Any) -> None:
    for name in ("soft", "hard"):
        with pytest.raises(InvalidArgument, match=rf"^{name} must be an integer from 1"):
            Limit(**{name: wrong})
    with pytest.raises(InvalidArgument, match=r"^soft must be at most hard, got 3 and 2"):
        Limit(soft=3, hard=2)
    with pytest.raises(InvalidArgument, match=r"^records must be a Limit, such as"):
        Quotas(records=wrong)
    with open_sync_store("memory:") as store, pytest.raises(InvalidArgument, match=r"^quotas must be a Quotas"):
        SyncMemoryClient(store, quotas=wrong)


def limit(soft: int | None, more: int | None) -> Limit:
    """Return a limit whose hard part is larger than the soft part."""
    return Limit(soft, None if more is None or soft is None else soft + more)


LIMITS = st.builds(limit, st.none() | st.integers(1, 6), st.none() | st.integers(0, 4))
WRITES = st.lists(
    st.tuples(
        st.sampled_from(["preference", "fact", "episode"]),
        st.integers(1, 5),
        st.integers(1, 12),
        st.none() | st.integers(1, 3),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=14,
)


def measured(records: tuple[Record, ...]) -> dict[str, int]:
    """Return what the limits count, without the code that enforces them."""
    sizes = [
        json.dumps([r.key, r.text, r.data.to_map(), [*r.entities, *r.tags]], separators=(",", ":")) for r in records
    ]
    return {
        "keyed": sum(bool(record.key) for record in records),
        "records": len(records),
        "content_bytes": sum(map(len, sizes)),
        "profile_tokens": sum(estimate_tokens(record.text) for record in records if record.key),
    }


@given(LIMITS, st.none() | st.integers(60, 400), st.none() | st.integers(4, 30), st.integers(1, 6), WRITES)
def test_hard_limits_hold_after_each_write_and_nothing_is_lost(
    records: Limit, most_bytes: int | None, most_tokens: int | None, max_keyed: int, writes: list[Any]
) -> None:
    quotas = Quotas(records, Limit(hard=most_bytes), Limit(hard=most_tokens))
    clock = SetClock()
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, quotas=quotas, max_keyed=max_keyed, clock=clock).of(somebody())
        written: set[str] = set()
        for number, (kind, stars, words, ttl, count) in enumerate(writes):
            clock.move(days=0.7)
            before = {record.id: record for record in me.list()}
            candidates = [
                Candidate(
                    Episode("x")
                    if kind == "episode"
                    else (Fact if kind == "fact" else Preference)(f"k{n}", "w" * words),
                    text=f"{number} {n} " + "word " * words if kind == "episode" else "",
                    importance=(stars - 1) / 4,
                    ttl_days=ttl,
                )
                for n in range(count)
            ]
            report = me.write(candidates)
            now = {record.id: record for record in me.list()}
            use = measured(tuple(now.values()))
            limits = {"keyed": max_keyed, "records": records.hard, "content_bytes": most_bytes}
            limits["profile_tokens"] = most_tokens
            for name, hard in limits.items():
                assert hard is None or use[name] <= hard
            if not any(ttl for *_, ttl, _ in writes):  # an expired record counts until it is closed
                assert {item.limit: item.used for item in me.quotas(scopes=["user"])} == use
            archived = [outcome.record for outcome in report.outcomes if outcome.action == "archived"]
            new = {outcome.record.id for outcome in report.outcomes if outcome.record and outcome.action == "written"}
            if archived and records.soft is None and not ttl:
                remaining = [record for record in before.values() if record.id in now and record.updated < clock.time]
                least = [stars_of(record.importance) for record in archived if record and record.id in before]
                only_records = most_bytes is None and most_tokens is None and max_keyed == 6
                assert not (only_records and remaining and least) or max(least) <= min(
                    stars_of(r.importance) for r in remaining
                )
            written |= new
            assert written == {record.id for status in get_args(Status) for record in me.list(status=status)}
        assert me.rebuild().equal


def test_the_order_does_not_depend_on_the_batch(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = me_in(open_memory_store, Quotas(records=Limit(hard=2)), clock=clock)
    me.write([Candidate(Episode("x"), text=f"{n}", importance=n / 10) for n in range(6)])
    assert sorted(texts(me)) == ["4", "5"]
    clock.move(seconds=1)
    assert timedelta(seconds=1) == clock.time - me.list()[0].created
