"""The context block shows only current records. Equal memories give the same block in every process and store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_memory_log import SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Episode, Fact, Principal, SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.stream import snapshots
from agent_memory_log.memory.stream.payloads import MemorySnapshot
from agent_memory_log.recall import Embeddings
from agent_memory_log.recall.embedding import Kind
from tests.amlog import environment
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url
from tests.store_clock import StoreClock

__all__ = ["open_memory_store", "store_url"]

ENOUGH = 1_000_000
FORGET = """
import sys
from agent_memory_log import open_sync_store
from agent_memory_log.memory import Principal, SyncMemoryClient

with open_sync_store(sys.argv[1]) as store:
    me = SyncMemoryClient(store).of(Principal(sys.argv[2], {"user": "42", "workspace": "ops"}))
    me.forget(key="language", evidence=True)
    me.forget(key="team", scope="workspace")
"""


def test_context_omits_records_and_messages_removed_by_another_client(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    store, other_store = open_memory_store(), open_memory_store()
    me = SyncMemoryClient(store, clock=clock, extractor=SaidPreferences()).of(somebody())
    other = SyncMemoryClient(other_store, clock=clock).of(me.principal)
    agent = f"agent {me.principal.tenant}"
    for run in ("a", "b", "c"):
        store.append_events(
            agent, run, new_event(UserMessage(f"zebra {run}")), new_event(UserMessage(f"zebra {run}{run}"))
        )
        me.link_run(agent, run)
    store.append_events(agent, "d", new_event(UserMessage("zebra=d1")), new_event(UserMessage("lion=d2")))
    me.derive(agent, "d")
    me.remember(Episode("x"), text="zebra episode")
    me.remember(Episode("x"), text="old zebra", importance=0.3)
    me.remember(key="channel", value="email", ttl_days=1)

    def check_absent(*texts: str) -> None:
        """Check that no text appears in the context, and that a new client has the same context."""
        context = me.context("zebra lion", max_tokens=ENOUGH)
        for text in texts:
            assert f'{text}"' not in context.text
        fresh = SyncMemoryClient(store, clock=clock).of(me.principal).context("zebra lion", max_tokens=ENOUGH)
        assert context == fresh
        records = {record.id for record in me.list()}
        assert set(context.records) <= records

    text_before = me.context("zebra lion", max_tokens=ENOUGH).text
    assert all(f'{text}"' in text_before for text in ("d1", "d2", "zebra episode", "old zebra", "email"))
    other_store.redact_events(agent, "a", [2])
    check_absent("zebra aa")
    other_store.delete_run(agent, "b")
    check_absent("zebra b", "zebra bb", "zebra aa")
    other.remember(key="lion", value="new")
    check_absent('"lion": "d2')
    other.forget(key="zebra")
    check_absent("zebra=d1", '"d1')
    (episode,) = [record for record in me.list(kinds=["episode"]) if record.text == "zebra episode"]
    other.forget(id=episode.id)
    check_absent("zebra episode")
    clock.move(hours=1)
    other.maintain(weak_below=1, unused_days=0.01)
    check_absent("old zebra")
    clock.move(days=1)
    check_absent("email")
    other.forget_all()
    check_absent("zebra c", "zebra cc", "zebra a", "new", "lion=d2")
    assert me.context("zebra lion", max_tokens=ENOUGH).text == ""


def test_context_omits_records_forgotten_by_another_process(open_memory_store: OpenStore, store_url: str) -> None:
    if store_url == "memory:":
        pytest.skip("another process cannot read an in-memory store")
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    agent = f"agent {me.principal.tenant}"
    store.append_events(agent, "run", new_event(UserMessage("language=english")), new_event(UserMessage("tone=dry")))
    me.derive(agent, "run")
    me.remember(Fact("team", "blue"), scope="workspace")
    before = me.context("language tone", max_tokens=ENOUGH)
    assert (len(before.records), len(before.messages)) == (3, 2)
    result = subprocess.run(
        [sys.executable, "-c", FORGET, store_url, me.principal.tenant], check=False, env=environment()
    )
    assert result.returncode == 0
    after = me.context("language tone", max_tokens=ENOUGH)
    assert "english" not in after.text
    assert "blue" not in after.text
    assert (len(after.records), [evidence.seq for evidence in after.messages]) == (1, [2])


def test_context_has_the_latest_messages_after_those_that_match(open_memory_store: OpenStore) -> None:
    store, clock = open_memory_store(), SetClock()
    me = SyncMemoryClient(store, clock=clock).of(somebody())
    agent = f"agent {me.principal.tenant}"
    refund = "The refund went to my sister's account in Oslo."
    for number, text in enumerate((refund, "I painted the kitchen green.", "My dog is called Pixel.")):
        store.append_events(agent, f"run {number}", new_event(UserMessage(text), timestamp=clock.time))
        me.link_run(agent, f"run {number}")
        clock.move(days=1)
    context = me.context("Who got the money that was refunded?").text
    assert context.index(refund) < context.index("Pixel")
    assert "Pixel" not in repr(me.search("Who got the money that was refunded?"))


def test_context_omits_an_expired_run(open_memory_store: OpenStore, store_clock: StoreClock) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    agent = f"agent {me.principal.tenant}"
    store.append_events(agent, "run", new_event(UserMessage("zebra")), meta=store_clock.meta_with_an_end())
    me.link_run(agent, "run")
    assert me.context("zebra").messages
    store_clock.pass_the_end()
    assert me.context("zebra").text == ""


class PausingEmbedder:
    """An embedder that calls a function before it returns the vectors of documents."""

    model = "pausing"
    dimension = 1

    def __init__(self) -> None:
        self.meanwhile: Callable[[], Any] | None = None

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        meanwhile, self.meanwhile = (self.meanwhile, None) if kind == "document" else (None, self.meanwhile)
        if meanwhile is not None:
            meanwhile()
        return Embeddings(np.ones((len(texts), 1), np.float32))


def test_context_omits_records_forgotten_during_its_search(open_memory_store: OpenStore) -> None:
    embedder = PausingEmbedder()
    me = SyncMemoryClient(open_memory_store(), embedder=embedder, extractor=SaidPreferences()).of(somebody(user="1"))
    store = open_memory_store()
    other = SyncMemoryClient(store).of(me.principal)
    agent = f"agent {me.principal.tenant}"
    store.append_events(agent, "run", new_event(UserMessage("language=english")), new_event(UserMessage("tone=dry")))
    me.derive(agent, "run")
    me.remember(Episode("x"), text="They said english")

    def forget() -> None:
        other.forget(key="language")
        for episode in other.list(kinds=["episode"]):
            other.forget(id=episode.id)

    embedder.meanwhile = forget
    context = me.context("language tone english", max_tokens=ENOUGH)
    assert embedder.meanwhile is None
    assert "english" not in context.text
    assert "dry" in context.text
    assert context.messages


def test_each_tenant_and_scope_sees_only_its_own_memory(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    memory = SyncMemoryClient(store)
    tenants = [somebody().tenant, somebody().tenant]
    principals = [
        Principal(tenant, {scope: id_}) for tenant in tenants for scope in ("user", "team") for id_ in ("1", "2")
    ]
    for number, principal in enumerate(principals):
        me = memory.of(principal)
        me.remember(key="name", value=f"value {number}.")
        me.remember(Episode("x"), text=f"zebra episode {number}.")
        store.append_events(principal.tenant, f"run {number}", new_event(UserMessage(f"zebra message {number}.")))
        me.link_run(principal.tenant, f"run {number}")
    for number, principal in enumerate(principals):
        text = memory.of(principal).context("zebra name value", max_tokens=ENOUGH).text
        assert [f"{index}." in text.replace("2026", "") for index in range(len(principals))] == [
            index == number for index in range(len(principals))
        ]
    both = memory.of(Principal(tenants[0], {"user": "1", "team": "2"})).context("zebra", max_tokens=ENOUGH)
    assert [f"message {index}." in both.text for index in range(4)] == [True, False, False, True]


def write_at_one_time(me: SyncMemory, store: SyncStore, clock: SetClock, agent: str = "agent") -> None:
    """Write all records at the same time, so that only their text can decide the order."""
    for text in ("gamma zebra", "alpha zebra", "delta zebra", "beta", "epsilon", "eta", "theta zebra", "iota zebra"):
        me.remember(Episode("x"), text=text)
    for key in ("language", "tone", "name"):
        me.remember(key=key, value="wet")
    me.remember(key="tone", value="dry", scope="workspace")
    for run in ("b", "a"):
        store.append_events(
            agent, run, *(new_event(UserMessage(f"zebra {run} {number}"), timestamp=clock.time) for number in range(2))
        )
        me.link_run(agent, run)


CONTEXT_PROGRAM = """
import sys
from agent_memory_log import open_sync_store
from agent_memory_log.memory import Principal, SyncMemoryClient
from tests.memory.stores import SetClock
from tests.memory.test_context_current import write_at_one_time

