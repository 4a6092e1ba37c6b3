"""Tests of MemoryLogStore: the promises that LangGraph's own tests do not check."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, IndexConfig, PutOp, SearchOp, TTLConfig

from agent_memory_log import Redacted, open_sync_store
from agent_memory_log.capabilities import Compacts
from agent_memory_log.integrations.langgraph import MemoryLogStore, items
from tests.integrations.at_once import NAMES, at_once

USER = ("users", "ann")


class Counting:
    """Embeddings that count the letters a, b and c, and the texts that they embed."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        return [[float(text.count(letter)) for letter in "abc"] for text in texts]

    @property
    def index(self) -> IndexConfig:
        return {"dims": 3, "embed": self.embed, "fields": ["text"]}


def test_items_are_there_in_another_process_and_for_both_handles(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with MemoryLogStore(url) as first, MemoryLogStore(url) as second:
        first.put(USER, "prefs", {"theme": "dark", "size": 2.0})
        item = second.get(USER, "prefs")
        assert item is not None
        assert item == first.get(USER, "prefs")
        second.put(USER, "prefs", {"theme": "light"})
        changed = first.get(USER, "prefs")
        assert changed is not None
        assert changed.value == {"theme": "light"}
        assert changed.created_at == item.created_at < changed.updated_at
        second.put(("users", "bob"), "prefs", {"theme": "red"})
        assert first.list_namespaces() == [USER, ("users", "bob")]
        assert [hit.value["theme"] for hit in first.search(("users",), filter={"theme": "red"})] == ["red"]


def put_items(url: str, name: str) -> None:
    with MemoryLogStore(url) as store:
        for number in range(30):
            store.put(USER, f"{name} {number}", {"number": number})
            store.put(USER, "shared", {name: number})
            store.delete(USER, f"{name} {number - 1}")


def test_two_processes_lose_no_item(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db?durability=os"
    with MemoryLogStore(url) as store:
        at_once(put_items, url)
        stored = {item.key: item.value for item in store.search(USER, limit=100)}
    shared = stored.pop("shared")
    assert shared in ({"left": 29}, {"right": 29})
    assert stored == {f"{name} 29": {"number": 29} for name in NAMES}


def test_earlier_values_stay_in_the_log_until_the_item_is_deleted(tmp_path: Path) -> None:
    with open_sync_store(f"sqlite:///{tmp_path}/runs.db") as log, MemoryLogStore(log) as store:
        for city in ("Paris", "Lima"):
            store.put(USER, "home", {"city": city})
        store.put(USER, "pet", {"name": "Rex"})
        run = items.run_id(USER)
        assert [event.data.to_map()["value"] for event in log.load_run(items.AGENT, run, limit=2).log] == [
            ["json", {"city": "Paris"}],
            ["json", {"city": "Lima"}],
        ]
        store.delete(USER, "home")
        assert MemoryLogStore(log).get(USER, "home") is None
        assert [type(event.data) for event in log.load_run(items.AGENT, run, limit=2).log] == [Redacted, Redacted]
        assert isinstance(log, Compacts)
        log.compact()
        assert not any(b"Lima" in file.read_bytes() for file in tmp_path.iterdir())
        assert [item.key for item in store.search(USER)] == ["pet"]
        store.put(USER, "home", {"city": "Rome"})
        assert [item.value for item in MemoryLogStore(log).search(USER, filter={"city": "Rome"})] == [{"city": "Rome"}]


def test_vectors_are_stored_so_that_no_text_is_embedded_twice(url: str) -> None:
    first, second = Counting(), Counting()
    with open_sync_store(url) as log:
        store = MemoryLogStore(log, index=first.index)
        for key, text in {"1": "aaa", "2": "bbb", "3": "ccc"}.items():
            store.put(USER, key, {"text": text, "other": "not embedded"})
        reopened = MemoryLogStore(log, index=second.index)
        hits = reopened.search(USER, query="bb", limit=2)
        assert hits[0].key == "2"
        assert hits[0].score == pytest.approx(1)
        assert first.texts == ["aaa", "bbb", "ccc"]
        assert second.texts == ["bb"]
        assert [hit.key for hit in asyncio.run(reopened.asearch(USER, query="cc", limit=1))] == ["3"]


def test_without_embeddings_items_are_found_by_their_words(url: str) -> None:
    with open_sync_store(url) as log:
        store = MemoryLogStore(log, index={"fields": ["text"]})
        store.put(USER, "1", {"text": "She moved to Lisbon with her two cats.", "kind": "fact"})
        store.put(USER, "2", {"text": "The invoice is due in March.", "kind": "fact"})
        store.put(USER, "3", {"text": "Cats sleep all day.", "kind": "note"})
        assert {hit.key for hit in store.search(USER, query="cat")} == {"1", "3"}
        assert [hit.key for hit in store.search(USER, query="cats", filter={"kind": "note"})] == ["3"]
        reopened = MemoryLogStore(log, index={"fields": ["text"]})
        assert [hit.key for hit in reopened.search((), query="invoices")] == ["2"]
        store.put(USER, "1", {"text": "She moved to Porto."})
        assert [hit.key for hit in store.search(USER, query="Lisbon")] == []
        store.delete(USER, "2")
        assert [hit.key for hit in store.search(USER, query="invoice")] == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that moves the clock of the store, which times reads, on by some minutes."""
    passed = timedelta()

    def move(minutes: float) -> None:
        nonlocal passed
        passed += timedelta(minutes=minutes)

    def now() -> datetime:
        return datetime.now(UTC) + passed

    monkeypatch.setattr(items.Items, "now", staticmethod(now))
    return move


def test_expired_items_are_left_out_and_then_erased(url: str, clock: Any) -> None:
    ttl: TTLConfig = {"default_ttl": 5, "refresh_on_read": False}
    with open_sync_store(url) as log:
        store = MemoryLogStore(log, ttl=ttl)
        store.put(USER, "short", {"text": "a"})
        store.put(USER, "long", {"text": "b"}, ttl=60)
        store.put(USER, "lasting", {"text": "c"}, ttl=None)
        clock(4)
        assert [item.key for item in store.search(USER)] == ["short", "long", "lasting"]
        clock(2)
        assert [item.key for item in store.search(USER)] == ["long", "lasting"]
        assert store.get(USER, "short") is None
        assert MemoryLogStore(log).sweep_ttl() == 1
        assert isinstance(log.load_run(items.AGENT, items.run_id(USER)).log[0].data, Redacted)
        assert store.sweep_ttl() == 0
        clock(60)
        assert store.sweep_ttl() == 1
        assert [item.key for item in MemoryLogStore(log).search(USER)] == ["lasting"]


def test_a_read_begins_the_lifetime_again(url: str, clock: Any) -> None:
    with MemoryLogStore(url, ttl={"default_ttl": 5}) as store:
        store.put(USER, "1", {"text": "a"})
        clock(4)
        assert store.get(USER, "1", refresh_ttl=False) is not None
        assert store.get(USER, "1") is not None
        clock(4)
        assert [item.key for item in store.search(USER)] == ["1"]
        clock(4)
        assert store.get(USER, "1", refresh_ttl=False) is not None
        clock(2)
        assert store.get(USER, "1") is None


def test_namespaces_and_keys_are_hostile_and_never_meet(url: str) -> None:
    names = [("a/b",), ("a", "b"), ("a%2Fb",), ("x" * 600, "y"), ("x" * 600, "z"), ("@a",)]
    with open_sync_store(url) as log:
        store = MemoryLogStore(log)
        for number, namespace in enumerate(names):
            store.put(namespace, "\x00/" * 400, {"number": number})
        for number, namespace in enumerate(names):
            item = MemoryLogStore(log).get(namespace, "\x00/" * 400)
            assert item is not None
            assert item.value == {"number": number}
        assert MemoryLogStore(log).list_namespaces() == sorted(names)


def test_a_batch_reads_before_it_writes_and_the_last_write_wins(url: str) -> None:
    with MemoryLogStore(url) as store:
        store.put(USER, "1", {"n": 1})
        puts = [PutOp(USER, "1", {"n": 2}), PutOp(USER, "1", {"n": 3}), PutOp(USER, "2", None)]
        results: list[Any] = store.batch([*puts, GetOp(USER, "1"), SearchOp(("users",))])
        assert [results[3].value, [item.value for item in results[4]]] == [{"n": 1}, [{"n": 1}]]
        assert [item.value for item in store.search(USER)] == [{"n": 3}]
