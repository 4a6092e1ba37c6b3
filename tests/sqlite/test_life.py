"""Tests of SQLite handles that share a file: wake-ups, closing, forks, signals and group commits."""

# pyright: reportPrivateUsage=false
# Only private attributes give access to the waiting calls and their locks.

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import (
    Event,
    EventData,
    PlannerNote,
    ToolResult,
    new_event,
    open_store,
    open_sync_store,
    register_payload,
)
from agent_memory_log.conformance.harness import on_another_loop
from agent_memory_log.errors import DecodeError, RunDeleted, StoreClosed, StoreUnavailable
from agent_memory_log.events import registry
from agent_memory_log_sqlite import SqliteStore, SyncSqliteStore
from tests import processes
from tests.waiting import PATIENCE, store_threads, until, until_blocking

_NEVER = 10_000
"""A pause between polls, in seconds, that is too long for a poll to wake a follower in these tests."""


def _note(text: str = "n") -> Event:
    return new_event(PlannerNote(note=text))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory_log_sqlite.store.POLL_SECONDS", _NEVER)
    monkeypatch.setattr("agent_memory_log_sqlite.sync.POLL_SECONDS", _NEVER)


async def _open(url: str) -> SqliteStore:
    store = await open_store(url)
    assert isinstance(store, SqliteStore)
    return store


def _open_sync(url: str) -> SyncSqliteStore:
    store = open_sync_store(url)
    assert isinstance(store, SyncSqliteStore)
    return store


async def _waiting_follower(store: SqliteStore, after: int = 0) -> asyncio.Task[Event]:
    async def follow() -> Event:
        return await anext(store.follow("agent", "run", after=after))

    task = asyncio.create_task(follow())
    await until(lambda: store._changed._waiting)
    return task


class _FollowingThread:
    """A thread that waits for the next event of a run."""

    def __init__(self, store: SyncSqliteStore, after: int = 0) -> None:
        self._store = store
        self._after = after
        self._outcomes: list[int | str] = []
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        until_blocking(lambda: store._changed._sleepers)

    def _follow(self) -> None:
        try:
            self._outcomes.append(next(self._store.follow("agent", "run", after=self._after)).seq)
        except Exception as error:
            self._outcomes.append(type(error).__name__)

    def outcomes(self) -> list[int | str]:
        self._thread.join(PATIENCE)
        return self._outcomes


_CHANGES = ["append", "redact", "delete"]


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.usefixtures("no_polls")
async def test_a_write_wakes_followers_on_its_handle_without_a_poll(url: str, change: str) -> None:
    async with await _open(url) as store:
        await store.append_events("agent", "run", _note())
        follower = await _waiting_follower(store, after=1)
        if change == "append":
            await store.append_events("agent", "run", _note())
        elif change == "redact":
            await store.redact_events("agent", "run", [1])
        else:
            await store.delete_run("agent", "run")
            with pytest.raises(RunDeleted):
                await asyncio.wait_for(follower, PATIENCE)
            return
        assert (await asyncio.wait_for(follower, PATIENCE)).seq == 2


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.usefixtures("no_polls")
def test_a_synchronous_write_wakes_followers_without_a_poll(url: str, change: str) -> None:
    with _open_sync(url) as store:
        store.append_events("agent", "run", _note())
        follower = _FollowingThread(store, after=1)
        if change == "append":
            store.append_events("agent", "run", _note())
        elif change == "redact":
            store.redact_events("agent", "run", [1])
        else:
            store.delete_run("agent", "run")
        assert follower.outcomes() == (["RunDeleted"] if change == "delete" else [2])


@pytest.mark.usefixtures("no_polls")
async def test_closing_ends_the_followers_at_once(url: str) -> None:
    store = await _open(url)
    follower = await _waiting_follower(store)
    await store.aclose()
    with pytest.raises(StoreClosed):
        await asyncio.wait_for(follower, PATIENCE)


