"""A search peeks once at all linked runs and loads the changed runs together, even if a run changes in between."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from agent_memory_log import Event, Snapshot, Store, SyncStore, UserMessage, new_event, open_store
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.memory import Hits, Memory, MemoryClient, SyncMemory, SyncMemoryClient
from agent_memory_log.store import RunHead
from tests.memory.stores import OpenStore, open_memory_store, somebody, store_url
from tests.store_clock import StoreClock
from tests.waiting import PATIENCE

__all__ = ["open_memory_store", "store_url"]

AT_ONCE = 16
MANY = 40


def message(text: str) -> Event:
    return new_event(UserMessage(text))


def texts(hits: Hits) -> list[str]:
    return sorted(hit.text for hit in hits)


class WatchedStore:
    """A store that records loaded runs and calls a function once, after a load or after a peek."""

    def __init__(self, raw: SyncStore) -> None:
        self.raw = raw
        self.loaded: list[str] = []
        self.after_load: Callable[[], object] | None = None
        self.peeks: list[int] = []
        self.after_peek: Callable[[], object] | None = None

    def append_events(self, agent: str, run: str, *events: Event, **options: Any) -> object:
        return self.raw.append_events(agent, run, *events, **options)

    def redact_events(self, agent: str, run: str, seqs: Any, **options: Any) -> object:
        return self.raw.redact_events(agent, run, seqs, **options)

    def load_run(self, agent: str, run: str, **options: Any) -> Snapshot:
        snapshot = self.raw.load_run(agent, run, **options)
        if not agent.startswith("@"):
            self.loaded.append(run)
            if self.after_load is not None:
                after, self.after_load = self.after_load, None
                after()
        return snapshot

    def take_loaded(self) -> list[str]:
        """Return the runs loaded since the last call."""
        loaded, self.loaded = self.loaded, []
        return loaded

    def erasures(self, **options: Any) -> Any:
        return self.raw.erasures(**options)

    def peek_runs(self, runs: Any) -> tuple[RunHead | None, ...]:
        heads = self.raw.peek_runs(runs)
        self.peeks.append(len(heads))
        if self.after_peek is not None:
            after, self.after_peek = self.after_peek, None
            after()
        return heads


def linked_memory(store: Any, *runs: str) -> tuple[SyncMemory, str]:
    """Return a memory with linked runs, and an agent that no other test uses."""
    me = SyncMemoryClient(store).of(somebody(user="1"))
    agent = f"agent {me.principal.tenant}"
    for run in runs:
        me.link_run(agent, run)
    return me, agent


def search_zebras(me: SyncMemory) -> list[str]:
    return texts(me.search("zebra", top_k=50))


def recreate(store: SyncStore, agent: str, run: str, *new_texts: str) -> None:
    store.delete_run(agent, run)
    store.append_events(agent, run, *map(message, new_texts))


def test_search_peeks_once_and_loads_only_changed_runs(open_memory_store: OpenStore) -> None:
    raw = open_memory_store()
    store = WatchedStore(raw)
    runs = [f"run {number}" for number in range(MANY)]
    me, agent = linked_memory(store, *runs)
    for run in runs[:-1]:
        raw.append_events(agent, run, message(f"zebra of {run}"))
    store.take_loaded()
    store.peeks.clear()
    assert len(search_zebras(me)) == MANY - 1
    assert (store.peeks, sorted(store.take_loaded())) == ([], sorted(runs)), (
        "runs that were never read are loaded without a peek"
    )
    for _ in range(3):
        assert len(search_zebras(me)) == MANY - 1
    assert (store.peeks, store.take_loaded()) == ([MANY] * 3, [])
    raw.append_events(agent, runs[3], message("another zebra"))
    raw.append_events(agent, runs[-1], message("the last zebra"))
    raw.redact_events(agent, runs[5], [1])
    raw.delete_run(agent, runs[7])
    assert {"another zebra", "the last zebra"} < set(search_zebras(me))
    assert sorted(store.take_loaded()) == sorted([runs[3], runs[-1], runs[5], runs[7]])
    assert len(search_zebras(me)) == MANY - 1
    assert store.take_loaded() == []
    raw.append_events(agent, "linked late", message("zebra that was linked late"))
    me.link_run(agent, "linked late")
    store.take_loaded()
    assert "zebra that was linked late" in search_zebras(me)
    assert store.take_loaded() == ["linked late"]


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("event_name", ["append", "delete", "recreate", "recreate longer", "redact"])
def test_search_reflects_a_change_between_peek_and_load(
    open_memory_store: OpenStore, event_name: str, cold: bool
) -> None:
    raw = open_memory_store()
    store = WatchedStore(raw)
    me, agent = linked_memory(store, "run", "other")
    raw.append_events(agent, "run", message("old zebra one"), message("old zebra two"))
    changes: dict[str, tuple[Callable[[], object], list[str]]] = {
        "append": (lambda: raw.append_events(agent, "run", message("new zebra")), ["new zebra", "old zebra two"]),
        "delete": (lambda: raw.delete_run(agent, "run"), []),
        "recreate": (lambda: recreate(raw, agent, "run", "new zebra"), ["new zebra"]),
        "recreate longer": (lambda: recreate(raw, agent, "run", *("new zebra",) * 9), ["new zebra"] * 9),
        "redact": (lambda: raw.redact_events(agent, "run", [2]), []),
    }
    change, expected = changes[event_name]
    if cold:
        search_zebras(SyncMemoryClient(raw).of(me.principal))
        raw.append_events(agent, "other", message("mule"))
        store.after_load = change
        search_zebras(me)
    else:
        assert len(search_zebras(me)) == 2
        # The run has already changed, so the search loads it after the second change.
        raw.redact_events(agent, "run", [1])
        store.after_peek = change
        assert search_zebras(me) == expected
        assert store.after_peek is None
        # Now the run is unchanged at the peek and changes after it. The next search returns the change.
        raw.append_events(agent, "other", message("zebra elsewhere"))
        store.after_peek = lambda: recreate(raw, agent, "run", "the newest zebra")
        search_zebras(me)
        expected = ["the newest zebra", "zebra elsewhere"]
    hits = search_zebras(me)
    assert hits == search_zebras(SyncMemoryClient(raw).of(me.principal))
    assert cold or hits == expected


def test_search_drops_an_expired_run_and_does_not_load_it_again(
    open_memory_store: OpenStore, store_clock: StoreClock
) -> None:
    raw = open_memory_store()
    store = WatchedStore(raw)
    me, agent = linked_memory(store, "ends", "stays")
    raw.append_events(agent, "stays", message("zebra that stays"))
    raw.append_events(agent, "ends", message("zebra that ends"), meta=store_clock.meta_with_an_end())
    assert search_zebras(me) == ["zebra that ends", "zebra that stays"]
    store_clock.pass_the_end()
    assert search_zebras(me) == ["zebra that stays"]
    store.take_loaded()
    assert search_zebras(me) == ["zebra that stays"]
    assert store.take_loaded() == []
    recreate(raw, agent, "ends", "zebra recreated")
    assert search_zebras(me) == ["zebra recreated", "zebra that stays"]


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("ending", ["expire", "delete", "recreate"])
def test_search_discards_a_late_read_of_an_ended_run(
    open_memory_store: OpenStore, store_clock: StoreClock, ending: str, cold: bool
) -> None:
    """One search has loaded the run. Before it continues, the run ends and a second search notices that."""
    raw = open_memory_store()
    store = WatchedStore(raw)
    me, agent = linked_memory(store, "run")
    raw.append_events(agent, "run", message("old zebra"), meta=store_clock.meta_with_an_end())
    if not cold:
        search_zebras(me)
        raw.append_events(agent, "run", message("another old zebra"))

    def end_run() -> None:
        if ending == "expire":
            store_clock.pass_the_end()
        elif ending == "delete":
            raw.delete_run(agent, "run")
        else:
            recreate(raw, agent, "run", "new zebra")
        assert search_zebras(me) == expected

    expected = ["new zebra"] if ending == "recreate" else []
    store.after_load = end_run
    assert search_zebras(me) == expected
    assert store.after_load is None
    assert search_zebras(me) == expected


_OTHER_PROCESS = """
import sys
from agent_memory_log import UserMessage, new_event, open_sync_store
url, agent, change = sys.argv[1:]
with open_sync_store(url) as store:
    if change in ("delete", "recreate"):
        store.delete_run(agent, "run")
    if change in ("append", "recreate"):
        store.append_events(agent, "run", new_event(UserMessage(f"zebra {change}")))
    if change == "redact":
        store.redact_events(agent, "run", [store.load_run(agent, "run").first_seq])
