"""Tests searching records and messages of linked runs on every backend, and the texts that no search returns."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    Event,
    SystemMessage,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.events.registry import payload_from_map
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
ALL_KINDS = None


def user_message(text: str, *, speaker: str = "", **before: float) -> Event:
    labels = {"speaker": speaker} if speaker else None
    return new_event(UserMessage(text), timestamp=CLOCK() - timedelta(**before), labels=labels)


def client(open_memory_store: OpenStore, **options: Any) -> SyncMemoryClient:
    return SyncMemoryClient(open_memory_store(), clock=CLOCK, **options)


def agent_of(me: SyncMemory) -> str:
    """Return the name of an agent that no other test uses."""
    return f"agent {me.principal.tenant}"


def texts(hits: Hits) -> list[str]:
    return [hit.text for hit in hits]


def test_a_question_is_read_up_to_its_20_000th_character(open_memory_store: OpenStore) -> None:
    me = SyncMemoryClient(open_memory_store()).of(somebody())
    me.remember(key="drink", value="green tea")
    me.remember(key="animal", value="zebra")
    question = "Which tea? ".ljust(20_000) + "zebra " * 300_000
    assert [hit.text for hit in me.search(question)] == ["drink: green tea"]
    assert "green tea" in me.context(question).text


def test_search_finds_and_cites_the_messages_of_a_linked_run(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    store, agent = open_memory_store(), agent_of(me)
    first = user_message("The refund for order 7 never came", speaker="Caroline", days=2)
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
    store.append_events(agent, "r/1", user_message("Is there any news of it?", speaker="user"))
    assert "Is there any news of it?" in texts(me.search("news"))


def test_search_finds_records_and_messages_and_derive_links_the_run(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store, extractor=SaidPreferences()).of(somebody())
    agent = agent_of(me)
    open_memory_store().append_events(
        agent, "run", user_message("update_channel=phone"), user_message("Invoices go by phone please")
    )
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


def test_only_user_and_assistant_messages_of_a_run_are_searched(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    store, agent = open_memory_store(), agent_of(me)
    store.append_events(
        agent,
        "run",
        new_event(SystemMessage("zebra one")),
        new_event(payload_from_map("injected_context", {"message": "zebra two", "text": "zebra two"})),
        new_event(UserMessage("  ")),
    )
    store.append_events(agent, "off", user_message("zebra three"), meta={"memory": False})
    for run in ("run", "off", "empty"):
        me.link_run(agent, run)
    assert me.search("zebra", kinds=ALL_KINDS) == ()
    store.append_events(agent, "empty", user_message("zebra four"))
    assert texts(me.search("zebra")) == ["zebra four"]


def test_the_next_search_misses_redacted_and_deleted_messages(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    store, agent = open_memory_store(), agent_of(me)
    for run in ("a", "b"):
        store.append_events(agent, run, user_message(f"zebra {run} one"), user_message(f"zebra {run} two"))
        me.link_run(agent, run)
    assert len(me.search("zebra", top_k=9)) == 4
    store.redact_events(agent, "a", [2])
    assert sorted(texts(me.search("zebra", top_k=9))) == ["zebra a one", "zebra b one", "zebra b two"]
    store.delete_run(agent, "b")
    assert texts(me.search("zebra", top_k=9)) == ["zebra a one"]
    store.append_events(agent, "b", user_message("zebra again"))
    assert sorted(texts(me.search("zebra", top_k=9))) == ["zebra a one", "zebra again"]


def test_search_misses_the_messages_behind_a_forgotten_record(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store, extractor=SaidPreferences()).of(somebody())
    store, agent = open_memory_store(), agent_of(me)
    store.append_events(agent, "run", user_message("language=english"), user_message("tone=dry"))
    store.append_events(agent, "other", user_message("The language is tone deaf"))
    me.derive(agent, "run")
    me.link_run(agent, "other")
    assert len(me.search("language tone", top_k=9)) == 5
    me.forget(key="language")
    assert texts(me.search("english")) == []
    assert "tone=dry" in texts(me.search("tone"))
    store.append_events(agent, "run", user_message("tone is what I do not want"))
    me.forget_all()
    assert me.search("language english tone dry deaf want", kinds=ALL_KINDS) == ()
    store.append_events(agent, "run", user_message("language=german"))
    assert texts(me.search("language")) == ["language=german"]


def test_search_misses_superseded_and_expired_records(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = SyncMemoryClient(open_memory_store(), clock=clock).of(somebody())
    me.remember(key="channel", value="email", ttl_days=1)
    assert texts(me.search("channel")) == ["channel: email"]
    me.remember(key="channel", value="phone", ttl_days=1)
    assert texts(me.search("channel email")) == ["channel: phone"]
    clock.move(days=1)
    assert me.search("channel") == ()


class WorkspacePreferences(SaidPreferences):
    """An extractor that proposes one workspace preference for each message."""

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


def test_other_users_of_the_workspace_do_not_find_a_users_messages(open_memory_store: OpenStore) -> None:
    memory = client(open_memory_store, extractor=WorkspacePreferences())
    owner = somebody(user="1", workspace="ops")
    colleague = Principal(owner.tenant, {"user": "2", "workspace": "ops"})
    stranger = Principal(f"{owner.tenant} too", {"user": "1", "workspace": "ops"})
    me, agent = memory.of(owner), agent_of(memory.of(owner))
    open_memory_store().append_events(agent, "run", user_message("My zebra is called Kim"))
    me.derive(agent, "run")
    assert me.search("zebra", scopes=["workspace"]) == ()
    assert len(me.search("zebra")) == 1
    assert [hit.kind for hit in memory.of(colleague).search("zebra visible", kinds=ALL_KINDS)] == ["preference"]
    assert memory.of(stranger).search("zebra visible", kinds=ALL_KINDS) == ()
    me.link_run(agent, "run", scope="workspace")
    assert "My zebra is called Kim" in texts(memory.of(colleague).search("zebra"))
    with pytest.raises(MemoryStopped, match="may not be read"):
        memory.of(Principal("t", {"user": "1"})).link_run(agent, "run", scope="workspace")
    with pytest.raises(InvalidArgument, match="reserved agent"):
        me.link_run("@memory/a/b/c", "records")


def test_a_message_of_a_run_linked_to_two_scopes_is_one_hit(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody(user="1", workspace="ops"))
    agent = agent_of(me)
    open_memory_store().append_events(agent, "run", user_message("zebra one"), user_message("zebra two"))
    for scope in ("user", "workspace"):
        me.link_run(agent, "run", scope=scope)
    assert sorted(texts(me.search("zebra", top_k=9))) == ["zebra one", "zebra two"]


def test_the_newest_of_equally_scored_records_comes_first(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    names = ["Ada", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal"]
    me.write([Candidate(Episode("x"), text=f"zebra {name}") for name in names])
    assert texts(me.search("zebra", top_k=5)) == [f"zebra {name}" for name in reversed(names[3:])]


def test_a_matching_question_ranks_before_its_newer_reply(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    question, reply = user_message("Where is my order?", days=2), user_message("One moment.", days=1)
    open_memory_store().append_events(agent_of(me), "run", question, reply)
    me.link_run(agent_of(me), "run")
    assert texts(me.search("order")) == ["Where is my order?"]
    close = msgspec.structs.replace(reply, timestamp=question.timestamp + timedelta(minutes=1))
    open_memory_store().append_events(agent_of(me), "close", question, close)
    me.link_run(agent_of(me), "close")
    assert texts(me.search("order", top_k=9))[2:] == ["One moment."]


def test_search_boosts_preferences_and_filters_by_time_and_importance(open_memory_store: OpenStore) -> None:
    me = client(open_memory_store).of(somebody())
    me.remember(key="Tone", value="dry")
    me.remember(Fact("tone", "deaf"), confidence=0.5)
    me.remember(Episode("x"), text="the old mule", importance=0.1)
    assert me.search("mule", boost_preferences={" TONE "})[1].record == me.get(key="tone", kind="preference")
    agent = agent_of(me)
    open_memory_store().append_events(agent, "run", user_message("mule one", days=3), user_message("mule two", days=1))
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
    """A subject whose memory changes step by step, and the clients that search it."""

    def __init__(self, stores: list[Any], options: dict[str, Any]) -> None:
        self.clock = SetClock()
        self.store = stores[0]
        self.principal = somebody(user="1")
        self.options = options
        self.clients = [self.new_client(store) for store in stores]
        self.agent = agent_of(self.clients[0])
        self.visible: dict[tuple[str, int], str] = {}

    def new_client(self, store: Any) -> SyncMemory:
        client = SyncMemoryClient(store, clock=self.clock, extractor=SaidPreferences(), **self.options)
        return client.of(self.principal)

    def step(self, number: int, action: str, target: Any, detail: Any) -> None:  # noqa: C901, PLR0912  # a table of cases
        me, store = self.clients[number % len(self.clients)], self.store
        match action:
            case "say":
                store.append_events(
                    self.agent, target, new_event(UserMessage(f"{target}={detail}"), timestamp=self.clock())
                )
            case "link":
                me.link_run(self.agent, target)
            case "derive":
                me.derive(self.agent, target)
            case "remember":
                me.remember(key=target, value=detail, ttl_days=2)
            case "happen":
                me.remember(Episode("x"), text=detail, importance=0.75)
            case "raise":
                for record in me.list(kinds=["episode"])[target:][:1]:
                    me.update(record.id, text=detail)
            case "forget":
                me.forget(key=target)
            case "forget all":
                me.forget_all()
            case "redact":
                if any(event.seq == detail for event in store.load_run(self.agent, target).log):
                    store.redact_events(self.agent, target, [detail])
            case "delete":
                store.delete_run(self.agent, target)
            case _:
                self.clock.move(hours=20)

    def check(self, queries: tuple[str, ...]) -> None:
        """Check that warm clients and a new client return the same hits, and that all hits are active or in the log."""
        fresh = self.new_client(self.store)
        active = {record.id: record for record in fresh.list()}
        for query in queries:
            expected = fresh.search(query, top_k=50, kinds=ALL_KINDS)
            for me in self.clients:
                assert me.search(query, top_k=50, kinds=ALL_KINDS) == expected
            for hit in expected:
                if hit.message is None:
                    assert hit.record == active[hit.id]
                else:
                    event = self.store.load_run(self.agent, hit.message.run, after=hit.message.seq - 1, limit=1).log[0]
                    assert (event.seq, event.data) == (hit.message.seq, UserMessage(hit.message.text))


def run_steps(open_memory_store: OpenStore, steps: list[tuple[str, Any, Any]], **options: Any) -> None:
    life = Life([open_memory_store(), open_memory_store()], options)
    for number, step in enumerate(steps):
        life.step(number, *step)
        if number % 3 == 0:
            life.check(("zebra kim",))
    life.check((*WORDS[:4], "who was late yesterday, in 1999?"))


@pytest.mark.parametrize("store_url", ["memory:"])
@given(steps=st.lists(STEPS, max_size=25))
def test_a_warm_index_returns_the_hits_of_a_new_index(store_url: str, steps: list[tuple[str, Any, Any]]) -> None:
    with open_sync_store(store_url) as store:
        run_steps(lambda: store, steps)


def test_a_warm_index_returns_the_hits_of_a_new_index_on_every_backend(open_memory_store: OpenStore) -> None:
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
    run_steps(open_memory_store, steps)


def test_index_bytes_limits_the_indexes_of_subjects(open_memory_store: OpenStore) -> None:
    memory = client(open_memory_store, index_bytes=1)
    clients = [memory.of(somebody(user=str(number))) for number in range(4)]
    for number, me in enumerate(clients):
        me.remember(key="zebra", value=f"number {number}")
    for _ in range(2):
        for number, me in enumerate(clients):
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
            store.append_events(agent, "run", user_message(f"zebra {number}"))
        elif number % 10 == 0:
            me.remember(key=f"zebra {number}", value="kim")
        for hit in me.search("zebra", top_k=100):
            assert "zebra" in hit.text

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(do, range(60)))
    hits = me.search("zebra", top_k=100)
    assert len(hits) == 36
    assert hits == client(open_memory_store).of(me.principal).search("zebra", top_k=100)


def test_a_concurrent_rebuild_hides_no_record() -> None:
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
            assert all(hits == expected for hits in pool.map(do, range(200)))


async def test_the_async_client_finds_records_and_messages() -> None:
    async with open_store("memory:") as store:
        me = MemoryClient(store, clock=CLOCK).of(somebody(user="1"))
        await store.append_events("agent", "run", user_message("The zebra is late"))
        await me.link_run("agent", "run")
        await me.remember(key="zebra", value="kim")
        assert texts(await me.search("zebra late")) == ["The zebra is late", "zebra: kim"]


WITHOUT_THE_EXTRA = """
import sys
from unittest.mock import Mock
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
        SyncMemoryClient(store, embedder=Mock()).of(me.principal).search("channel")
    except InvalidArgument as error:
        assert "agent-memory-log[recall]" in str(error)
        print("good")
"""


def test_search_without_the_extra_finds_records_that_share_words() -> None:
    process = subprocess.run([sys.executable, "-c", WITHOUT_THE_EXTRA], capture_output=True, text=True, check=False)
    assert (process.stdout, process.stderr) == ("good\n", "")
