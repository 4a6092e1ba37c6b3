"""Tests of the remembered heads of runs, which are valid only until the next write to the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory_log import SyncStore, UserMessage, new_event, open_store, open_sync_store
from agent_memory_log.store import RunHead
from agent_memory_log_sqlite import SyncSqliteStore
from tests.store_clock import StoreClock

RUNS = tuple(("agent", f"run {number}") for number in range(40))


def _append(store: SyncStore, run: str, **options: object) -> None:
    store.append_events("agent", run, new_event(UserMessage("a")), **options)  # type: ignore[arg-type]  # the options are keyword arguments of append_events


def _selects(store: SyncSqliteStore, call: Callable[[], object]) -> list[str]:
    statements: list[str] = []
    store._read_connection.set_trace_callback(statements.append)
    call()
    store._read_connection.set_trace_callback(None)
    return [statement for statement in statements if "runs" in statement]


def test_peek_runs_reads_no_run_until_a_write(tmp_path: Path) -> None:
    with open_sync_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        assert isinstance(store, SyncSqliteStore)
        _append(store, "run 1")
        some_runs = RUNS[:5]
        heads = store.peek_runs(RUNS)
        assert heads[1] == RunHead(1, 1)
        assert _selects(store, lambda: store.peek_runs(some_runs))
        assert _selects(store, lambda: [store.peek_runs(RUNS), store.peek_runs(list(some_runs))]) == []
        assert store.peek_runs(RUNS) == heads
        _append(store, "run 2")
        assert _selects(store, lambda: store.peek_runs(RUNS))


_WRITES: dict[str, Callable[[SyncStore], object]] = {
    "append": lambda store: _append(store, "run 1"),
    "begin": lambda store: _append(store, "run 3"),
    "redact": lambda store: store.redact_events("agent", "run 1", [1]),
    "delete": lambda store: store.delete_run("agent", "run 1"),
}


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
@pytest.mark.parametrize("is_other_handle", [False, True])
def test_peek_runs_sees_every_write(
    tmp_path: Path, write: Callable[[SyncStore], object], is_other_handle: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with open_sync_store(url) as store, open_sync_store(url) as other, open_sync_store(url) as fresh:
        assert isinstance(store, SyncSqliteStore)
        assert isinstance(fresh, SyncSqliteStore)
        _append(store, "run 1")
        before = store.peek_runs(RUNS)
        assert store.peek_runs(RUNS) == before
        write(other if is_other_handle else store)
        after = store.peek_runs(RUNS)
        assert after == fresh.peek_runs(RUNS) != before


async def test_peek_runs_of_an_asynchronous_handle_sees_every_write(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    async with open_store(url) as store:
        for version in range(1, 4):
            await store.append_events("agent", "run 1", new_event(UserMessage("a")))
            for _ in range(2):
                heads = await store.peek_runs(RUNS)
                assert heads[1] == RunHead(version, 1)


def test_peek_runs_sees_an_expired_run_without_a_write(tmp_path: Path, store_clock: StoreClock) -> None:
    with open_sync_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        assert isinstance(store, SyncSqliteStore)
        _append(store, "run 1", meta=store_clock.meta_with_an_end())
        assert store.peek_runs(RUNS)[1] == RunHead(1, 1)
        store_clock.pass_the_end()
        assert store.peek_runs(RUNS)[1] is None
        assert _selects(store, lambda: store.peek_runs(RUNS)) == []


def test_peek_runs_reads_an_overwritten_file_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with open_sync_store(f"sqlite:///{path}") as store:
        assert isinstance(store, SyncSqliteStore)
        _append(store, "run 1")
        store.compact()
        older = path.read_bytes()
        _append(store, "run 1")
        store.compact()
        assert store.peek_runs(RUNS)[1] == RunHead(2, 1)
        path.write_bytes(older)
        os.utime(path, (1, 1))
        store._read_file._look_again_at = 0.0
        assert store.peek_runs(RUNS)[1] == RunHead(1, 1)
