"""Tests of event ids in the file: UUIDs as 16 bytes, other ids as text, and upgrades of older files."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory_log import Event, PlannerNote, new_event, open_sync_store
from agent_memory_log.errors import EventConflict
from agent_memory_log_sqlite import SyncSqliteStore
from agent_memory_log_sqlite.row_format import event_sum, id_as_text, id_to_store, name_sum
from agent_memory_log_sqlite.schema import Settings
from tests import processes

GOLDEN = Path(__file__).parents[1] / "golden"

CANONICAL = "018f3e2a-7b1c-7d4e-9f60-a1b2c3d4e5f6"
OTHER_FORMS = (
    CANONICAL.upper(),
    f"{{{CANONICAL}}}",
    CANONICAL.replace("-", ""),
    f"urn:uuid:{CANONICAL}",
    f" {CANONICAL[:-1]}",
    f"{CANONICAL[:-1]}\0",
    CANONICAL.replace("-", " "),
    CANONICAL.replace("-", "_"),
    "018f3e2a7b-1c-7d4e-9f60-a1b2c3d4e5f6",
    "018f3e2a7b1c7d4e9f60a1b2c3d4e5f60000",
    "018f3e2a-7b1c-7d4e-9f60-a1b2c3d4e5fg",
    "\u066018f3e2a-7b1c-7d4e-9f60-a1b2c3d4e5f6",
    "\U0001f9ff" * 36,
)


@given(st.uuids())
def test_a_canonical_uuid_is_stored_as_its_bytes(number: UUID) -> None:
    assert id_to_store(str(number)) == number.bytes
    assert id_as_text(number.bytes) == str(number)


@given(st.text(st.sampled_from("0123456789abcdefABF- {}"), min_size=36, max_size=36) | st.text())
@example(CANONICAL)
def test_every_id_is_read_as_it_was_written(event_id: str) -> None:
    stored = id_to_store(event_id)
    assert id_as_text(stored) == event_id
    assert isinstance(stored, bytes) == (event_id == CANONICAL or _is_canonical(event_id))


def _is_canonical(event_id: str) -> bool:
    try:
        return str(UUID(event_id)) == event_id
    except ValueError:
        return False


@pytest.mark.parametrize("value", [b"", b"x" * 15, b"x" * 17, 7, None])
def test_a_damaged_id_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="event id"):
        id_as_text(value)  # type: ignore[arg-type]  # a damaged file can hold any value


def _events() -> list[Event]:
    return [new_event(PlannerNote(note=event_id), event_id=event_id) for event_id in (CANONICAL, *OTHER_FORMS)]


@pytest.mark.parametrize("verify", ["on", "off"])
def test_other_forms_of_a_uuid_are_other_ids(tmp_path: Path, verify: str) -> None:
    path = tmp_path / "runs.db"
    with open_sync_store(f"sqlite:///{path}?verify={verify}") as store:
        for event in _events():
            assert store.append_events("agent", "run", event).inserted == 1
        assert store.append_events("agent", "run", *_events()).inserted == 0
        assert [event.event_id for event in store.load_run("agent", "run").log] == [CANONICAL, *OTHER_FORMS]
        matches = store.find_events("agent", "run", [*OTHER_FORMS, CANONICAL])
        assert [event and event.event_id for event in matches] == [*OTHER_FORMS, CANONICAL]
        with pytest.raises(EventConflict):
            store.append_events("agent", "run", new_event(PlannerNote(note="b"), event_id=CANONICAL))
        assert list(store.check()) == []
    connection = sqlite3.connect(path)
    stored = connection.execute("SELECT event_id FROM events ORDER BY id").fetchall()
    assert stored == [(UUID(CANONICAL).bytes,), *((event_id,) for event_id in OTHER_FORMS)]
    in_view = [event_id for (event_id,) in connection.execute("SELECT event_id FROM log ORDER BY seq")]
    assert in_view == [CANONICAL, *OTHER_FORMS]
    connection.close()


def test_damage_to_a_stored_uuid_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_events())
    for value in (UUID(CANONICAL).bytes[:15], UUID(int=1).bytes, CANONICAL.upper() + "0", 7):
        connection = sqlite3.connect(path)
        connection.execute("UPDATE events SET event_id = ? WHERE id & 4294967295 = 1", (value,))
        connection.commit()
        connection.close()
        with open_sync_store(f"sqlite:///{path}") as store:
            assert [flaw.seq for flaw in store.check() if flaw.is_damage] == [1]


def _older_file(path: Path, version: int) -> None:
    """Write the file of an older release, with an event for each id and a checksum where that release had one."""
    shutil.copy(GOLDEN / f"schema-{version}.db", path)
    connection = sqlite3.connect(path)
    (run_id,) = connection.execute("SELECT id FROM runs WHERE run = 'run-1'").fetchone()
    (last,) = connection.execute("SELECT max(id) FROM events WHERE run = ?", (run_id,)).fetchone()
    name = name_sum("support", "run-1")
    for row_id, event_id in enumerate((CANONICAL, *OTHER_FORMS), last + 1):
        columns = (event_id, "planner_note", 0, None, '{"note":"a"}')
        connection.execute(
            "INSERT INTO events (id, run, event_id, type, timestamp, labels, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (row_id, run_id, *columns),
        )
        if version > 2:
            total = event_sum(name, row_id & 0xFFFFFFFF, *columns[:4], columns[4].encode(), None)
            connection.execute("UPDATE events SET sum = ? WHERE id = ?", (total, row_id))
    connection.commit()
    connection.close()


def _check_upgraded(path: Path) -> None:
    with SyncSqliteStore(Settings(path=str(path), verify=True)) as store:
        assert [flaw for flaw in store.check() if flaw.is_damage] == []
        log = store.load_run("support", "run-1").log
        assert [event.event_id for event in log][-14:] == [CANONICAL, *OTHER_FORMS]
        assert store.append_events("support", "run-1", *log).inserted == 0
        assert store.find_events("support", "run-1", [CANONICAL])[0] == log[-14]
        store.compact()
    connection = sqlite3.connect(path)
    forms = connection.execute("SELECT typeof(event_id), count(*) FROM events GROUP BY 1").fetchall()
    assert dict(forms)["blob"] == 1
    connection.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_upgrade_changes_only_canonical_uuids(tmp_path: Path, version: int) -> None:
    path = tmp_path / "runs.db"
    _older_file(path, version)
    _check_upgraded(path)
    _check_upgraded(path)


def test_an_upgrade_keeps_ids_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    _older_file(path, 3)
    connection = sqlite3.connect(path)
    damaged = CANONICAL.encode()[:-2] + b"\xff\xff"
    connection.execute("UPDATE events SET event_id = CAST(? AS TEXT) WHERE event_id = ?", (damaged, CANONICAL))
    connection.commit()
    connection.close()
    with open_sync_store(f"sqlite:///{path}") as store:
        assert len([flaw for flaw in store.check() if flaw.is_damage]) == 1


def test_a_killed_upgrade_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    _older_file(path, 3)
    process = processes.start("upgrade_until_killed", str(path))
    process.communicate(timeout=processes.PATIENCE)
    assert process.returncode == -signal.SIGKILL
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (3,)
    assert connection.execute("SELECT count(*) FROM events WHERE typeof(event_id) = 'blob'").fetchone() == (0,)
    connection.close()
    _check_upgraded(path)
