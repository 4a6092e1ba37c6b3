"""A search looks once at all linked runs and reads those with news, together; whatever happens between the two."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_memory_log import Event, Snapshot, Store, SyncStore, UserMessage, new_event, open_store
from agent_memory_log.errors import RunExpired, StoreUnavailable
from agent_memory_log.events.event import format_timestamp
from agent_memory_log.memory import Hits, Memory, MemoryClient, SyncMemory, SyncMemoryClient
from agent_memory_log.store import RunHead
from tests.memory.stores import OpenStore, open_memory_store, somebody, store_url
from tests.waiting import PATIENCE

__all__ = ["open_memory_store", "store_url"]

AT_ONCE = 16
MANY = 40
SOON = timedelta(seconds=0.3)


def said(text: str) -> Event:
    return new_event(UserMessage(text))


def texts(hits: Hits) -> list[str]:
    return sorted(hit.text for hit in hits)


class Watched:
    """A store that notes the runs that are loaded, and lets something happen once after a load, or after a look."""

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
        found = self.raw.load_run(agent, run, **options)
        if not agent.startswith("@"):
            self.loaded.append(run)
            if self.after_load is not None:
                after, self.after_load = self.after_load, None
                after()
        return found

    def taken(self) -> list[str]:
        """What was loaded since this was last asked."""
        loaded, self.loaded = self.loaded, []
        return loaded

    def peek_runs(self, runs: Any) -> tuple[RunHead | None, ...]:
        found = self.raw.peek_runs(runs)
        self.peeks.append(len(found))
        if self.after_peek is not None:
            after, self.after_peek = self.after_peek, None
            after()
        return found


def searching(store: Any, *runs: str) -> tuple[SyncMemory, str]:
    """Somebody's memory, to which runs are linked, and an agent that no other test has."""
    me = SyncMemoryClient(store).of(somebody(user="1"))
    agent = f"agent {me.principal.tenant}"
    for run in runs:
        me.link_run(agent, run)
    return me, agent


def zebras(me: SyncMemory) -> list[str]:
    return texts(me.search("zebra", top_k=50))


def begin_anew(store: SyncStore, agent: str, run: str, *said_then: str) -> None:
    store.delete_run(agent, run)
    store.append_events(agent, run, *map(said, said_then))


def wait_for_the_end(store: SyncStore, agent: str, run: str) -> None:
    with pytest.raises(RunExpired):
        for _ in store.follow(agent, run):
            pass


def test_a_search_looks_once_and_reads_what_has_news(open_memory_store: OpenStore) -> None:
    raw = open_memory_store()
    store = Watched(raw)
    runs = [f"run {number}" for number in range(MANY)]
    me, agent = searching(store, *runs)
    for run in runs[:-1]:
        raw.append_events(agent, run, said(f"zebra of {run}"))
    store.taken()
    store.peeks.clear()
    assert len(zebras(me)) == MANY - 1
    assert (store.peeks, sorted(store.taken())) == ([], sorted(runs)), "of runs that were never read all is news"
    for _ in range(3):
        assert len(zebras(me)) == MANY - 1
    assert (store.peeks, store.taken()) == ([MANY] * 3, [])
    raw.append_events(agent, runs[3], said("another zebra"))
    raw.append_events(agent, runs[-1], said("the last zebra"))
    raw.redact_events(agent, runs[5], [1])
    raw.delete_run(agent, runs[7])
    assert {"another zebra", "the last zebra"} < set(zebras(me))
    assert sorted(store.taken()) == sorted([runs[3], runs[-1], runs[5], runs[7]])
    assert len(zebras(me)) == MANY - 1
    assert store.taken() == []
    raw.append_events(agent, "linked late", said("zebra that was linked late"))
    me.link_run(agent, "linked late")
    store.taken()
    assert "zebra that was linked late" in zebras(me)
    assert store.taken() == ["linked late"]


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("what", ["append", "delete", "begin anew", "begin anew longer", "redact"])
def test_whatever_happens_between_a_look_and_a_load_is_found(
    open_memory_store: OpenStore, what: str, cold: bool
) -> None:
    raw = open_memory_store()
    store = Watched(raw)
    me, agent = searching(store, "run", "other")
    raw.append_events(agent, "run", said("old zebra one"), said("old zebra two"))
    happen: dict[str, tuple[Callable[[], object], list[str]]] = {
        "append": (lambda: raw.append_events(agent, "run", said("new zebra")), ["new zebra", "old zebra two"]),
        "delete": (lambda: raw.delete_run(agent, "run"), []),
        "begin anew": (lambda: begin_anew(raw, agent, "run", "new zebra"), ["new zebra"]),
        "begin anew longer": (lambda: begin_anew(raw, agent, "run", *("new zebra",) * 9), ["new zebra"] * 9),
        "redact": (lambda: raw.redact_events(agent, "run", [2]), []),
    }
    change, expected = happen[what]
    if cold:
        zebras(SyncMemoryClient(raw).of(me.principal))
        raw.append_events(agent, "other", said("mule"))
        store.after_load = change
        zebras(me)
    else:
        assert len(zebras(me)) == 2
        # There is news already, so that what was looked at is loaded after the change.
        raw.redact_events(agent, "run", [1])
        store.after_peek = change
        assert zebras(me) == expected
        assert store.after_peek is None
        # And none: the change comes when the look is over, and the next search finds it.
        raw.append_events(agent, "other", said("zebra elsewhere"))
        store.after_peek = lambda: begin_anew(raw, agent, "run", "the newest zebra")
        zebras(me)
        expected = ["the newest zebra", "zebra elsewhere"]
    found = zebras(me)
    assert found == zebras(SyncMemoryClient(raw).of(me.principal))
    assert cold or found == expected