clock = SetClock()
with open_sync_store(sys.argv[1]) as store:
    me = SyncMemoryClient(store, clock=clock).of(Principal("t", {"user": "1", "workspace": "w"}))
    write_at_one_time(me, store, clock)
    for query in ("zebra", "dry tone", ""):
        for budget in (300, 500, 700, 100_000):
            print(me.context(query, max_tokens=budget).text)
"""


def test_equal_memories_give_equal_text_in_every_process(tmp_path: Path) -> None:
    results = [
        subprocess.run(
            [sys.executable, "-c", CONTEXT_PROGRAM, url],
            capture_output=True,
            text=True,
            check=False,
            env=environment(PYTHONHASHSEED=str(seed), PYTHONPATH=str(Path(__file__).parents[2])),
        )
        for seed, url in enumerate(["memory:", "memory:", f"sqlite:///{tmp_path / 'a.db'}", "memory:"])
    ]
    assert [result.stderr for result in results] == [""] * len(results)
    assert len({result.stdout for result in results}) == 1
    assert results[0].stdout.count("<memory>") >= 9


def test_reopened_store_and_snapshot_give_the_same_context(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 5)
    clock = SetClock()
    store = open_memory_store()
    me = SyncMemoryClient(store, clock=clock).of(somebody())
    agent = f"agent {me.principal.tenant}"
    write_at_one_time(me, store, clock, agent)
    stream = store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN)
    assert any(isinstance(event.data, MemorySnapshot) for event in stream.log)
    with open_sync_store("memory:") as plain:
        monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 1_000)
        twin = SyncMemoryClient(plain, clock=clock).of(me.principal)
        write_at_one_time(twin, plain, clock, agent)
        for budget in (300, 500, 700, ENOUGH):
            expected = twin.context("zebra", max_tokens=budget).text
            assert me.context("zebra", max_tokens=budget).text == expected
            again = SyncMemoryClient(open_memory_store(), clock=clock).of(me.principal)
            assert again.context("zebra", max_tokens=budget).text == expected
    assert me.rebuild().equal
    assert me.context("zebra", max_tokens=ENOUGH).text == expected


def test_records_of_one_time_are_ordered_by_their_text() -> None:
    clock = SetClock()
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=clock).of(somebody())
        write_at_one_time(me, store, clock)
        lines = me.context("nothing of it", max_tokens=ENOUGH).text.splitlines()
    assert [line.split('"')[1] for line in lines if line.startswith("- 20")] == ["alpha zebra", "beta", "delta zebra"]
    assert [line for line in lines if '"tone"' in line] == ['- preference "tone": "dry"', '- preference "tone": "wet"']