@pytest.mark.usefixtures("no_polls")
def test_closing_a_synchronous_handle_ends_its_followers_at_once(url: str) -> None:
    store = _open_sync(url)
    follower = _FollowingThread(store)
    store.close()
    assert follower.outcomes() == ["StoreClosed"]


async def test_the_watch_connection_never_waits_for_a_lock(url: str) -> None:
    async with await _open(url) as store:
        assert store._watch_connection.execute("PRAGMA busy_timeout").fetchone() == (0,)


class _Locked:
    """A connection whose every statement fails because the file is locked."""

    def __init__(self) -> None:
        self.count = 0

    def execute(self, *_: object) -> Any:
        self.count += 1
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error


async def test_a_follower_survives_a_lock_on_the_whole_file(url: str) -> None:
    async with await _open(url) as store:
        await store.append_events("agent", "run", _note())
        unlocked, locked = store._watch._connection, _Locked()
        follower = store.follow("agent", "run")
        await anext(follower)
        store._watch._connection = locked  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  # the store only calls execute
        waiting = asyncio.ensure_future(anext(follower))
        await until(lambda: locked.count > 3)
        store._watch._connection = unlocked
        await store.append_events("agent", "run", _note())
        assert (await asyncio.wait_for(waiting, PATIENCE)).seq == 2