def test_an_expired_run_is_gone_and_not_read_again(open_memory_store: OpenStore) -> None:
    raw = open_memory_store()
    store = Watched(raw)
    me, agent = searching(store, "ends", "stays")
    raw.append_events(agent, "stays", said("zebra that stays"))
    end = datetime.now(UTC) + SOON
    raw.append_events(agent, "ends", said("zebra that ends"), meta={"expires_at": format_timestamp(end)})
    zebras(me)
    wait_for_the_end(raw, agent, "ends")
    assert zebras(me) == ["zebra that stays"]
    store.taken()
    assert zebras(me) == ["zebra that stays"]
    assert store.taken() == []
    begin_anew(raw, agent, "ends", "zebra begun anew")
    assert zebras(me) == ["zebra begun anew", "zebra that stays"]


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("what", ["expire", "delete", "begin anew"])
def test_what_was_read_before_the_end_and_comes_late_is_not_taken(
    open_memory_store: OpenStore, what: str, cold: bool
) -> None:
    """One search has read the run, and is slow; meanwhile the run goes, and another of the same client saw that."""
    raw = open_memory_store()
    store = Watched(raw)
    me, agent = searching(store, "run")
    end = datetime.now(UTC) + (SOON if what == "expire" else timedelta(days=1))
    raw.append_events(agent, "run", said("old zebra"), meta={"expires_at": format_timestamp(end)})
    if not cold:
        zebras(me)
        raw.append_events(agent, "run", said("another old zebra"))

    def go() -> None:
        if what == "expire":
            wait_for_the_end(raw, agent, "run")
        elif what == "delete":
            raw.delete_run(agent, "run")
        else:
            begin_anew(raw, agent, "run", "new zebra")
        assert zebras(me) == expected

    expected = ["new zebra"] if what == "begin anew" else []
    store.after_load = go
    assert zebras(me) == expected
    assert store.after_load is None
    assert zebras(me) == expected


_ELSEWHERE = """
import sys
from agent_memory_log import UserMessage, new_event, open_sync_store
url, agent, what = sys.argv[1:]
with open_sync_store(url) as store:
    if what in ("delete", "begin anew"):
        store.delete_run(agent, "run")
    if what in ("append", "begin anew"):
        store.append_events(agent, "run", new_event(UserMessage(f"zebra {what}")))
    if what == "redact":
        store.redact_events(agent, "run", [store.load_run(agent, "run").first_seq])
"""