"""


@pytest.mark.parametrize("store_url", ["sqlite", "mongo"], indirect=True)
def test_search_reflects_changes_by_another_process(open_memory_store: OpenStore, store_url: str) -> None:
    raw = open_memory_store()
    me, agent = linked_memory(WatchedStore(raw), "run", "other")
    raw.append_events(agent, "other", message("zebra other"))
    expected = {
        "append": (RunHead(1, 1), ["zebra append", "zebra other"]),
        "redact": (RunHead(2, 1), ["zebra other"]),
        "delete": (RunHead(2, 3), ["zebra other"]),
        "recreate": (RunHead(3, 3), ["zebra other", "zebra recreate"]),
    }
    assert search_zebras(me) == ["zebra other"]
    for event_name, (head, expected_texts) in expected.items():
        subprocess.run(
            [sys.executable, "-c", _OTHER_PROCESS, store_url, agent, event_name], check=True, timeout=PATIENCE
        )
        assert raw.peek_runs([(agent, "run"), (agent, "other")]) == (head, RunHead(1, 1))
        assert search_zebras(me) == expected_texts


class CrowdedStore:
    """An asynchronous store whose loads of linked runs wait until ``expected`` loads are in progress."""

    def __init__(self, raw: Any, expected: int) -> None:
        self.raw = raw
        self.expected = expected
        self.in_progress = 0
        self.max_in_progress = 0
        self.all_started = asyncio.Event()
        self.failing: str | None = None
        self.release = asyncio.Event()

    async def append_events(self, *arguments: Any, **options: Any) -> Any:
        return await self.raw.append_events(*arguments, **options)

    async def load_run(self, agent: str, run: str, **options: Any) -> Any:
        if agent.startswith("@"):
            return await self.raw.load_run(agent, run, **options)
        self.in_progress += 1
        self.max_in_progress = max(self.max_in_progress, self.in_progress)
        try:
            if self.in_progress == self.expected:
                self.all_started.set()
            await self.all_started.wait()
            for _ in range(3):
                await asyncio.sleep(0)  # lets every permitted load start
            if self.failing is not None:
                if run == self.failing:
                    raise StoreUnavailable(f"{run} cannot be read")
                await self.release.wait()
            return await self.raw.load_run(agent, run, **options)
        finally:
            self.in_progress -= 1

    async def peek_runs(self, runs: Any) -> Any:
        return await self.raw.peek_runs(runs)

    async def erasures(self, **options: Any) -> Any:
        return await self.raw.erasures(**options)


async def many_linked(raw: Store, store: Any) -> Memory:
    """Return a memory in ``store`` with many linked runs."""
    principal = somebody(user="1")
    for number in range(MANY):
        await raw.append_events("agent", f"run {number}", message(f"zebra {number}"))
        await MemoryClient(raw).of(principal).link_run("agent", f"run {number}")
    return MemoryClient(store).of(principal)


async def test_async_search_loads_a_limited_number_of_runs_concurrently() -> None:
    async with open_store("memory:") as raw, asyncio.timeout(PATIENCE):
        store: Any = CrowdedStore(raw, AT_ONCE)
        me = await many_linked(raw, store)
        assert texts(await me.search("zebra", top_k=MANY)) == sorted(f"zebra {number}" for number in range(MANY))
        assert (store.max_in_progress, store.in_progress) == (AT_ONCE, 0)
        store.all_started.clear()
        store.expected, store.max_in_progress = 3, 0
        for number in range(3):
            await raw.append_events("agent", f"run {number}", message(f"mule {number}"))
        assert {"mule 0", "mule 1", "mule 2"} <= set(texts(await me.search("mule", top_k=MANY)))
        assert store.max_in_progress == store.expected


async def test_failed_load_ends_the_search_and_the_other_loads() -> None:
    async with open_store("memory:") as raw, asyncio.timeout(PATIENCE):
        store: Any = CrowdedStore(raw, AT_ONCE)
        me = await many_linked(raw, store)
        store.failing = "run 7"
        with pytest.raises(StoreUnavailable, match="run 7"):
            await me.search("zebra")
        assert store.in_progress == 0
        store.failing = "no run"
        search = asyncio.create_task(me.search("zebra"))
        store.all_started.clear()
        await store.all_started.wait()
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        assert store.in_progress == 0
        store.failing = None
        assert len(await me.search("zebra", top_k=MANY)) == MANY


async def test_failed_peek_raises_from_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as raw:
        me = MemoryClient(raw).of(somebody(user="1"))
        await me.link_run("agent", "run")
        assert await me.search("zebra") == ()

        async def refuse(_runs: object) -> object:
            raise StoreUnavailable("no")

        monkeypatch.setattr(raw, "peek_runs", refuse)
        with pytest.raises(StoreUnavailable, match="no"):
            await me.search("zebra")
