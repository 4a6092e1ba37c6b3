"""Tests that ``compact`` removes redacted and deleted content from the file, as another process sees it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, ToolResult, new_event, open_store, open_sync_store
from agent_memory_log.capabilities import Compacts
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log_sqlite import SyncSqliteStore

SECRET = "wolfram-4711-secret"
TRIALS = 12


def _files_contain_the_secret(folder: Path) -> bool:
    """Return whether another process finds the secret in a file of the folder."""
    searched = subprocess.run(["grep", "-rqa", SECRET, str(folder)], check=False)
    assert searched.returncode in {0, 1}
    return searched.returncode == 0


@pytest.mark.parametrize("method", ["redact", "delete"])
async def test_compact_leaves_no_erased_content(tmp_path: Path, method: str) -> None:
    # Page splits leave copies in only a few of a hundred trials, so one trial could pass by luck.
    for trial in range(TRIALS):
        chance = random.Random(trial)
        folder = tmp_path / f"{method}{trial}"
        folder.mkdir()
        async with open_store(f"sqlite:///{folder / 'runs.db'}") as store:
            secrets: list[tuple[str, int]] = []
            for _ in range(400):
                run = f"run-{chance.randrange(6)}"
                text = "x" * chance.randrange(2000)
                secret = chance.random() < 0.1
                event = new_event(
                    ToolResult("c", "t", result_json=f"{text}{SECRET if secret else ''}"),
                    labels={"reason": SECRET} if secret else None,
                )
                result = await store.append_events("agent", run, event)
                if secret:
                    secrets.append((run, result.version))
                if chance.random() < 0.1 and secrets:
                    secret_run, seq = secrets.pop(chance.randrange(len(secrets)))
                    await store.redact_events("agent", secret_run, [seq], reason="asked")
            assert _files_contain_the_secret(folder), "the search does not work"
            if method == "redact":
                for run, seq in secrets:
                    await store.redact_events("agent", run, [seq], reason="asked")
            else:
                for number in range(6):
                    await store.delete_run("agent", f"run-{number}")
            assert isinstance(store, Compacts)
            compacted = await store.compact()
            assert compacted.after < compacted.before
            assert not _files_contain_the_secret(folder)
        assert not _files_contain_the_secret(folder)


def test_compact_reports_an_open_reader(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    url = f"sqlite:///{path}?busy_timeout_ms=50"
    with open_sync_store(url) as store:
        assert isinstance(store, SyncSqliteStore)
        store.append_events("agent", "run", *(new_event(PlannerNote(note=f"{SECRET} {n}")) for n in range(100)))
        with open_sync_store(url) as other:
            assert isinstance(other, SyncSqliteStore)
            reader = other._read_connection
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            store.redact_events("agent", "run", range(1, 101), reason="asked")
            with pytest.raises(StoreUnavailable, match="compact again"):
                store.compact()
            reader.execute("COMMIT")
        store.compact()
        assert not _files_contain_the_secret(tmp_path)
        assert store.load_run("agent", "run").version == 101


_HOLDING_CHECKPOINTS = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 121)  # the byte that SQLite locks for checkpoints
print("held", flush=True)
sys.stdin.read()
"""


def test_compact_waits_for_a_checkpoint_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with open_sync_store(f"sqlite:///{path}") as store:
        assert isinstance(store, SyncSqliteStore)
        store.append_events("agent", "run", new_event(PlannerNote(note=SECRET)))
        store.delete_run("agent", "run")
        command = [sys.executable, "-c", _HOLDING_CHECKPOINTS, f"{path}-shm"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            attempts: list[str] = []

            def attempt(statement: str) -> None:
                if "wal_checkpoint" in statement:
                    attempts.append(statement)
                if len(attempts) == 2 and holder.poll() is None:
                    holder.communicate()

            store._write_connection.set_trace_callback(attempt)
            store.compact()
        assert not _files_contain_the_secret(tmp_path)