class _CountingLock:
    """A lock that counts its acquisitions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_call_that_waits_while_its_handle_closes_raises_store_closed(url: str) -> None:
    store = _open_sync(url)
    store.append_events("agent", "run", _note())
    writing, reading = _CountingLock(), _CountingLock()
    store._writing, store._reading = writing, reading  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  # the store uses them only as context managers
    errors: list[str] = []

    def attempt(call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            errors.append(type(error).__name__)

    calls: list[Callable[[], object]] = [
        lambda: store.append_events("agent", "run", _note()),
        lambda: store.delete_run("agent", "run"),
        lambda: store.load_run("agent", "run"),
    ]
    threads = [threading.Thread(target=attempt, args=(call,)) for call in calls]
    closing = threading.Thread(target=store.close)
    with writing, reading:
        for thread in threads:
            thread.start()
        until_blocking(lambda: (writing.count, reading.count) == (3, 2))
        closing.start()
        until_blocking(lambda: not store.is_open())
    for thread in (*threads, closing):
        thread.join(PATIENCE)
    assert errors == ["StoreClosed"] * 3
    with open_sync_store(url) as again:
        assert again.load_run("agent", "run").version == 1


async def test_closing_continues_after_its_wait_is_cancelled(path: Path, url: str) -> None:
    store = await _open(url)
    await store.append_events("agent", "run", _note())
    with store._reads.working:
        loading = asyncio.ensure_future(store.load_run("agent", "run"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.aclose())
        await until(lambda: store._closing)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert store_threads()
    await store.aclose()
    assert (await loading).version == 1
    _check_everything_is_released(path)
    with pytest.raises(StoreClosed):
        await store.load_run("agent", "run")


async def test_all_callers_of_aclose_wait_until_the_handle_is_closed(path: Path, url: str) -> None:
    store = await _open(url)
    await store.append_events("agent", "run", _note())
    threads_after_close: list[list[str]] = []

    async def close() -> None:
        await store.aclose()
        threads_after_close.append(store_threads())

    with store._reads.working:
        loading = asyncio.ensure_future(store.load_run("agent", "run"))
        await asyncio.sleep(0)
        closing = [asyncio.ensure_future(close()) for _ in range(3)]
        await until(lambda: store._closing)
    await asyncio.gather(loading, *closing)
    assert threads_after_close == [[], [], []]
    _check_everything_is_released(path)


async def test_closing_on_another_loop_raises_and_releases_everything(path: Path, url: str) -> None:
    store = await _open(url)
    await store.append_events("agent", "run", _note())
    with pytest.raises(StoreClosed):
        await on_another_loop(store.aclose)
    await until(lambda: not store_threads())
    _check_everything_is_released(path)
    with pytest.raises(StoreClosed):
        await store.load_run("agent", "run")
    await store.aclose()


def test_closing_after_the_end_of_the_loop_releases_everything(path: Path, url: str) -> None:
    async def leave_open() -> SqliteStore:
        store = await _open(url)
        await store.append_events("agent", "run", _note())
        return store

    store = asyncio.run(leave_open())
    with pytest.raises(StoreClosed):
        asyncio.run(store.aclose())
    until_blocking(lambda: not store_threads())
    _check_everything_is_released(path)


def _check_everything_is_released(path: Path) -> None:
    assert not store_threads()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_loop_that_ends_before_its_handle_prints_nothing(url: str) -> None:
    process = processes.start("end_the_loop_first", url)
    out, err = process.communicate(timeout=processes.PATIENCE)
    assert (process.returncode, out, err) == (0, "ended\n", "")


async def test_a_group_that_does_not_fit_is_appended_one_by_one(url: str) -> None:
    large = ToolResult("c", "t", result_json='"' + "x" * 200_000 + '"')
    async with await _open(url) as store:
        for _ in range(3):
            await store.append_events("agent", "run", _note())
        (pages,) = store._write_connection.execute("PRAGMA page_count").fetchone()
        store._write_connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        outcomes = await _append_as_a_group(store, _note("before"), new_event(large), _note("after"))
        assert [getattr(outcome, "version", type(outcome).__name__) for outcome in outcomes] == [
            4,
            "StoreUnavailable",
            5,
        ]
        assert [event.seq for event in (await store.load_run("agent", "run")).log] == [1, 2, 3, 4, 5]


async def _append_as_a_group(store: SqliteStore, *events: Event, run: str = "run") -> list[Any]:
    """Append each event in its own append, all at the same time, and return the outcomes."""
    release = threading.Event()
    carry_out = store._writes._carry_out

    def hold(jobs: list[Any]) -> list[object]:
        store._writes._carry_out = carry_out
        release.wait(PATIENCE)
        return [None for _ in jobs]

    store._writes._carry_out = hold
    holding = asyncio.ensure_future(store._writes.do(lambda: None))
    await until(store._writes.working.locked)
    appends = [asyncio.ensure_future(store.append_events("agent", run, event)) for event in events]
    await until(lambda: store._writes._queue.qsize() == len(events))
    release.set()
    await holding
    return await asyncio.gather(*appends, return_exceptions=True)


async def test_a_locked_file_fails_a_group_once(url: str) -> None:
    async with await _open(f"{url}?busy_timeout_ms=50") as store:
        statements: list[str] = []
        store._write_connection.set_trace_callback(statements.append)
        holder = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        outcomes = await _append_as_a_group(store, *(_note() for _ in range(40)))
        holder.execute("ROLLBACK")
        holder.close()
        store._write_connection.set_trace_callback(None)
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 40
        assert len({id(outcome) for outcome in outcomes}) == 40, "each append raises its own error"
        assert all(isinstance(outcome.__cause__, sqlite3.OperationalError) for outcome in outcomes)
        assert statements.count("BEGIN IMMEDIATE") == 1
        assert (await store.append_events("agent", "run", _note())).version == 1


async def test_a_commit_holds_a_bounded_number_of_appends(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory_log_sqlite.store._MOST_APPENDS_A_COMMIT", 4)
    async with await _open(url) as store:
        statements: list[str] = []
        store._write_connection.set_trace_callback(statements.append)
        outcomes = await _append_as_a_group(store, *(_note() for _ in range(10)))
        store._write_connection.set_trace_callback(None)
        assert sorted(outcome.version for outcome in outcomes) == list(range(1, 11))
        assert statements.count("COMMIT") == 3


_refuses_values = False


class _StricterPayload(EventData, frozen=True):
    """A payload type that refuses stored values after ``make_stricter`` was called."""

    event_type = "life.stricter"
    number: int = 0

    def __post_init__(self) -> None:
        if _refuses_values:
            raise RuntimeError("not in this release")


@pytest.fixture
def make_stricter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Register the payload type and return a function that makes its values raise."""
    by_type, by_class = dict(registry._by_type), dict(registry._by_class)
    register_payload(_StricterPayload)
    yield lambda: monkeypatch.setitem(globals(), "_refuses_values", True)
    registry._by_type.clear()
    registry._by_type.update(by_type)
    registry._by_class.clear()
    registry._by_class.update(by_class)


