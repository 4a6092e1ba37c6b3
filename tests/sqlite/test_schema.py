"""Tests of the schema, of golden files and upgrades, and of files with a newer schema."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, Reader, new_event, open_store, open_sync_store
from agent_memory_log.errors import SchemaTooNew
from agent_memory_log.store import ExpireResult
from agent_memory_log_sqlite import SCHEMA_VERSION
from agent_memory_log_sqlite.schema import Settings, connect

GOLDEN = Path(__file__).parents[1] / "golden"


def _schema(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    finally:
        connection.close()


def test_every_schema_has_a_golden_file() -> None:
    assert {file.stem for file in GOLDEN.glob("schema-*.db")} == {f"schema-{n}" for n in range(1, SCHEMA_VERSION + 1)}


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
async def test_a_file_of_every_release_opens_and_accepts_events(tmp_path: Path, version: int) -> None:
    path = tmp_path / "runs.db"
    shutil.copy(GOLDEN / f"schema-{version}.db", path)
    expected = json.loads((GOLDEN / f"schema-{version}.json").read_text())
    async with open_store(f"sqlite:///{path}") as store:
        for run in expected:
            snapshot = await store.load_run(run["agent"], run["run"])
            assert [event.to_map() for event in snapshot.log] == run["events"]
            assert (snapshot.version, snapshot.meta) == (run["version"], run["meta"])
        with_calls = await store.load_run("support", "run-1")
        assert Reader(with_calls).result_for("tc-1") is not None
        result = await store.append_events("support", "run-1", *with_calls.log)
        assert result.inserted == 0, "the store recognizes ids from an older release"
    assert _schema(path) == _schema(_new_file(tmp_path)), "a migrated file and a new file have the same schema"


def test_an_upgrade_never_expires_a_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    shutil.copy(GOLDEN / "schema-1.db", path)
    meta = {"expires_at": "2001-01-01T00:00:00Z"}
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET meta = ?", (json.dumps(meta),))
    connection.commit()
    connection.close()
    with open_sync_store(f"sqlite:///{path}") as store:
        assert store.expire_runs() == ExpireResult(runs=0, events=0)
        assert [info.meta for info in store.list_runs().runs] == [meta, meta]
        for info in store.list_runs().runs:
            log = store.load_run(info.agent, info.run).log
            assert store.append_events(info.agent, info.run, *log).inserted == 0


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_an_older_file_gets_a_journal_of_its_erasures(tmp_path: Path, version: int) -> None:
    path = tmp_path / "runs.db"
    shutil.copy(GOLDEN / f"schema-{version}.db", path)
    with open_sync_store(f"sqlite:///{path}") as store:
        entries = {(entry.run, entry.seqs, entry.up_to) for entry in store.erasures().entries}
        redaction = store.load_run("support", "run-1").log[-1]
        deleted = store.load_run("support", "run-2").first_seq - 1
        assert entries == {("run-1", (7,), 0), ("run-2", (), deleted)}
        assert redaction.type == "redaction"
        assert list(store.check()) == [flaw for flaw in store.check() if not flaw.is_damage]


def test_an_older_release_with_the_file_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    shutil.copy(GOLDEN / "schema-2.db", path)
    older = sqlite3.connect(path, isolation_level=None)
    older.execute("SELECT base FROM runs WHERE agent = 'support' AND run = 'run-1'").fetchone()
    with open_sync_store(f"sqlite:///{path}") as store:
        # Every other operation of the older release first reads the run's base.
        for statement in (
            "INSERT INTO events (id, run, event_id, type, timestamp, data) SELECT 1, 1, 1, 1, 1, base FROM runs",
            "SELECT id, base, deletions, redactions, meta, expires_at FROM runs WHERE agent = 'support'",
        ):
            with pytest.raises(sqlite3.OperationalError, match="no such column: base"):
                older.execute(statement)
        store.append_events("support", "run-1", new_event(PlannerNote(note="a")))
        store.delete_run("support", "run-1")
    older.close()


@pytest.mark.parametrize("version", [1, 2])
def test_only_rows_after_the_upgrade_have_checksums(tmp_path: Path, version: int) -> None:
    path = tmp_path / "runs.db"
    shutil.copy(GOLDEN / f"schema-{version}.db", path)
    with open_sync_store(f"sqlite:///{path}?verify=on") as store:
        before = store.load_run("support", "run-1").version
        store.append_events("support", "run-1", new_event(PlannerNote(note="a")))
        store.redact_events("support", "run-1", [1])
        store.append_events("support", "new", new_event(PlannerNote(note="a")))
        store.delete_run("support", "run-2")
        store.append_events("support", "run-2", new_event(PlannerNote(note="a")))
        for run in ("run-1", "run-2", "new"):
            store.load_run("support", run)
    connection = sqlite3.connect(path)
    with_checksum = (
        "SELECT e.id & 4294967295 FROM events e JOIN runs r ON r.id = e.run WHERE e.sum IS NOT NULL AND r.run = ?"
    )
    assert [seq for (seq,) in connection.execute(f"{with_checksum} ORDER BY e.id", ["run-1"])] == [
        1,
        before + 1,
        before + 2,
    ]
    assert len(connection.execute(with_checksum, ["run-2"]).fetchall()) == 1
    assert connection.execute("SELECT run, sum IS NOT NULL FROM runs WHERE run <> 'run-3' ORDER BY run").fetchall() == [
        ("new", 1),
        ("run-1", 0),
        ("run-2", 1),
    ]
    connection.close()


def _new_file(tmp_path: Path) -> Path:
    path = tmp_path / "new.db"
    connect(Settings(path=str(path))).close()
    return path


def test_a_file_of_a_newer_schema_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = _new_file(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match="upgrade agent-memory-log") as caught:
        open_sync_store(f"sqlite:///{path}")
    assert (caught.value.actual, caught.value.supported) == (SCHEMA_VERSION + 1, SCHEMA_VERSION)
    assert path.read_bytes() == before


def test_plain_sql_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    shutil.copy(GOLDEN / f"schema-{SCHEMA_VERSION}.db", path)
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT seq, time, json_extract(data, '$.message') FROM log WHERE type = 'user_message' AND run = 'run-1'"
    ).fetchall()
    connection.close()
    assert rows[0] == (1, "2026-01-01T09:00:00", "Where is my order?")


def test_a_new_file_uses_full_sync_and_write_ahead_logging(tmp_path: Path) -> None:
    for durable, synchronous in ((True, 2), (False, 1)):
        connection = connect(Settings(path=str(tmp_path / "runs.db"), durable=durable))
        assert connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()
