"""Searching memory: records and messages of linked runs, over every backend, and what is never found."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    Event,
    SystemMessage,
    UnknownPayload,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.memory import (
    Candidate,
    Episode,
    Evidence,
    Extraction,
    Fact,
    Hits,
    MemoryClient,
    Preference,
    Principal,
    RunSlice,
    SyncMemory,
    SyncMemoryClient,
    stream_of,
)
from agent_memory_log.memory.records.principals import STREAM_RUN
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

CLOCK = SetClock()
ANYTHING = None
"""Every kind."""


def said(text: str, *, speaker: str = "", **before: float) -> Event:
    labels = {"speaker": speaker} if speaker else None
    return new_event(UserMessage(text), timestamp=CLOCK() - timedelta(**before), labels=labels)


def client(open_memory_store: OpenStore, **options: Any) -> SyncMemoryClient:
    return SyncMemoryClient(open_memory_store(), clock=CLOCK, **options)


def agent_of(me: SyncMemory) -> str:
    """An agent that no other test has."""
    return f"agent {me.principal.tenant}"


def texts(hits: Hits) -> list[str]:
    return [hit.text for hit in hits]


def test_the_messages_of_a_linked_run_are_found_and_cited(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    store, agent = open_memory_store(), agent_of(me)
    first = said("The refund for order 7 never came", speaker="Caroline", days=2)
    store.append_events(agent, "r/1", first, new_event(AssistantMessage("Let me look into it")))
    assert me.search("refund") == ()
    me.link_run(agent, "r/1")
    (hit, *_) = me.search("what did Caroline say about the refund?")
    assert (hit.text, hit.kind, hit.record) == ("The refund for order 7 never came", "message", None)
    assert hit.evidence == (Evidence(agent, "r/1", 1),)
    assert hit.message is not None
    assert (hit.message.speaker, hit.message.time) == ("Caroline", first.timestamp)
    assert hit.score == pytest.approx(sum(hit.matched_by.values()))
    assert list(hit.matched_by) == sorted(hit.matched_by)
    assert {"words", "speaker"} <= hit.matched_by.keys()
    assert hit.id == f"{agent}/r%2F1#1"
    version = store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).version
    me.link_run(agent, "r/1")
    assert store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).version == version
    store.append_events(agent, "r/1", said("Is there any news of it?", speaker="user"))
    assert "Is there any news of it?" in texts(me.search("news"))


def test_records_and_messages_are_found_together_and_derive_links(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store, extractor=SaidPreferences()).of(somebody())
    agent = agent_of(me)
    open_memory_store().append_events(agent, "run", said("update_channel=phone"), said("Invoices go by phone please"))
    me.derive(agent, "run")
    me.remember(Episode("error"), text="The phone broke", importance=1, scope="workspace")
    hits = me.search("phone", top_k=9)
    assert {(hit.kind, hit.record and hit.record.scope) for hit in hits} == {
        ("preference", "user"),
        ("episode", "workspace"),
        ("message", None),
    }
    assert {hit.kind for hit in me.search("phone", kinds=["message"])} == {"message"}
    assert [hit.kind for hit in me.search("phone", min_importance=5)] == ["episode"]
    me.link_run(agent, "only linked")
    assert [report.run for report in me.rederive()] == ["run"]


def test_nothing_but_what_was_said_is_a_message(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    store, agent = open_memory_store(), agent_of(me)
    store.append_events(
        agent,
        "run",
        new_event(SystemMessage("zebra one")),
        new_event(UnknownPayload("injected_context", {"message": "zebra two", "text": "zebra two"})),
        new_event(UserMessage("  ")),
    )
    store.append_events(agent, "off", said("zebra three"), meta={"memory": False})
    for run in ("run", "off", "not there"):
        me.link_run(agent, run)
    assert me.search("zebra", kinds=ANYTHING) == ()
    store.append_events(agent, "not there", said("zebra four"))
    assert texts(me.search("zebra")) == ["zebra four"]


def test_what_was_redacted_or_deleted_is_gone_at_the_next_search(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    store, agent = open_memory_store(), agent_of(me)
    for run in ("a", "b"):
        store.append_events(agent, run, said(f"zebra {run} one"), said(f"zebra {run} two"))
        me.link_run(agent, run)
    assert len(me.search("zebra", top_k=9)) == 4
    store.redact_events(agent, "a", [2])
    assert sorted(texts(me.search("zebra", top_k=9))) == ["zebra a one", "zebra b one", "zebra b two"]
    store.delete_run(agent, "b")
    assert texts(me.search("zebra", top_k=9)) == ["zebra a one"]
    store.append_events(agent, "b", said("zebra again"))
    assert sorted(texts(me.search("zebra", top_k=9))) == ["zebra a one", "zebra again"]


def test_what_was_forgotten_is_not_found_where_it_was_said(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store, extractor=SaidPreferences()).of(somebody())
    store, agent = open_memory_store(), agent_of(me)
    store.append_events(agent, "run", said("language=english"), said("tone=dry"))
    store.append_events(agent, "other", said("The language is tone deaf"))
    me.derive(agent, "run")
    me.link_run(agent, "other")
    assert len(me.search("language tone", top_k=9)) == 5
    me.forget(key="language")
    assert texts(me.search("english")) == []
    assert "tone=dry" in texts(me.search("tone"))
    store.append_events(agent, "run", said("tone is what I do not want"))
    me.forget_all()
    assert me.search("language english tone dry deaf want", kinds=ANYTHING) == ()
    store.append_events(agent, "run", said("language=german"))
    assert texts(me.search("language")) == ["language=german"]


def test_superseded_and_expired_records_are_not_found(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = SyncMemoryClient(open_memory_store(), clock=clock).of(somebody())
    me.remember(key="channel", value="email", ttl_days=1)
    assert texts(me.search("channel")) == ["channel: email"]
    me.remember(key="channel", value="phone", ttl_days=1)
    assert texts(me.search("channel email")) == ["channel: phone"]
    clock.move(days=1)
    assert me.search("channel") == ()


class ForBoth(SaidPreferences):
    """Learns something for the workspace from each message."""

    def extract(self, new: RunSlice, /) -> Extraction:
        return Extraction(
            tuple(
                Candidate(
                    Preference("kind", "visible"),
                    scope="workspace",
                    evidence=(Evidence(new.agent, new.run, event.seq),),
                )
                for event in new.events
            )
        )


def test_what_a_user_said_is_not_found_by_others_of_the_workspace(open_memory_store: OpenStore) -> None:
    memory = client(open_memory_store, extractor=ForBoth())
    one = somebody(user="1", workspace="ops")
    other = Principal(one.tenant, {"user": "2", "workspace": "ops"})
    elsewhere = Principal(f"{one.tenant} too", {"user": "1", "workspace": "ops"})
    me, agent = memory.of(one), agent_of(memory.of(one))
    open_memory_store().append_events(agent, "run", said("My zebra is called Kim"))
    me.derive(agent, "run")
    assert me.search("zebra", scopes=["workspace"]) == ()
    assert len(me.search("zebra")) == 1
    assert [hit.kind for hit in memory.of(other).search("zebra visible", kinds=ANYTHING)] == ["preference"]
    assert memory.of(elsewhere).search("zebra visible", kinds=ANYTHING) == ()
    me.link_run(agent, "run", scope="workspace")
    assert "My zebra is called Kim" in texts(memory.of(other).search("zebra"))
    with pytest.raises(MemoryStopped, match="may not be read"):
        memory.of(Principal("t", {"user": "1"})).link_run(agent, "run", scope="workspace")
    with pytest.raises(InvalidArgument, match="own runs"):
        me.link_run("@memory/a/b/c", "records")


def test_a_message_of_a_run_that_two_scopes_have_is_found_once(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody(user="1", workspace="ops"))
    agent = agent_of(me)
    open_memory_store().append_events(agent, "run", said("zebra one"), said("zebra two"))
    for scope in ("user", "workspace"):
        me.link_run(agent, "run", scope=scope)
    assert sorted(texts(me.search("zebra", top_k=9))) == ["zebra one", "zebra two"]


def test_of_equal_records_the_one_that_was_told_last_comes_first(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    names = ["Ada", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal"]
    me.write([Candidate(Episode("x"), text=f"zebra {name}") for name in names])
    assert texts(me.search("zebra", top_k=5)) == [f"zebra {name}" for name in reversed(names[3:])]


def test_a_newer_reply_does_not_come_before_the_question_that_has_the_words(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    question, reply = said("Where is my order?", days=2), said("One moment.", days=1)
    open_memory_store().append_events(agent_of(me), "run", question, reply)
    me.link_run(agent_of(me), "run")
    assert texts(me.search("order")) == ["Where is my order?"]
    close = msgspec.structs.replace(reply, timestamp=question.timestamp + timedelta(minutes=1))
    open_memory_store().append_events(agent_of(me), "close", question, close)
    me.link_run(agent_of(me), "close")
    assert texts(me.search("order", top_k=9))[2:] == ["One moment."]


def test_policy_boosts_preferences_and_times_choose(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    me.remember(key="Tone", value="dry")
    me.remember(Fact("tone", "deaf"), confidence=0.5)
    me.remember(Episode("x"), text="the old mule", importance=0.1)
    assert me.search("mule", boost_preferences={" TONE "})[1].record == me.get(key="tone", kind="preference")
    agent = agent_of(me)
    open_memory_store().append_events(agent, "run", said("mule one", days=3), said("mule two", days=1))
    me.link_run(agent, "run")
    day = CLOCK() - timedelta(days=2)
    assert texts(me.search("mule", kinds=["message"], since=day)) == ["mule two"]
    assert texts(me.search("mule", kinds=["message"], until=day)) == ["mule one"]
    assert [hit.kind for hit in me.search("mule tone", min_importance=2)] == ["preference", "fact"]
    assert me.search("mule tone", min_importance=10**400) == ()
    fact, episode = me.search("tone deaf", kinds=["fact"])[0], me.search("mule", kinds=["episode"])[0]
    assert fact.matched_by["confidence"] < 0
    assert {"importance", "recency"} & fact.matched_by.keys() == set()
    assert {"importance", "recency"} <= episode.matched_by.keys()
    for wrong in (
        {"since": day.replace(tzinfo=None)},
        {"until": "today"},
        {"min_importance": "many"},
        {"min_importance": float("nan")},
        {"min_importance": float("inf")},
        {"boost_preferences": "tone"},
        {"top_k": True},
        {"top_k": 10**9},
        {"query": "\ud800"},
    ):
        arguments: dict[str, Any] = {"query": "x", **wrong}
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            me.search(**arguments)


WORDS = ("zebra", "mule", "refund", "order", "kim", "late", "1999", "yesterday")
SENTENCES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
STEPS = st.one_of(
    st.tuples(st.just("say"), st.sampled_from("abc"), SENTENCES),
    st.tuples(st.just("link"), st.sampled_from("abc"), st.none()),
    st.tuples(st.just("derive"), st.sampled_from("abc"), st.none()),
    st.tuples(st.just("remember"), st.sampled_from("abc"), SENTENCES),
    st.tuples(st.just("happen"), st.none(), SENTENCES),
    st.tuples(st.just("raise"), st.integers(0, 9), SENTENCES),
    st.tuples(st.just("forget"), st.sampled_from("abc"), st.none()),
    st.tuples(st.just("forget all"), st.none(), st.none()),
    st.tuples(st.just("redact"), st.sampled_from("abc"), st.integers(1, 5)),
    st.tuples(st.just("delete"), st.sampled_from("abc"), st.none()),
    st.tuples(st.just("wait"), st.none(), st.none()),
)


class Life:
    """What happens to a subject, and what of it may be found."""

    def __init__(self, stores: list[Any], options: dict[str, Any]) -> None:
        self.clock = SetClock()
        self.store = stores[0]
        self.principal = somebody(user="1")
        self.options = options
        self.clients = [self.new_client(store) for store in stores]
        self.agent = agent_of(self.clients[0])
        self.visible: dict[tuple[str, int], str] = {}

    def new_client(self, store: Any) -> SyncMemory:
        made = SyncMemoryClient(store, clock=self.clock, extractor=SaidPreferences(), **self.options)
        return made.of(self.principal)

    def step(self, number: int, what: str, where: Any, detail: Any) -> None:  # noqa: C901, PLR0912  # a table of cases
        me, store = self.clients[number % len(self.clients)], self.store
        match what:
            case "say":
                store.append_events(
                    self.agent, where, new_event(UserMessage(f"{where}={detail}"), timestamp=self.clock())
                )
            case "link":
                me.link_run(self.agent, where)
            case "derive":
                me.derive(self.agent, where)
            case "remember":
                me.remember(key=where, value=detail, ttl_days=2)
            case "happen":
                me.remember(Episode("x"), text=detail, importance=0.75)
            case "raise":
                for record in me.list(kinds=["episode"])[where:][:1]:
                    me.update(record.id, text=detail)
            case "forget":
                me.forget(key=where)
            case "forget all":
                me.forget_all()
            case "redact":
                if any(event.seq == detail for event in store.load_run(self.agent, where).log):
                    store.redact_events(self.agent, where, [detail])
            case "delete":
                store.delete_run(self.agent, where)
            case _:
                self.clock.move(hours=20)

    def check(self, queries: tuple[str, ...]) -> None:
        """What warm clients find is what a new one finds; and what they find is active, and stands in the log."""
        fresh = self.new_client(self.store)
        active = {record.id: record for record in fresh.list()}
        for query in queries:
            expected = fresh.search(query, top_k=50, kinds=ANYTHING)
            for me in self.clients:
                assert me.search(query, top_k=50, kinds=ANYTHING) == expected
            for hit in expected:
                if hit.message is None:
                    assert hit.record == active[hit.id]
                else:
                    found = self.store.load_run(self.agent, hit.message.run, after=hit.message.seq - 1, limit=1).log[0]
                    assert (found.seq, found.data) == (hit.message.seq, UserMessage(hit.message.text))


def live(open_memory_store: OpenStore, steps: list[tuple[str, Any, Any]], **options: Any) -> None:
    life = Life([open_memory_store(), open_memory_store()], options)
    for number, step in enumerate(steps):
        life.step(number, *step)
        if number % 3 == 0:
            life.check(("zebra kim",))
    life.check((*WORDS[:4], "who was late yesterday, in 1999?"))


@pytest.mark.parametrize("store_url", ["memory:"])
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_a_warm_index_finds_what_a_new_one_finds(store_url: str, steps: list[tuple[str, Any, Any]]) -> None:
    with open_sync_store(store_url) as store:
        live(lambda: store, steps)


def test_a_warm_index_finds_what_a_new_one_finds_on_every_backend(open_memory_store: OpenStore) -> None:
    steps: list[tuple[str, Any, Any]] = [
        ("say", "a", "zebra late"),
        ("say", "b", "mule refund"),
        ("link", "b", None),
        ("derive", "a", None),
        ("happen", None, "kim order 1999"),
        ("raise", 0, "kim zebra"),
        ("remember", "c", "zebra order"),
        ("say", "b", "kim yesterday"),
        ("redact", "b", 1),
        ("forget", "a", None),
        ("say", "a", "kim again"),
        ("derive", "a", None),
        ("delete", "b", None),
        ("say", "b", "zebra at last"),
        ("wait", None, None),
        ("forget all", None, None),
        ("say", "b", "refund kim"),
    ]
    live(open_memory_store, steps)


def test_indexes_of_subjects_that_are_not_searched_make_room(open_memory_store: OpenStore) -> None:
    memory = client(open_memory_store, index_bytes=1)
    somebodies = [memory.of(somebody(user=str(number))) for number in range(4)]
    for number, me in enumerate(somebodies):
        me.remember(key="zebra", value=f"number {number}")
    for _ in range(2):
        for number, me in enumerate(somebodies):
            assert texts(me.search("zebra")) == [f"zebra: number {number}"]
            assert len(memory._indexes) == 1
    for wrong in (0, 1.5, True):
        options: dict[str, Any] = {"index_bytes": wrong}
        with pytest.raises(InvalidArgument, match="index_bytes"):
            client(open_memory_store, **options)


def test_threads_may_search_while_others_write(open_memory_store: OpenStore) -> None:
    memory = client(open_memory_store)
    me = memory.of(somebody(user="1"))
    store, agent = open_memory_store(), agent_of(me)
    me.link_run(agent, "run")

    def do(number: int) -> None:
        if number % 2:
            store.append_events(agent, "run", said(f"zebra {number}"))
        elif number % 10 == 0:
            me.remember(key=f"zebra {number}", value="kim")
        for hit in me.search("zebra", top_k=100):
            assert "zebra" in hit.text

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(do, range(60)))
    found = me.search("zebra", top_k=100)
    assert len(found) == 36
    assert found == client(open_memory_store).of(me.principal).search("zebra", top_k=100)


def test_a_rebuild_meanwhile_hides_nothing() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=CLOCK).of(somebody(user="1"))
        for number in range(30):
            me.remember(key=f"zebra {number}", value="kim")
        expected = me.search("zebra", top_k=50)

        def do(number: int) -> Hits:
            if number % 2:
                me.rebuild()
            return me.search("zebra", top_k=50)

        with ThreadPoolExecutor(6) as pool:
            assert all(found == expected for found in pool.map(do, range(200)))


async def test_the_client_that_awaits_finds_the_same() -> None:
    async with open_store("memory:") as store:
        me = MemoryClient(store, clock=CLOCK).of(somebody(user="1"))
        await store.append_events("agent", "run", said("The zebra is late"))
        await me.link_run("agent", "run")
        await me.remember(key="zebra", value="kim")
        assert texts(await me.search("zebra late")) == ["The zebra is late", "zebra: kim"]


WITHOUT_THE_EXTRA = """
import sys
sys.modules["numpy"] = None
from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import Fact, Preference, Principal, SyncMemoryClient

