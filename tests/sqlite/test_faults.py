"""Tests of full disks, read-only and damaged files, and other faults: typed errors and intact data."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from agent_memory_log import (
    AgentMemoryLogError,
    PlannerNote,
    ToolResult,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import DecodeError, InvalidArgument, StoreCorrupt, StoreUnavailable
from agent_memory_log_sqlite import SqliteStore, SyncSqliteStore
from tests import processes


def _note(text: str = "n") -> PlannerNote:
    return PlannerNote(note=text)


def _large(number: int) -> ToolResult:
    return ToolResult("c", "t", result_json='"' + f"{number:07}" * 30_000 + '"')


def _store_some(path: Path, count: int = 20) -> None:
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *(new_event(_note(str(number))) for number in range(count)))


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """Create a folder on its own file system of 2 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mount.returncode != 0:
        pytest.skip("mounting a small tmpfs needs rights this user does not have")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_refuses_appends_and_keeps_acknowledged_events(small_disk: Path) -> None:
    url = f"sqlite:///{small_disk / 'runs.db'}"
    name, stored, cause = processes.run("fill_disk", url).split(" ", 2)
    assert name == "StoreUnavailable"
    assert "OperationalError" in cause
    assert int(stored) > 3
    with open_sync_store(url) as store:
        snapshot = store.load_run("agent", "run")
        assert [event.event_id for event in snapshot.log] == [str(number) for number in range(int(stored))]


def test_a_full_disk_is_named_when_nothing_can_be_read(small_disk: Path) -> None:
    """Also a read needs space: SQLite keeps its index of the log in a file."""
    _store_some(small_disk / "runs.db")
    with suppress(OSError):
        (small_disk / "other").write_bytes(bytes(2**21))
    with pytest.raises(StoreUnavailable, match="the disk is probably full"):
        open_sync_store(f"sqlite:///{small_disk / 'runs.db'}")


async def test_a_full_database_refuses_only_appends_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    _store_some(path)
    async with open_store(f"sqlite:///{path}") as store:
        assert isinstance(store, SqliteStore)
        writer = store._writer._connection
        (pages,) = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(StoreUnavailable, match="disk is full") as caught:
            await store.append_events("agent", "run", new_event(_large(1)))
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        result = await store.append_events("agent", "run", new_event(_note("small")))
        assert result.version == 21
        writer.execute(f"PRAGMA max_page_count = {pages + 4000}")
        assert (await store.append_events("agent", "run", new_event(_large(2)))).version == 22


def test_a_read_only_file_can_be_read_but_not_written(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    _store_some(path)
    with open_sync_store(f"sqlite:///{path}?mode=ro") as store:
        assert store.load_run("agent", "run").version == 20
        with pytest.raises(StoreUnavailable, match="read-only"):
            store.append_events("agent", "run", new_event(_note()))
        with pytest.raises(StoreUnavailable, match="read-only"):
            store.redact_events("agent", "run", [1])
    with pytest.raises(StoreUnavailable):
        open_sync_store(f"sqlite:///{tmp_path / 'missing.db'}?mode=ro")
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can take another user's rights")
def test_a_file_without_write_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    _store_some(path)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    output = processes.run("append_as_nobody", f"sqlite:///{path}")
    assert output.startswith("StoreUnavailable: ")
    assert str(path) in output


@pytest.mark.parametrize(
    "content",
    [b"this is not a database\n" * 200, b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 5000],
    ids=["text", "zeros", "header only"],
)
def test_garbage_is_refused_and_left_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=re.escape(str(path))):
        open_sync_store(f"sqlite:///{path}")
    assert path.read_bytes() == content


