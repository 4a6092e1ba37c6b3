"""Tests of backups: complete, verified, made during writes, and never over an existing file."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
from pathlib import Path

import pytest

from agent_memory_log import Event, PlannerNote, new_event, open_store, open_sync_store
from agent_memory_log.capabilities import BacksUp
from agent_memory_log.errors import InvalidArgument, StoreCorrupt, StoreUnavailable
from agent_memory_log_sqlite import SyncSqliteStore
from agent_memory_log_sqlite.schema import Settings, connect
from tests import processes
from tests.amlog import Amlog

SECRET = "wolfram-4711-secret"


def _note(text: str = "n") -> Event:
    return new_event(PlannerNote(note=text * 20))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    with open_sync_store(f"sqlite:///{folder / 'runs.db'}") as store:
        store.append_events("agent", "run", *(_note() for _ in range(50)))
        store.append_events("@memory", "own", _note(), reserved=True)
        store.append_events("agent", "deleted", _note(SECRET))
        store.delete_run("agent", "deleted")
        store.append_events("agent", "redacted", _note(SECRET), _note())
        store.redact_events("agent", "redacted", [1])
    return folder / "runs.db"


def _open(path: Path, options: str = "") -> SyncSqliteStore:
    store = open_sync_store(f"sqlite:///{path}{options}")
    assert isinstance(store, SyncSqliteStore)
    return store


@pytest.mark.parametrize("options", ["", "?mode=ro"])
def test_a_backup_holds_the_store_without_erased_content(path: Path, tmp_path: Path, options: str) -> None:
    target = tmp_path / "backup.db"
    path.chmod(0o640)
    with _open(path, options) as store:
        assert isinstance(store, BacksUp)
        result = store.backup(target)
        assert (result.runs, result.events, result.size) == (3, 54, target.stat().st_size)
        before = [store.load_run("agent", run).log for run in ("run", "redacted")]
    assert sorted(os.listdir(tmp_path)) == ["backup.db", "store"]  # noqa: PTH208  # the test needs only names
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert SECRET.encode() not in target.read_bytes()
    with _open(target) as copy:
        assert [copy.load_run("agent", run).log for run in ("run", "redacted")] == before
        assert copy.append_events("agent", "deleted", _note()).version == 2, "the deleted run continues its seqs"


async def test_an_asynchronous_store_makes_the_same_backup(path: Path, tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        assert isinstance(store, BacksUp)
        result = await store.backup(str(tmp_path / "backup.db"))
        assert (result.runs, result.events) == (3, 54)
        with pytest.raises(InvalidArgument, match="overwrites no file"):
            await store.backup(str(tmp_path / "backup.db"))


def test_a_backup_during_writes_holds_the_first_appends(path: Path, tmp_path: Path) -> None:
    writer = processes.start("append_counted", f"sqlite:///{path}", "100")
    sizes: list[int] = []
    with _open(path) as store:
        while writer.poll() is None or not sizes:
            target = tmp_path / f"backup-{len(sizes)}.db"
            sizes.append(store.backup(target).events)
    processes.finish(writer)
    assert sizes == sorted(sizes)
    for number in range(len(sizes)):
        with _open(tmp_path / f"backup-{number}.db") as copy:
            for info in copy.list_runs(limit=100).runs:
                assert len(copy.load_run(info.agent, info.run).log) == info.event_count


@pytest.mark.parametrize("existing", ["file", "folder", "link", "-wal", "-journal"])
def test_backup_overwrites_no_existing_file(path: Path, tmp_path: Path, existing: str) -> None:
    target = tmp_path / "backup.db"
    if existing == "folder":
        target.mkdir()
    elif existing == "link":
        target.symlink_to(tmp_path / "nowhere")
    else:
        (target if existing == "file" else Path(f"{target}{existing}")).write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    with _open(path) as store, pytest.raises(InvalidArgument, match="overwrites no file"):
        store.backup(target)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["runs.db", "runs.db-wal", "runs.db-shm", "runs.db-journal", "../store/runs.db", "link.db"]
)
def test_backup_refuses_a_file_of_the_store_itself(path: Path, name: str) -> None:
    (path.parent / "link.db").symlink_to(path)
    with _open(path) as store, pytest.raises(InvalidArgument, match="belongs to the store"):
        store.backup(path.parent / name)
    with _open(path) as store:
        assert store.load_run("agent", "run").version == 50


def test_backup_refuses_a_target_it_cannot_write(path: Path, tmp_path: Path) -> None:
    with _open(path) as store, pytest.raises(StoreUnavailable, match="No such file"):
        store.backup(tmp_path / "no" / "such" / "backup.db")


def test_a_backup_can_have_an_unusual_name(path: Path, tmp_path: Path) -> None:
    names = ["with space.db", "per%cent.db", "que?stion.db", "ha#sh.db", "quo'te\".db", os.fsdecode(b"odd-\xff.db")]
    with _open(path) as store:
        for name in names:
            store.backup(tmp_path / name)
            assert (tmp_path / name).exists()


def test_backup_of_a_store_with_a_missing_event_fails(path: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM events WHERE id & 4294967295 = 7")
    connection.commit()
    connection.close()
    with _open(path) as store, pytest.raises(StoreCorrupt, match=r"agent/run: event 7 is missing"):
        store.backup(tmp_path / "backup.db")
    assert list(tmp_path.iterdir()) == [path.parent]


@pytest.mark.parametrize("is_other_store", [False, True], ids=["damaged", "another"])
def test_a_copy_that_differs_from_the_store_is_removed(
    path: Path, tmp_path: Path, is_other_store: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "store" / "other.db"
    with _open(other) as store:
        store.append_events("agent", "run", _note())

    def connect_to_damaged_copy(settings: Settings) -> sqlite3.Connection:
        copy = Path(settings.path)
        if is_other_store:
            copy.write_bytes(other.read_bytes())
        else:
            data = bytearray(copy.read_bytes())
            for page in range(4096, len(data), 4096):
                data[page + 8 : page + 100] = b"\xff" * 92
            copy.write_bytes(data)
        return connect(settings)

    monkeypatch.setattr("agent_memory_log_sqlite.maintenance.connect", connect_to_damaged_copy)
    with _open(path) as store, pytest.raises(StoreCorrupt):
        store.backup(tmp_path / "backup.db")
    assert list(tmp_path.iterdir()) == [path.parent]


def test_a_full_disk_leaves_no_partial_backup(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs rights this user does not have")
    try:
        with _open(path) as store, pytest.raises(StoreUnavailable):
            store.backup(folder / "backup.db")
        assert os.listdir(folder) == []  # noqa: PTH208  # the test needs only names
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class TestTheCommand:
    @pytest.fixture
    def amlog(self, path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
        command = Amlog(path.parent, capsys)
        monkeypatch.setenv("AMLOG_STORE", command.url)
        monkeypatch.delenv("AMLOG_DEBUG", raising=False)
        return command

    def test_the_command_makes_a_backup(self, amlog: Amlog, tmp_path: Path) -> None:
        target = str(tmp_path / "backup.db")
        out = amlog.ok("backup", target).out
        assert out.startswith(f"✔ {target}: 3 runs, 54 events, ")
        assert out.endswith("verified\n")
        assert amlog.ok("verify", "--store", f"sqlite:///{target}", "--json").json["events"] == 54
        assert "overwrites no file" in amlog.error("backup", target)

    def test_the_command_prints_json(self, amlog: Amlog, tmp_path: Path) -> None:
        output = amlog.ok("backup", str(tmp_path / "backup.db"), "--json").json
        assert output == {"runs": 3, "events": 54, "size": (tmp_path / "backup.db").stat().st_size}

    def test_the_command_refuses_a_store_without_backups(self, amlog: Amlog, tmp_path: Path) -> None:
        message = amlog.error("backup", "--store", "memory:", str(tmp_path / "backup.db"))
        assert message == "memory: stores cannot be backed up to a file; use amlog copy"
