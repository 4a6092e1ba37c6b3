"""Tests of expiring runs in an SQLite file: their cost, their followers and their removal in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_memory_log import Event, PlannerNote, Store, new_event, open_store, open_sync_store
from agent_memory_log.conformance.ends import FAR_ENDS, expired_run
from agent_memory_log.conformance.threaded import threaded
from agent_memory_log.store import ExpireResult
from agent_memory_log_sqlite import SyncSqliteStore
from tests.sqlite.rows import set_in_run
from tests.waiting import PATIENCE

FAR = {"expires_at": FAR_ENDS[0]}


def _note() -> Event:
    return new_event(PlannerNote(note="n"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SyncSqliteStore]:
    with open_sync_store(f"sqlite:///{path}") as opened:
        assert isinstance(opened, SyncSqliteStore)
        yield opened


@contextmanager
def _recorded_statements(store: SyncSqliteStore) -> Generator[list[str]]:
    """Record the first word of each statement on the writing connection."""
    statements: list[str] = []
    store._write_connection.set_trace_callback(lambda sql: statements.append(sql.split()[0]))
    yield statements
    store._write_connection.set_trace_callback(None)


def _end_in_the_past(path: Path, *runs: str) -> None:
    """Set the ends of the runs to a time in the past."""
    for run in runs:
        set_in_run(path, "expires_at", 1, run)


@pytest.mark.parametrize("surface", ["async", "sync"])
async def test_a_waiting_follower_wakes_at_the_end_without_a_poll(
    path: Path, surface: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_memory_log_sqlite.store.POLL_SECONDS", 10_000)
    monkeypatch.setattr("agent_memory_log_sqlite.sync.POLL_SECONDS", 10_000)
    url = f"sqlite:///{path}"
    store: Store = await open_store(url) if surface == "async" else threaded(open_sync_store(url))
    async with asyncio.timeout(PATIENCE):
        await expired_run(store)
    await store.aclose()


def test_an_append_to_a_run_with_an_end_is_one_statement(store: SyncSqliteStore) -> None:
    store.append_events("agent", "run", _note(), meta=FAR)
    with _recorded_statements(store) as statements:
        store.append_events("agent", "run", _note())
    assert statements == ["INSERT"]
    store.redact_events("agent", "run", [1])
    with _recorded_statements(store) as statements:
        store.append_events("agent", "run", _note())
    assert statements == ["INSERT"]


def test_expire_runs_removes_a_bounded_number_of_runs_at_once(
    path: Path, store: SyncSqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_memory_log_sqlite.writes._RUNS_A_TRANSACTION", 2)
    runs = [f"run-{number}" for number in range(5)]
    for run in runs:
        store.append_events("agent", run, _note(), meta=FAR)
    _end_in_the_past(path, *runs)
    with _recorded_statements(store) as statements:
        assert store.expire_runs() == ExpireResult(runs=5, events=5)
    assert statements.count("COMMIT") == 4, "transactions for two, two, one and no runs"


def test_expire_runs_removes_a_bounded_number_of_events_at_once(
    path: Path, store: SyncSqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_memory_log_sqlite.writes._EVENTS_A_TRANSACTION", 3)
    runs = [f"run-{number}" for number in range(4)]
    for run in runs:
        store.append_events("agent", run, _note(), _note(), meta=FAR)
    _end_in_the_past(path, *runs)
    with _recorded_statements(store) as statements:
        assert store.expire_runs() == ExpireResult(runs=4, events=8)
    assert statements.count("COMMIT") == 3, "transactions for two, two and no runs"


def test_a_damaged_run_with_an_end_and_no_events_is_removed_once(path: Path, store: SyncSqliteStore) -> None:
    store.append_events("agent", "run", _note(), meta=FAR)
    store.delete_run("agent", "run")
    _end_in_the_past(path, "run")
    assert store.expire_runs(dry_run=True) == ExpireResult(runs=1, events=0)
    assert store.expire_runs() == ExpireResult(runs=1, events=0)
    assert store.expire_runs() == ExpireResult(runs=0, events=0)
    assert store.append_events("agent", "run", _note()).version == 2


def test_a_read_only_handle_counts_expired_runs(path: Path, store: SyncSqliteStore) -> None:
    store.append_events("agent", "run", _note(), _note(), meta=FAR)
    _end_in_the_past(path, "run")
    with open_sync_store(f"sqlite:///{path}?mode=ro") as reader:
        assert isinstance(reader, SyncSqliteStore)
        assert reader.expire_runs(dry_run=True) == ExpireResult(runs=1, events=2)
