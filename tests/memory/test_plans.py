"""Tests of the plan of a search, of lists of every instance, of rerankers, and of changed values in a context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Fact, Hits, Link, Preference, Principal, SyncMemory, SyncMemoryClient
from agent_memory_log.store import SyncStore

DAY = datetime(2026, 3, 2, 19, tzinfo=UTC)


def memory_of(store: SyncStore, texts: Sequence[str], reranker: Reranked | None = None) -> SyncMemory:
    """Return a memory with a linked run for each text, a day apart."""
    me = SyncMemoryClient(store, reranker=reranker).of(Principal("t", {"user": "u"}))
    for day, text in enumerate(texts):
        store.append_events("a", str(day), new_event(UserMessage(text), timestamp=DAY + timedelta(days=day)))
        me.link_run("a", str(day))
    return me


class Reranked:
    """A reranker that scores texts by a function, and keeps the texts that it was given."""

    def __init__(self, score: Callable[[str], float]) -> None:
        self.texts: list[str] = []
        self._score = score

    def rerank(self, query: str, texts: Sequence[str], /) -> Sequence[float]:
        assert query
        self.texts += texts
        return [self._score(text) for text in texts]


def test_the_plan_of_the_hits_says_how_the_question_was_answered() -> None:
    with open_sync_store("memory:") as store:
        me = memory_of(store, ["the pump of the boat broke"])
        assert me.search("Why did my pump break?").plan.strategies == ("words", "trace", "profile")
        latest = me.search("What is the latest news of Ines on 3 March 2026?").plan
        assert (latest.order, latest.strategies, latest.limit) == ("latest", ("words", "entity"), 4)
        assert latest.times[0] == (datetime(2026, 3, 3, tzinfo=UTC), datetime(2026, 3, 4, tzinfo=UTC))
        every = me.search("List all pumps").plan
        assert (every.every, every.limit, every.current) == (True, 50, True)
        assert me.search("List all pumps", top_k=2).plan.limit == 2
        assert not me.search("When did the pump break?").plan.current
        assert me.search("Which preferences do I have?").plan.kinds == ("preference",)


@pytest.mark.parametrize("question", ["How many times did we eat sushi?", "List all the times when we ate sushi"])
def test_a_question_for_every_instance_brings_them_all_over_runs(question: str) -> None:
    texts = [f"we ate sushi with friend number {number}" for number in range(12)] + ["it rained"] * 5
    with open_sync_store("memory:") as store:
        me = memory_of(store, texts)
        assert {hit.text for hit in me.search(question)} == set(texts[:12])
        assert len(me.search("Did we eat sushi?")) == 4
        assert len(me.search(question, top_k=3)) == 3


def test_each_run_comes_before_the_second_hit_of_a_run() -> None:
    with open_sync_store("memory:") as store:
        me = memory_of(store, ["we ate sushi, such good sushi", "some sushi in town, it was cheap and we ate a lot"])
        store.append_events("a", "0", new_event(UserMessage("sushi again, we ate sushi"), timestamp=DAY))
        runs = [hit.evidence[0].run for hit in me.search("How many times did we eat sushi?")]
    assert sorted(runs) == ["0", "0", "1"]
    assert set(runs[:2]) == {"0", "1"}


def test_records_of_a_kind_that_the_question_names_come_first() -> None:
    with open_sync_store("memory:") as store:
        me = memory_of(store, ["my travel preferences are a long story, my travel preferences again"])
        me.remember(key="seat", value="aisle when I travel")
        hits = me.search("What are my travel preferences?")
    assert [hit.kind for hit in hits] == ["preference", "message"]


def test_a_question_about_a_cause_brings_the_linked_record() -> None:
    with open_sync_store("memory:") as store:
        me = memory_of(store, [])
        cause = me.remember(Fact("weather", "hard frost in January")).record
        assert cause is not None
        me.remember(Fact("pump", "the pump broke"), links=(Link("caused_by", cause.id),))
        why = me.search("Why did the pump break?")
        assert cause.id in [hit.id for hit in why]
        assert "trace" in next(hit for hit in why if hit.id == cause.id).matched_by
        assert cause.id not in [hit.id for hit in me.search("When did the pump break?")]
        assert cause.id not in [hit.id for hit in me.search("Why did the pump break?", until=cause.created)]
        me.remember(Preference("pump", "a new pump"), links=(Link("caused_by", cause.id),))
        assert [hit.kind for hit in me.search("Why a new pump?", kinds=("preference",))] == ["preference"]


def test_a_reranker_orders_the_hits_again() -> None:
    texts = [f"the pump broke {'again ' * number}" for number in range(6)]
    reranker = Reranked(lambda text: text.count("again"))
    with open_sync_store("memory:") as store:
        hits = memory_of(store, texts, reranker).search("Did the pump break?", top_k=2)
    assert sorted(reranker.texts) == sorted(texts)
    assert [hit.text for hit in hits] == [texts[5], texts[4]]
    assert all(sum(hit.matched_by.values()) == pytest.approx(hit.score) for hit in hits)


def broken(_: str) -> float:
    raise OSError("the model is away")


def not_a_number(_: str) -> float:
    return float("nan")


@pytest.mark.parametrize(("score", "reason"), [(broken, "the model is away"), (not_a_number, "finite")])
def test_a_reranker_that_fails_leaves_the_hits_and_a_note(score: Callable[[str], float], reason: str) -> None:
    texts = ["the pump broke", "the pump is blue"]
    with open_sync_store("memory:") as store:
        with_reranker = memory_of(store, texts, Reranked(score)).search("Did the pump break?")
        plain: Hits = SyncMemoryClient(store).of(Principal("t", {"user": "u"})).search("Did the pump break?")
    assert with_reranker == plain
    assert reason in with_reranker.note


def test_a_context_has_the_new_value_and_says_that_it_is_newer() -> None:
    texts = ["I booked pitch 18 at Scarrow Farm", "it rained all day", "the farm mailed, so they put us on 31 now"]
    with open_sync_store("memory:") as store:
        text = memory_of(store, texts).context("Which pitch are we on?").text
    (newer,) = [line for line in text.splitlines() if "31" in line]
    assert newer.endswith("(newer, and may change an earlier message)")
    assert "pitch 18" in text


def test_a_memory_that_is_forgotten_while_a_reranker_works_is_not_returned() -> None:
    with open_sync_store("memory:") as store:
        forgetting: list[SyncMemory] = []

        def score(_: str) -> float:
            forgetting.pop().forget(key="hobby") if forgetting else None
            return 1.0

        me = memory_of(store, [], Reranked(score))
        me.remember(key="hobby", value="falconry")
        assert [hit.text for hit in me.search("What is the hobby?")] == ["hobby: falconry"]
        forgetting.append(me)
        assert list(me.search("What is the hobby?")) == []


def test_a_list_keeps_its_instances_under_negative_scores_of_a_reranker() -> None:
    texts = [f"we ate sushi with friend {number}" for number in range(6)]
    with open_sync_store("memory:") as store:
        hits = memory_of(store, texts, Reranked(lambda _: -3.0)).search("List all the times we ate sushi")
    assert sorted(hit.text for hit in hits) == texts


def test_a_change_stays_above_a_fact_about_the_user() -> None:
    with open_sync_store("memory:") as store:
        me = memory_of(store, [])
        me.remember(Fact("physio", "my physio for my knee is Bronwyn"))
        event = new_event(UserMessage("my back hurts, I see some physio named Idris now"))
        store.append_events("a", "later", event)
        me.link_run("a", "later")
        for question in ("Who is the physio for the knee?", "Who is my physio for my knee?"):
            assert "Idris" in me.search(question)[0].text


def test_the_latest_comes_first_over_several_scopes() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("t", {"user": "u", "team": "x"}))
        for day in (2, 3, 4, 5):
            text = f"news of the physio on day {day}"
            store.append_events("a", str(day), new_event(UserMessage(text), timestamp=DAY + timedelta(days=day)))
            me.link_run("a", str(day), scope="team" if day % 2 else "user")
        hits = me.search("What is the latest news of the physio?")
    assert [hit.text[-1] for hit in hits] == ["5", "4", "3", "2"]
    assert all(sum(hit.matched_by.values()) == pytest.approx(hit.score) for hit in hits)