async def test_a_truncated_file_raises_a_typed_error(tmp_path: Path) -> None:
    complete = tmp_path / "complete.db"
    _store_some(complete, 2000)
    data = complete.read_bytes()
    path = tmp_path / "cut.db"
    for length in (1, 50, 4000, 8192, 8192 * 3 + 100, len(data) // 2, len(data) - 8192):
        path.write_bytes(data[:length])
        with pytest.raises(StoreUnavailable):
            async with open_store(f"sqlite:///{path}") as store:
                await store.load_run("agent", "run")
        for leftover in tmp_path.glob("cut.db-*"):
            leftover.unlink()


def test_another_programs_database_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE precious (value TEXT)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="another program"):
        open_sync_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_folder_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is a folder"):
        open_sync_store(f"sqlite:///{tmp_path}")
    with pytest.raises(StoreUnavailable, match="folder exists"):
        open_sync_store(f"sqlite:///{tmp_path / 'no' / 'such' / 'runs.db'}")


def test_a_lock_beyond_the_busy_timeout_raises_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    _store_some(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with open_sync_store(f"sqlite:///{path}?busy_timeout_ms=50") as store:
        with pytest.raises(StoreUnavailable, match="busy_timeout_ms"):
            store.append_events("agent", "run", new_event(_note()))
        assert store.load_run("agent", "run").version == 20, "readers do not wait for writers"
        holder.execute("ROLLBACK")
        holder.close()
        assert store.append_events("agent", "run", new_event(_note())).version == 21


async def test_an_unreadable_row_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    _store_some(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE events SET data = '{\"note\": 5}' WHERE id & 4294967295 = 7")
    connection.commit()
    connection.close()
    async with open_store(f"sqlite:///{path}") as store:
        with pytest.raises(AgentMemoryLogError, match=r"agent/run: event 7 .*note.*int 5"):
            await store.load_run("agent", "run")
        assert (await store.load_run("agent", "run", after=7)).log[0].seq == 8


@pytest.mark.parametrize("column", ["labels", "meta"])
def test_damaged_labels_and_meta_are_named_in_the_error(tmp_path: Path, column: str) -> None:
    path = tmp_path / "runs.db"
    _store_some(path)
    connection = sqlite3.connect(path)
    table = "events" if column == "labels" else "runs"
    connection.execute(f"UPDATE {table} SET {column} = '[1]'")
    connection.commit()
    connection.close()
    with open_sync_store(f"sqlite:///{path}") as store:
        error = StoreCorrupt if column == "meta" else DecodeError
        with pytest.raises(error, match="agent/run"):
            store.load_run("agent", "run")
        if column == "meta":
            with pytest.raises(StoreCorrupt, match=r"agent/run.*row differs"):
                store.list_runs()


def test_unusual_paths_are_accepted(tmp_path: Path) -> None:
    for name in ("with space.db", "per%cent.db", "que?stion.db", "ha#sh.db", "ünïcode-日本.db", "quo'te\".db"):
        path = tmp_path / name
        escaped = str(path).replace("%", "%25").replace("?", "%3F").replace("#", "%23")
        with open_sync_store(f"sqlite:///{escaped}") as store:
            store.append_events("agent", "run", new_event(UserMessage(message="hello")))
        assert path.exists()


def _damage(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("pragma", ["user_version = 3", "application_id = 77"])
def test_another_programs_database_without_tables_is_refused(tmp_path: Path, pragma: str) -> None:
    path = tmp_path / "other.db"
    _damage(path, f"PRAGMA {pragma}")
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="another program"):
        open_sync_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_an_empty_file_cannot_be_opened_read_only(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(StoreUnavailable, match="open it once without"):
        open_sync_store(f"sqlite:///{path}?mode=ro")


@pytest.mark.parametrize("created", ["9223372036854775807", "'x'"], ids=["after the last year", "text"])
def test_a_damaged_time_of_creation_is_a_typed_error(tmp_path: Path, created: str) -> None:
    path = tmp_path / "runs.db"
    _store_some(path)
    _damage(path, f"UPDATE runs SET created = {created}")
    with open_sync_store(f"sqlite:///{path}") as store, pytest.raises(StoreCorrupt):
        store.list_runs()


@pytest.mark.parametrize("time", ["9223372036854775807", "'x'"], ids=["after the last year", "text"])
def test_a_damaged_time_of_the_newest_event_is_a_typed_error(tmp_path: Path, time: str) -> None:
    path = tmp_path / "runs.db"
    _store_some(path)
    _damage(path, f"UPDATE events SET timestamp = {time} WHERE id = (SELECT max(id) FROM events)")
    for options in ("", "?verify=on"):
        with open_sync_store(f"sqlite:///{path}{options}") as store, pytest.raises(DecodeError):
            store.list_runs()


def test_stored_text_that_is_not_utf_8_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    _store_some(path)
    _damage(path, "UPDATE events SET data = CAST(x'7bff7d' AS TEXT) WHERE id & 4294967295 = 7")
    with open_sync_store(f"sqlite:///{path}") as store:
        with pytest.raises(DecodeError, match=re.escape(str(path))):
            store.load_run("agent", "run")
        assert store.load_run("agent", "run", after=7).log[0].seq == 8


def test_redacting_an_event_that_is_missing_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    _store_some(path)
    _damage(path, "DELETE FROM events WHERE id & 4294967295 = 7")
    with open_sync_store(f"sqlite:///{path}") as store:
        with pytest.raises(StoreCorrupt, match="agent/run has lost event 7"):
            store.redact_events("agent", "run", [6, 7])
        assert store.load_run("agent", "run", after=5, limit=1).log[0].data == _note("5"), "no event was redacted"


@pytest.mark.parametrize("url", ["sqlite", "memory"])
def test_load_refuses_types_that_utf_8_cannot_encode(tmp_path: Path, url: str) -> None:
    with open_sync_store("memory:" if url == "memory" else f"sqlite:///{tmp_path / 'runs.db'}") as store:
        store.append_events("agent", "run", new_event(_note()))
        with pytest.raises(InvalidArgument, match="event type"):
            store.load_run("agent", "run", types=["planner_note", "\ud800"])
        for unusual in ("'", "\0", '"', "a\0b", ""):
            assert len(store.load_run("agent", "run", types=[unusual]).log) == 0


async def test_a_name_that_is_too_long_is_a_typed_error(tmp_path: Path) -> None:
    for path in (tmp_path / ("x" * 300), tmp_path / ("x" * 300) / "runs.db"):
        with pytest.raises(StoreUnavailable, match="too long"):
            open_sync_store(f"sqlite:///{path}")
        with pytest.raises(StoreUnavailable, match="too long"):
            await open_store(f"sqlite:///{path}")


def test_a_name_that_is_not_utf_8_is_opened(tmp_path: Path) -> None:
    name = os.fsdecode(b"odd-\xff.db")
    try:
        (tmp_path / f"{name}-probe").touch()
    except OSError:
        pytest.skip("this file system refuses such names")
    with open_sync_store(f"sqlite:///{tmp_path / name}") as store:
        store.append_events("agent", "run", new_event(_note()))
    assert (tmp_path / name).stat().st_size > 0


def test_extra_slashes_in_a_path_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with open_sync_store(f"sqlite:////{path}") as store:
        store.append_events("agent", "run", new_event(_note()))
    with open_sync_store(f"sqlite:///{path}") as store:
        assert store.load_run("agent", "run").version == 1


def test_the_sqlite_name_for_memory_is_refused_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="memory:"):
        open_sync_store("sqlite:///:memory:")
    assert not list(tmp_path.iterdir())


def test_a_relative_path_survives_a_change_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    with open_sync_store("sqlite:///runs.db") as store:
        assert isinstance(store, SyncSqliteStore)
        store.append_events("agent", "run", new_event(_note("x" * 5000)))
        monkeypatch.chdir(elsewhere)
        assert store.compact().after == (tmp_path / "runs.db").stat().st_size > 5000
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("milliseconds", [3_000_000_000, 10**18 - 1])
def test_a_timeout_above_the_limit_of_sqlite_becomes_that_limit(tmp_path: Path, milliseconds: int) -> None:
    with open_sync_store(f"sqlite:///{tmp_path / 'runs.db'}?busy_timeout_ms={milliseconds}") as store:
        assert isinstance(store, SyncSqliteStore)
        assert store._write_connection.execute("PRAGMA busy_timeout").fetchone() == (2**31 - 1,)
