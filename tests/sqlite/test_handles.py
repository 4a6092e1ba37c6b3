"""Tests of SQLite handles: forks, cancelled waits, group commits, threads and closing."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, Store, SyncStore, VersionConflict, new_event, open_store, open_sync_store
from agent_memory_log.errors import EventConflict, StoreClosed
from agent_memory_log_sqlite import SqliteStore
from tests import processes


def _note(text: str) -> PlannerNote:
    return PlannerNote(note=text)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if getattr(request, "param", "sqlite") == "memory" else f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.mark.parametrize("url", ["sqlite", "memory"], indirect=True)
def test_an_inherited_handle_works_only_in_the_parent(url: str) -> None:
    assert processes.run("use_inherited", url).split() == ["StoreClosed", "StoreClosed", "nothing", "2"]


def test_a_forked_child_makes_new_event_ids() -> None:
    parent_id, *child_ids = processes.run("make_ids_in_a_child").split()
    assert len(set(child_ids)) == 100
    assert parent_id[:12] not in {event_id[:12] for event_id in child_ids}


def test_a_child_of_an_async_program_can_open_its_own_handle(url: str) -> None:
    assert processes.run("open_own_in_a_child", url).split() == ["nothing", "2"]


async def test_waiting_appends_share_a_commit_and_each_gets_its_own_outcome(url: str) -> None:
    async with open_store(url) as store:
        assert isinstance(store, SqliteStore)
        await store.append_events("agent", "run", new_event(_note("one"), event_id="known"))
        with _lock_for_writing(url) as holder:
            waiting = [
                asyncio.ensure_future(call)
                for call in (
                    store.append_events("agent", "run", new_event(_note("two"), event_id="two")),
                    store.append_events("agent", "run", new_event(_note("other"), event_id="known")),
                    store.append_events("agent", "run", new_event(_note("one"), event_id="known")),
                    store.append_events("agent", "run", new_event(_note("stale")), expected_version=1),
                    store.append_events("agent", "run", new_event(_note("a")), new_event(_note("b"))),
                    store.append_events("agent", "else", new_event(_note("first")), expected_version=0),
                    store.redact_events("agent", "run", [1]),
                    store.append_events("agent", "run", new_event(_note("one"), event_id="known")),
                )
            ]
            await asyncio.sleep(0)
            holder.execute("ROLLBACK")
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    kinds = [type(outcome).__name__ for outcome in outcomes]
    assert kinds[1] == EventConflict.__name__
    assert kinds[3] == VersionConflict.__name__
    versions = [getattr(outcome, "version", None) for outcome in outcomes]
    assert versions == [2, None, 2, None, 4, 1, 5, 5]
    assert [getattr(outcome, "inserted", None) for outcome in outcomes] == [1, None, 0, None, 2, 1, 1, 0]


def _lock_for_writing(url: str) -> _WriteLock:
    return _WriteLock(url.removeprefix("sqlite:///"))


class _WriteLock:
    """A context manager that holds the write lock on another connection, so that appends wait."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    def __enter__(self) -> sqlite3.Connection:
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


async def test_a_cancelled_append_can_be_repeated(url: str) -> None:
    event = new_event(_note("once"))
    async with open_store(url) as store:
        with _lock_for_writing(url) as holder:
            waiting = asyncio.ensure_future(store.append_events("agent", "run", event))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            holder.execute("ROLLBACK")
        await store.append_events("agent", "run", event)
        assert (await store.load_run("agent", "run")).version == 1


async def test_closing_carries_out_waiting_appends(url: str) -> None:
    store: Store = await open_store(url)
    with _lock_for_writing(url) as holder:
        waiting = [
            asyncio.ensure_future(store.append_events("agent", "run", new_event(_note(str(n))))) for n in range(9)
        ]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.aclose())
        await asyncio.sleep(0)
        holder.execute("ROLLBACK")
    await closing
    assert sorted(result.version for result in await asyncio.gather(*waiting)) == list(range(1, 10))
    with pytest.raises(StoreClosed):
        await store.load_run("agent", "run")


async def test_a_store_closed_on_exit_leaves_one_file(tmp_path: Path, url: str) -> None:
    async with open_store(url) as store:
        await store.append_events("agent", "run", new_event(_note("a")))
    assert [file.name for file in tmp_path.iterdir()] == ["runs.db"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("amlog-")]


def test_threads_share_a_synchronous_handle(url: str) -> None:
    with open_sync_store(url) as store:
        _append_from_threads(store)
        snapshot = store.load_run("agent", "run")
    assert [event.seq for event in snapshot.log] == list(range(1, 8 * 50 + 1))


def _append_from_threads(store: SyncStore) -> None:
    def work(name: int) -> None:
        for number in range(50):
            store.append_events("agent", "run", new_event(_note(f"{name} {number}")))
            store.load_run("agent", "run", after=0, limit=1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_an_append_after_a_deletion_elsewhere_makes_no_orphan(url: str) -> None:
    with open_sync_store(url) as store, open_sync_store(url) as other:
        store.append_events("agent", "run", new_event(_note("a")), meta={"n": 1})
        other.delete_run("agent", "run")
        result = store.append_events("agent", "run", new_event(_note("b")), meta={"n": 2})
        assert result.version == 2
        page = other.list_runs()
        assert [(run.run, run.version, run.event_count, run.meta) for run in page.runs] == [("run", 2, 1, {"n": 2})]
        other.append_events("agent", "run", new_event(_note("c")))
        assert store.append_events("agent", "run", new_event(_note("d"))).version == 4