async def test_an_unreadable_stored_payload_fails_only_its_repeated_append(
    url: str, make_stricter: Callable[[], None]
) -> None:
    async with await _open(url) as store:
        await store.append_events("agent", "run", new_event(_StricterPayload(number=1), event_id="known"))
        make_stricter()
        repeated = new_event(PlannerNote(note="other"), event_id="known")
        outcomes = await _append_as_a_group(store, _note("before"), repeated, _note("after"))
        assert [getattr(outcome, "version", type(outcome).__name__) for outcome in outcomes] == [
            2,
            DecodeError.__name__,
            3,
        ]
        assert isinstance(outcomes[1].__cause__, RuntimeError)
        with pytest.raises(DecodeError, match="not in this release"):
            await store.load_run("agent", "run")
        assert [event.seq for event in (await store.load_run("agent", "run", after=1)).log] == [2, 3]


@pytest.mark.parametrize("program", ["outlive_the_parent", "outlive_the_parent_async"])
def test_a_child_whose_handle_outlives_its_parent_loses_no_event(url: str, program: str) -> None:
    assert processes.run(program, url).split() == ["nothing"]
    with open_sync_store(url) as store:
        ids = [event.event_id for event in store.load_run("agent", "run").log]
    assert ids == ["parent-0-0", "child-0-0", "parent-1-0", *(f"child-{number}-0" for number in range(1, 6))]


@pytest.mark.parametrize("size", ["1", "2"])
def test_a_signal_while_waiting_for_the_lock_leaves_the_handle_usable(url: str, size: str) -> None:
    interrupted, own_seq, other_seq = processes.run("be_interrupted", url, size).split()
    assert interrupted == "Interrupted"
    with open_sync_store(url) as store:
        log = store.load_run("agent", "run").log
    assert [event.event_id for event in log[-2:]] == ["after-0-0", "other-0-0"]
    assert [log[int(seq) - 1].event_id for seq in (own_seq, other_seq)] == ["after-0-0", "other-0-0"]
    assert len(log) - 3 in {0, int(size)}, "the interrupted append is stored completely or not at all"


@pytest.mark.parametrize("size", [1, 2])
def test_the_next_call_rolls_back_an_interrupted_transaction(url: str, size: int) -> None:
    with _open_sync(url) as store, open_sync_store(f"{url}?busy_timeout_ms=100") as other:
        store.append_events("agent", "run", _note("first"))
        store._write_connection.execute("BEGIN IMMEDIATE")
        store._write_connection.execute("DELETE FROM events")
        store._read_connection.execute("BEGIN")
        store._read_connection.execute("SELECT count(*) FROM events").fetchone()
        assert store.append_events("agent", "run", *(_note() for _ in range(size))).version == size + 1
        assert len(store.load_run("agent", "run").log) == size + 1
        assert other.append_events("agent", "run", _note()).version == size + 2


def test_an_interrupted_write_is_rolled_back_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with _open_sync(url) as store, open_sync_store(f"{url}?busy_timeout_ms=100") as other:
        insert_rows = store._writer._insert_rows

        def interrupted(*arguments: Any) -> None:
            insert_rows(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(store._writer, "_insert_rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append_events("agent", "run", _note(), _note())
        assert other.append_events("agent", "run", _note()).version == 1
        assert other.load_run("agent", "run").version == 1
