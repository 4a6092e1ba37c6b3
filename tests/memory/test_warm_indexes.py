"""Tests which warm indexes a client drops at its memory limit, and which it always keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agent_memory_log import UserMessage, new_event, open_store, open_sync_store
from agent_memory_log.memory import MemoryClient, Principal, SyncMemoryClient
from agent_memory_log.memory.stream import context
from agent_memory_log.recall import Embeddings
from agent_memory_log.recall.embedding import Kind
from tests.memory.test_search_vectors import Meaning

MANY = 150
BOTH = Principal("acme", {"user": "1", "workspace": "ops"})
USER, WORKSPACE = ({"user": "1"}, {"workspace": "ops"})


def _note_loads(store: Any, loaded: list[str]) -> None:
    """Append the name of every run that is read from its first event to ``loaded``."""
    raw = store.load_run

    def load_run(agent: str, run: str, **options: Any) -> Any:
        if not options.get("after"):
            loaded.append(run)
        return raw(agent, run, **options)

    store.load_run = load_run


def _two_large_scopes(store: Any) -> None:
    client = SyncMemoryClient(store)
    for scope, run in (("user", "private"), ("workspace", "shared")):
        store.append_events("agent", run, *(new_event(UserMessage(f"puppy {number}")) for number in range(MANY)))
        client.of(BOTH).link_run("agent", run, scope=scope)


def test_indexes_of_scopes_searched_together_do_not_evict_each_other() -> None:
    with open_sync_store("memory:") as store:
        _two_large_scopes(store)
        embedder = Meaning(tokens=True)
        client = SyncMemoryClient(store, embedder=embedder, index_bytes=1)
        me = client.of(BOTH)
        assert len(me.search("puppy", top_k=2 * MANY)) == 2 * MANY
        assert len(embedder.asked) == 2 * MANY
        loaded: list[str] = []
        _note_loads(store, loaded)
        for _ in range(3):
            assert len(me.search("puppy", top_k=2 * MANY)) == 2 * MANY
        assert (len(embedder.asked), loaded) == (2 * MANY, []), (
            "both indexes stay warm: no text is embedded and no run is read again"
        )


def test_the_least_recently_used_index_is_dropped_first() -> None:
    with open_sync_store("memory:") as store:
        client = SyncMemoryClient(store)
        clients = [client.of(Principal("acme", {"user": str(number)})) for number in range(4)]
        for number, me in enumerate(clients):
            store.append_events("agent", f"run {number}", new_event(UserMessage("a zebra " * 100)))
            me.link_run("agent", f"run {number}")
            me.search("zebra")
        size = next(iter(client._indexes._indexes.values())).size
        client._indexes._max_bytes = 3 * size
        for number in (0, 1, 2, 3, 0):
            clients[number].search("zebra")
        assert [subject.id for subject in client._indexes._indexes] == ["2", "3", "0"]


async def test_another_search_does_not_drop_an_index_that_is_being_embedded() -> None:
    waiting, may_continue = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(Meaning):
        def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
            if kind == "document" and any("private" in text for text in texts):
                loop.call_soon_threadsafe(waiting.set)
                asyncio.run_coroutine_threadsafe(may_continue.wait(), loop).result()
            return super().embed(texts, kind)

    async with open_store("memory:") as store:
        embedder = Slow()
        client = MemoryClient(store, embedder=embedder, index_bytes=1)
        for scopes, run in ((USER, "private"), (WORKSPACE, "shared")):
            await store.append_events("agent", run, new_event(UserMessage(f"puppy {run}")))
            await client.of(Principal("acme", scopes)).link_run("agent", run)
        searching = asyncio.create_task(client.of(Principal("acme", USER)).search("puppy"))
        await waiting.wait()
        assert await client.of(Principal("acme", WORKSPACE)).search("puppy")
        assert {subject.scope for subject in client._indexes._indexes} == {"user", "workspace"}
        may_continue.set()
        assert [hit.text for hit in await searching] == ["puppy private"]
        assert sorted(embedder.asked) == ["puppy private", "puppy shared"]


def test_an_index_stays_warm_after_its_subject_leaves_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "WARM_SUBJECTS", 1)
    with open_sync_store("memory:") as store:
        _two_large_scopes(store)
        me = SyncMemoryClient(store).of(BOTH)
        me.search("puppy")
        loaded: list[str] = []
        _note_loads(store, loaded)
        assert len(me.search("puppy", top_k=2 * MANY)) == 2 * MANY
        assert not {"private", "shared"} & set(loaded)


def test_a_failed_search_releases_its_indexes() -> None:
    with open_sync_store("memory:") as store:
        _two_large_scopes(store)
        client = SyncMemoryClient(store)
        raw: Any = store.load_run

        def load_run(*_: object, **__: object) -> None:
            raise RuntimeError("broken")

        store.load_run = load_run  # type: ignore[method-assign, assignment]  # simulates a failing store
        with pytest.raises(RuntimeError):
            client.of(BOTH).search("puppy")
        store.load_run = raw  # type: ignore[method-assign]  # as above
        assert not client._indexes._searches