@pytest.mark.parametrize("store_url", ["sqlite", "mongo"], indirect=True)
def test_what_another_process_does_is_seen(open_memory_store: OpenStore, store_url: str) -> None:
    raw = open_memory_store()
    me, agent = searching(Watched(raw), "run", "other")
    raw.append_events(agent, "other", said("zebra other"))
    expected = {
        "append": (RunHead(1, 1), ["zebra append", "zebra other"]),
        "redact": (RunHead(2, 1), ["zebra other"]),
        "delete": (RunHead(2, 3), ["zebra other"]),
        "begin anew": (RunHead(3, 3), ["zebra begin anew", "zebra other"]),
    }
    assert zebras(me) == ["zebra other"]
    for what, (head, found) in expected.items():
        subprocess.run([sys.executable, "-c", _ELSEWHERE, store_url, agent, what], check=True, timeout=PATIENCE)
        assert raw.peek_runs([(agent, "run"), (agent, "other")]) == (head, RunHead(1, 1))
        assert zebras(me) == found


class Crowd:
    """A store that awaits, whose loads of linked runs wait until as many as can be are under way."""

    def __init__(self, raw: Any, expected: int) -> None:
        self.raw = raw
        self.expected = expected
        self.under_way = 0
        self.most = 0
        self.together = asyncio.Event()
        self.failing: str | None = None
        self.held = asyncio.Event()

    async def append_events(self, *given: Any, **options: Any) -> Any:
        return await self.raw.append_events(*given, **options)

    async def load_run(self, agent: str, run: str, **options: Any) -> Any:
        if agent.startswith("@"):
            return await self.raw.load_run(agent, run, **options)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if self.under_way == self.expected:
                self.together.set()
            await self.together.wait()
            for _ in range(3):
                await asyncio.sleep(0)  # whoever may begin a load does
            if self.failing is not None:
                if run == self.failing:
                    raise StoreUnavailable(f"{run} cannot be read")
                await self.held.wait()
            return await self.raw.load_run(agent, run, **options)
        finally:
            self.under_way -= 1

    async def peek_runs(self, runs: Any) -> Any:
        return await self.raw.peek_runs(runs)


async def many_linked(raw: Store, store: Any) -> Memory:
    """Somebody's memory in ``store``, to which many runs are linked."""
    who = somebody(user="1")
    for number in range(MANY):
        await raw.append_events("agent", f"run {number}", said(f"zebra {number}"))
        await MemoryClient(raw).of(who).link_run("agent", f"run {number}")
    return MemoryClient(store).of(who)


async def test_where_a_store_awaits_runs_are_read_at_the_same_time_and_not_all_of_them() -> None:
    async with open_store("memory:") as raw, asyncio.timeout(PATIENCE):
        store: Any = Crowd(raw, AT_ONCE)
        me = await many_linked(raw, store)
        assert texts(await me.search("zebra", top_k=MANY)) == sorted(f"zebra {number}" for number in range(MANY))
        assert (store.most, store.under_way) == (AT_ONCE, 0)
        store.together.clear()
        store.expected, store.most = 3, 0
        for number in range(3):
            await raw.append_events("agent", f"run {number}", said(f"mule {number}"))
        assert {"mule 0", "mule 1", "mule 2"} <= set(texts(await me.search("mule", top_k=MANY)))
        assert store.most == store.expected


async def test_a_load_that_fails_ends_the_search_and_the_other_loads() -> None:
    async with open_store("memory:") as raw, asyncio.timeout(PATIENCE):
        store: Any = Crowd(raw, AT_ONCE)
        me = await many_linked(raw, store)
        store.failing = "run 7"
        with pytest.raises(StoreUnavailable, match="run 7"):
            await me.search("zebra")
        assert store.under_way == 0
        store.failing = "none of them"
        searching_on = asyncio.create_task(me.search("zebra"))
        store.together.clear()
        await store.together.wait()
        searching_on.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching_on
        assert store.under_way == 0
        store.failing = None
        assert len(await me.search("zebra", top_k=MANY)) == MANY


async def test_a_look_that_fails_is_an_error_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as raw:
        me = MemoryClient(raw).of(somebody(user="1"))
        await me.link_run("agent", "run")
        assert await me.search("zebra") == ()

        async def refuse(_runs: object) -> object:
            raise StoreUnavailable("no")

        monkeypatch.setattr(raw, "peek_runs", refuse)
        with pytest.raises(StoreUnavailable, match="no"):
            await me.search("zebra")