with open_sync_store("memory:") as store:
    me = SyncMemoryClient(store).of(Principal("t", {"user": "1"}))
    me.remember(key="update_channel", value="email")
    me.remember(Fact("name", "Ada"), importance=1)
    store.append_events("agent", "run", new_event(UserMessage("the channel")))
    me.link_run("agent", "run")
    (hit,) = me.search("Which CHANNEL?")
    assert (hit.text, dict(hit.matched_by)) == ("update_channel: email", {"shared_words": 0.5})
    assert "agent-memory-log[recall]" in me.search("Which CHANNEL?").note == me.context("channel").note
    assert me.search("channel", kinds=["fact"]).note == ""
    (hit,) = me.search("nothing", boost_preferences={"update_channel"})
    assert dict(hit.matched_by) == {"preference": 0.5}
    assert me.search("name", min_importance=5) and not me.search("channel", min_importance=5)
    assert me.search("channel", kinds=["preference"]) and not me.search("channel", kinds=["fact"])
    assert me.context("channel").records
    try:
        SyncMemoryClient(store, embedder=object()).of(me.principal).search("channel")
    except InvalidArgument as error:
        assert "agent-memory-log[recall]" in str(error)
        print("good")
"""


def test_without_the_extra_records_that_share_words_are_found() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_THE_EXTRA], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("good\n", "")
