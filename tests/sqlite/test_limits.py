"""Tests of order, selection and limits of the SQLite backend, and of the number of remembered runs."""

# pyright: reportPrivateUsage=false
# Only private attributes give access to the statements and the remembered runs.

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import Event, PlannerNote, SyncStore, new_event, open_sync_store
from agent_memory_log.errors import EventTooLarge, InvalidArgument, InvalidEvent
from agent_memory_log.events.payloads import Redaction
from agent_memory_log_sqlite import SyncSqliteStore
from tests.sqlite.rows import set_in_run

_MAX_SEQ = 2**32 - 1


def _note(text: str = "n") -> Event:
    return new_event(PlannerNote(note=text))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


def _open(url: str) -> SyncSqliteStore:
    store = open_sync_store(url)
    assert isinstance(store, SyncSqliteStore)
    return store


def _paged(store: SyncStore, limit: int) -> list[str]:
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = store.list_runs(limit=limit, cursor=cursor)
        names += [run.run for run in page.runs]
        cursor = page.cursor
        if cursor is None:
            return names


def test_runs_created_at_one_instant_are_paged_without_loss(path: Path, url: str) -> None:
    names = [f"run-{number}" for number in range(7)]
    with _open(url) as store:
        for name in names:
            store.append_events("agent", name, _note())
            set_in_run(path, "created", 5, name)
        for limit in (1, 2, 3, 6, 7, 8):
            assert _paged(store, limit) == names[::-1]


@pytest.mark.parametrize("years", [0, -1], ids=["same time", "earlier time"])
def test_the_newest_run_comes_first_even_if_the_clock_goes_back(
    url: str, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    class Clock(dt.datetime):
        year_now = 2026

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return dt.datetime(cls.year_now, 1, 1, tzinfo=tz)

    monkeypatch.setattr("agent_memory_log_sqlite.writes.datetime", Clock)
    names = [f"run-{number}" for number in range(5)]
    with _open(url) as store:
        for name in names:
            store.append_events("agent", name, _note())
            Clock.year_now += years
        assert _paged(store, 2) == names[::-1]


def test_load_of_rare_types_uses_the_index(url: str) -> None:
    with _open(url) as store:
        store.append_events("agent", "run", *(_note() for _ in range(5)))
        statements: list[str] = []
        store._read_connection.set_trace_callback(statements.append)
        store.load_run("agent", "run", types=["planner_note"])
        store._read_connection.set_trace_callback(None)
        plans = [
            row[3]
            for sql in statements
            if "type IN (" in sql
            for row in store._read_connection.execute(f"EXPLAIN QUERY PLAN {sql}")
        ]
    assert any("USING INDEX events_by_type" in step for step in plans), plans


def test_a_concurrent_deletion_does_not_change_a_load(url: str) -> None:
    with _open(url) as store, _open(url) as other:
        store.append_events("agent", "run", *(_note(str(number)) for number in range(5)))
        deleted: list[str] = []

        def delete_before_the_events_are_read(sql: str) -> None:
            if sql.startswith("SELECT id, event_id") and not deleted:
                deleted.append(sql)
                other.delete_run("agent", "run")

        store._read_connection.set_trace_callback(delete_before_the_events_are_read)
        snapshot = store.load_run("agent", "run")
        store._read_connection.set_trace_callback(None)
        assert deleted
        assert [event.seq for event in snapshot.log] == [1, 2, 3, 4, 5]
        assert len(store.load_run("agent", "run").log) == 0


@pytest.fixture
def any_first_seq(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow a test to begin a run near the last seq, which an application cannot do."""
    monkeypatch.setattr("agent_memory_log.backend_kit.checks.MAX_FIRST_SEQ", _MAX_SEQ)


@pytest.mark.usefixtures("any_first_seq")
def test_the_last_seq_of_a_run_does_not_overflow_into_the_next_run(url: str) -> None:
    with _open(url) as store:
        store.append_events("agent", "run", _note(), first_seq=_MAX_SEQ)
        for _ in range(2):
            with pytest.raises(InvalidArgument, match="at most"):
                store.append_events("agent", "run", _note())
        store.append_events("agent", "next", _note())
        assert [event.seq for event in store.load_run("agent", "next").log] == [1]
        assert store.load_run("agent", "run").version == _MAX_SEQ


@pytest.mark.usefixtures("any_first_seq")
def test_a_full_run_is_refused_by_a_new_handle_and_by_a_batch(url: str) -> None:
    with _open(url) as store:
        store.append_events("agent", "run", _note(), first_seq=_MAX_SEQ - 1)
    with _open(url) as store:
        with pytest.raises(InvalidArgument, match="at most"):
            store.append_events("agent", "run", _note(), _note())
        store.append_events("agent", "run", _note())
        assert store.load_run("agent", "run").version == _MAX_SEQ
    with _open(url) as store:
        with pytest.raises(InvalidArgument, match="at most"):
            store.append_events("agent", "run", _note())
        assert [run.event_count for run in store.list_runs().runs] == [2]


def test_append_refuses_a_marker_for_an_event_that_is_not_redacted(url: str) -> None:
    with _open(url) as store:
        store.append_events("agent", "run", _note())
        with pytest.raises(InvalidEvent, match="event 1 is not redacted"):
            store.append_events("agent", "run", new_event(Redaction(seqs=(1,), reason="r")))
        assert store.load_run("agent", "run").version == 1


def test_a_handle_remembers_a_bounded_number_of_runs(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory_log_sqlite.open_file._MOST_RUNS", 3)
    with _open(url) as store:
        for number in range(10):
            store.append_events("agent", f"run-{number}", _note())
            assert len(store._writer._remembered) <= 3
        assert [store.append_events("agent", f"run-{number}", _note()).version for number in range(10)] == [2] * 10


def test_a_batch_can_be_sixteen_times_the_largest_event(url: str) -> None:
    with _open(f"{url}?max_event_bytes=1000") as store:
        store.append_events("agent", "run", *(_note("x" * 900) for _ in range(16)))
        with pytest.raises(EventTooLarge, match="batch") as caught:
            store.append_events("agent", "run", *(_note("x" * 900) for _ in range(18)))
        assert caught.value.limit == 16_000
        assert store.load_run("agent", "run").version == 16


def test_compacting_counts_the_write_ahead_log(path: Path, url: str) -> None:
    with _open(url) as store:
        store.append_events("agent", "run", *(_note("x" * 1000) for _ in range(50)))
        assert path.stat().st_size < 50_000, "the written events are still in the write-ahead log"
        result = store.compact()
        assert result.before > 50_000
        assert result.after == path.stat().st_size


def test_limits_larger_than_sqlite_integers_are_accepted(url: str) -> None:
    with _open(url) as store:
        store.append_events("agent", "run", _note(), _note())
        assert len(store.load_run("agent", "run", limit=10**30).log) == 2
        assert len(store.list_runs(limit=10**30).runs) == 1
        with pytest.raises(InvalidArgument, match="first_seq must be an integer from 1 to 2,147,483,648"):
            store.append_events("agent", "new", _note(), first_seq=10**30)
