"""Tests that a handle stays usable after a signal handler raises an exception at any line of a call."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agent_memory_log import Event, PlannerNote, new_event, open_sync_store
from agent_memory_log_sqlite import SyncSqliteStore

_BACKEND = str(Path(sys.modules[SyncSqliteStore.__module__].__file__ or "").parent)


_STRIDE = 4
"""The step between tested lines, because testing every line takes minutes."""


class _Interrupted(BaseException):
    """An exception like ``KeyboardInterrupt`` that pytest does not treat as Ctrl-C."""


def _note() -> Event:
    return new_event(PlannerNote(note="n"))


def _count_lines(work: Callable[[], object], interrupted: int = 0) -> int:
    """Do ``work`` and return the number of lines that ran in the backend.

    Raise ``_Interrupted`` at line number ``interrupted`` of them, counted from 1. Raise nothing if it is 0.
    """
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        name = frame.f_code.co_filename
        if not name.startswith(_BACKEND):
            return None
        # A trace function also runs between the end of a block and the release of its lock, and at the line of a
        # ``try``. CPython 3.11 leaves that line out of the block around it. A signal handler runs at neither.
        if event == "line" and not getline(name, frame.f_lineno).lstrip().startswith(("with ", "try:")):
            count += 1
            if count == interrupted:
                raise _Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


_CALLS: dict[str, Callable[[SyncSqliteStore], object]] = {
    "append": lambda store: store.append_events("agent", "run", _note()),
    "append batch": lambda store: store.append_events("agent", "run", _note(), _note()),
    "redact": lambda store: store.redact_events("agent", "run", [store.load_run("agent", "run").version]),
    "delete": lambda store: store.delete_run("agent", "other"),
    "expire": lambda store: store.expire_runs(),
    "compact": lambda store: store.compact(),
    "load": lambda store: store.load_run("agent", "run"),
    "peek": lambda store: store.peek_runs([("agent", "run")]),
    "list": lambda store: store.list_runs(),
}


@pytest.mark.parametrize("call", _CALLS)
def test_an_interrupt_at_any_line_leaves_the_handle_usable(tmp_path: Path, call: str) -> None:
    work, calls = _CALLS[call], list(_CALLS.values())
    url = f"sqlite:///{tmp_path / 'runs.db'}?durability=os&busy_timeout_ms=0"
    with open_sync_store(url) as store, open_sync_store(url) as other:
        assert isinstance(store, SyncSqliteStore)
        assert isinstance(other, SyncSqliteStore)
        store.append_events("agent", "run", _note())

        def append_and_work() -> None:
            store.append_events("agent", "other", _note())
            work(store)

        for line_number in range(1, _count_lines(append_and_work), _STRIDE):
            with contextlib.suppress(_Interrupted):
                _count_lines(append_and_work, line_number)
            calls[line_number % len(calls)](store)
            other.append_events("agent", "others", _note())  # fails if a lock is still held
        seqs = [event.seq for event in store.load_run("agent", "run").log]
        assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.parametrize("call", _CALLS)
def test_the_next_call_ends_open_transactions(tmp_path: Path, call: str) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}?busy_timeout_ms=0"
    with open_sync_store(url) as store, open_sync_store(url) as other:
        assert isinstance(store, SyncSqliteStore)
        store.append_events("agent", "run", _note())
        store._write_connection.execute("BEGIN IMMEDIATE")
        store._write_connection.execute("DELETE FROM events")
        if call in {"load", "peek", "list"}:
            store._write_connection.execute("ROLLBACK")
        store._read_connection.execute("BEGIN")
        store._read_connection.execute("SELECT count(*) FROM events").fetchone()
        _CALLS[call](store)
        other.append_events("agent", "new", _note())
        assert {info.run for info in store.list_runs().runs} == {"run", "new"}
        assert store.load_run("agent", "run").log
