"""Tests that every query uses an index, so the cost of a call does not grow with the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, UserMessage, new_event, open_sync_store
from agent_memory_log.store import RunHead
from agent_memory_log_sqlite import SyncSqliteStore

CALLS: dict[str, Callable[[SyncSqliteStore], object]] = {
    "load": lambda store: store.load_run("agent", "run", after=2),
    "load limited": lambda store: store.load_run("agent", "run", limit=2),
    "load rare types": lambda store: store.load_run("agent", "run", types=["planner_note", "user_message"], limit=1),
    "load common types": lambda store: store.load_run("agent", "run", types=["tool_call", "planner_note"]),
    "load last": lambda store: store.load_run("agent", "run", last=2),
    "load last rare types": lambda store: store.load_run("agent", "run", types=["planner_note"], last=1),
    "load last common types": lambda store: store.load_run("agent", "run", types=["tool_call", "user_message"], last=1),
    "find": lambda store: store.find_events(
        "agent", "run", ["unknown", store.load_run("agent", "run").log[0].event_id]
    ),
    "follow": lambda store: next(store.follow("agent", "run")),
    "list": lambda store: store.list_runs(limit=1),
    "list next": lambda store: store.list_runs(limit=1, cursor=store.list_runs(limit=1).cursor),
    "list agent": lambda store: store.list_runs("agent"),
    "peek": lambda store: store.peek_runs([("agent", "run"), ("agent", "unknown"), ("agent", "other")]),
    "append": lambda store: store.append_events("agent", "run", new_event(PlannerNote(note="a"))),
    "append again": lambda store: store.append_events("agent", "run", *store.load_run("agent", "run").log),
    "append many": lambda store: store.append_events("agent", "run", *(new_event(PlannerNote(note="a")) for _ in "ab")),
    "append elsewhere": lambda store: store.append_events("agent", "new", new_event(PlannerNote(note="a"))),
    "append with an end": lambda store: store.append_events(
        "agent", "ends", new_event(PlannerNote(note="a")), meta={"expires_at": "9999-12-31T23:59:59Z"}
    ),
    "redact": lambda store: store.redact_events("agent", "run", [1]),
    "delete": lambda store: store.delete_run("agent", "run"),
    "expire": lambda store: store.expire_runs(),
    "expire dry": lambda store: store.expire_runs(dry_run=True),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_query_scans_a_table(tmp_path: Path, call: str) -> None:
    with open_sync_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        assert isinstance(store, SyncSqliteStore)
        for run in ("other", "run", "more"):
            store.append_events("agent", run, *(new_event(UserMessage(message=str(n))) for n in range(5)))
        statements: list[str] = []
        connections = (store._write_connection, store._read_connection)
        for connection in connections:
            connection.set_trace_callback(statements.append)
        CALLS[call](store)
        for connection in connections:
            connection.set_trace_callback(None)
        plans = {
            sql: _plan(store._read_connection, sql)
            for sql in statements
            if sql.startswith(("SELECT", "INSERT", "WITH"))
        }
    assert plans
    for sql, plan in plans.items():
        for step in plan:
            # The subquery "wanted" holds only the requested runs.
            may_scan = ("CONSTANT ROW", "USING INDEX runs_by_creation", "wanted")
            assert not step.startswith("SCAN") or any(allowed in step for allowed in may_scan), (sql, plan)
            assert "TEMP B-TREE" not in step or "types" in call, (sql, plan)


def test_peek_runs_stays_within_the_limits_of_an_old_sqlite(tmp_path: Path) -> None:
    with open_sync_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        assert isinstance(store, SyncSqliteStore)
        store.append_events("agent", "1499", new_event(PlannerNote(note="a")))
        store._read_connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
        heads = store.peek_runs(("agent", str(number)) for number in range(1500))
        assert heads == (RunHead(0, 1),) * 1499 + (RunHead(1, 1),)


def _plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
