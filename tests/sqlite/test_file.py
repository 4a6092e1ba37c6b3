"""Tests that a handle does not write to a file that was removed, moved, replaced, overwritten or linked."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory_log import Event, PlannerNote, SyncStore, new_event, open_store, open_sync_store
from agent_memory_log.capabilities import Compacts
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log_sqlite import SyncSqliteStore
from tests.waiting import PATIENCE, until_blocking


def _notes(count: int = 1) -> list[Event]:
    return [new_event(PlannerNote(note="n" * 200)) for _ in range(count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "runs.db"


def _shell(command: str, path: Path) -> None:
    """Run a command in another process in the folder of the file."""
    subprocess.run(["sh", "-ec", command], cwd=path.parent, check=True, timeout=PATIENCE)


LOST = {
    "rm": ("rm runs.db", r"runs\.db was removed or moved away"),
    "rm all": ("rm runs.db*", r"runs\.db was removed or moved away"),
    "rm wal": ("rm runs.db-wal", r"runs\.db-wal was removed or moved away"),
    "mv": ("mv runs.db old.db", r"runs\.db was removed or moved away"),
    "mv wal": ("mv runs.db-wal old-wal", r"runs\.db-wal was removed or moved away"),
    "mv all": ("mkdir old; mv runs.db* old", r"runs\.db was removed or moved away"),
    "mv folder": ("mv ../store ../old", r"store was removed or moved away"),
    "replaced": ("cp runs.db new.db; mv new.db runs.db", r"runs\.db was replaced by another file"),
    "created again": ("rm runs.db; touch runs.db", r"runs\.db was replaced by another file"),
    "wal replaced": ("cp runs.db-wal new; mv new runs.db-wal", r"runs\.db-wal was replaced by another file"),
}


@pytest.mark.parametrize("old_folder", [False, True], ids=["new folder", "old folder"])
@pytest.mark.parametrize("loss", LOST)
def test_an_append_to_a_missing_file_is_not_acknowledged(path: Path, loss: str, old_folder: bool) -> None:
    command, message = LOST[loss]
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_notes(5))
        if old_folder:
            os.utime(path.parent, (1, 1))
        store.append_events("agent", "run", *_notes())
        store.load_run("agent", "run")
        _shell(command, path)
        for count in (1, 3):
            with pytest.raises(StoreUnavailable, match=message):
                store.append_events("agent", "run", *_notes(count))
        with pytest.raises(StoreUnavailable, match=message):
            store.load_run("agent", "run")


@pytest.mark.parametrize("loss", ["rm", "mv wal"])
async def test_an_asynchronous_append_to_a_missing_file_is_not_acknowledged(path: Path, loss: str) -> None:
    command, message = LOST[loss]
    async with open_store(f"sqlite:///{path}") as store:
        await store.append_events("agent", "run", *_notes(5))
        following = store.follow("agent", "run", after=5)
        waiting = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)
        await asyncio.to_thread(_shell, command, path)
        outcomes = await asyncio.gather(
            *(store.append_events("agent", f"run-{number % 3}", *_notes()) for number in range(20)),
            return_exceptions=True,
        )
        for outcome in outcomes:
            assert isinstance(outcome, StoreUnavailable)
            with pytest.raises(StoreUnavailable, match=message):
                raise outcome
        with pytest.raises(StoreUnavailable, match=message):
            await store.append_events("agent", "run", *_notes())
        with pytest.raises(StoreUnavailable, match=message):
            await store.load_run("agent", "run")
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StoreUnavailable, match=message):
                await waiting


_CHANGES: dict[str, Callable[[SyncStore], object]] = {
    "redact": lambda store: store.redact_events("agent", "run", [1]),
    "delete": lambda store: store.delete_run("agent", "run"),
    "expire": lambda store: store.expire_runs(),
    "compact": lambda store: isinstance(store, Compacts) and store.compact(),
    "list": lambda store: store.list_runs(),
    "follow": lambda store: next(store.follow("agent", "run", after=5)),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_no_other_change_of_a_missing_file_is_acknowledged(path: Path, change: str) -> None:
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_notes(5))
        path.unlink()
        with pytest.raises(StoreUnavailable, match="was removed or moved away"):
            _CHANGES[change](store)


@pytest.mark.parametrize("moved", ["runs.db", "runs.db-wal"])
def test_a_handle_works_again_after_its_file_is_put_back(path: Path, moved: str) -> None:
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_notes(5))
        _shell(f"mv {moved} elsewhere", path)
        refused_events = _notes()
        for _ in range(10):
            with pytest.raises(StoreUnavailable, match="was removed or moved away"):
                store.append_events("agent", "run", *refused_events)
        _shell(f"mv elsewhere {moved}", path)
        assert store.append_events("agent", "run", *refused_events).version == 6
        assert [event.seq for event in store.load_run("agent", "run").log] == [1, 2, 3, 4, 5, 6]


def test_a_handle_never_writes_to_a_missing_file(path: Path) -> None:
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_notes(5))
        _shell("mkdir old; mv runs.db* old", path)
        for _ in range(10):
            with pytest.raises(StoreUnavailable):
                store.append_events("agent", "run", *_notes())
    with open_sync_store(f"sqlite:///{path.parent / 'old' / 'runs.db'}") as old:
        assert old.load_run("agent", "run").version <= 6, (
            "at most the first append was written, before the handle noticed the loss"
        )


def test_a_changed_symlink_is_noticed(path: Path) -> None:
    link = path.parent / "link.db"
    link.symlink_to(path)
    with open_sync_store(f"sqlite:///{link}") as store:
        store.append_events("agent", "run", *_notes(5))
        shutil.copy(path, path.parent / "other.db")
        assert store.append_events("agent", "run", *_notes()).version == 6
        _shell("ln -sfn other.db link.db", path)
        with pytest.raises(StoreUnavailable, match="was replaced by another file"):
            store.append_events("agent", "run", *_notes())


@pytest.mark.parametrize("removed", ["runs.db", "runs.db-wal"])
def test_the_loss_of_a_symlinked_file_is_noticed(path: Path, removed: str) -> None:
    link = path.parent.parent / "link.db"
    link.symlink_to(path)
    with open_sync_store(f"sqlite:///{link}") as store:
        store.append_events("agent", "run", *_notes(5))
        os.utime(link.parent, (1, 1))
        store.append_events("agent", "run", *_notes())
        _shell(f"rm {removed}", path)
        with pytest.raises(StoreUnavailable, match="was removed or moved away"):
            store.append_events("agent", "run", *_notes())


def _is_refused(append: Callable[[], object], message: str) -> Callable[[], bool]:
    def is_refused() -> bool:
        try:
            append()
        except StoreUnavailable as error:
            assert message in str(error)  # noqa: PT017  # a call without an error is allowed too
            return True
        return False

    return is_refused


def _checkpoint(path: Path) -> None:
    """Move the whole write-ahead log into the file."""
    connection = sqlite3.connect(path)
    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not busy
    connection.close()


def test_a_backup_copied_over_the_file_is_noticed(path: Path) -> None:
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_notes(500))
        _checkpoint(path)
        _shell("cp runs.db backup.db", path)
        for _ in range(3):
            store.append_events("agent", "run", *_notes(100))
            _checkpoint(path)
        store.append_events("agent", "run", *_notes())
        _shell("cp backup.db runs.db", path)
        until_blocking(
            _is_refused(lambda: store.append_events("agent", "run", *_notes()), "was overwritten while it was open")
        )
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="was overwritten while it was open"):
                store.append_events("agent", "run", *_notes())
        with pytest.raises(StoreUnavailable, match="was overwritten while it was open"):
            store.load_run("agent", "run")


def test_a_copy_of_the_same_size_over_the_file_is_noticed(path: Path) -> None:
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_notes(5))
        _checkpoint(path)
        _shell("cp runs.db backup.db; truncate -s 8M backup.db", path)
        store.append_events("agent", "run", *_notes(500))
        # After its own checkpoint, the connection still caches the pages.
        assert isinstance(store, SyncSqliteStore)
        store._write_connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        _shell("cp backup.db runs.db", path)
        until_blocking(_is_refused(lambda: store.append_events("agent", "other", *_notes()), str(path)))


def test_a_reader_notices_an_overwritten_file(path: Path) -> None:
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_notes(5))
        _checkpoint(path)
        _shell("cp runs.db backup.db", path)
        store.append_events("agent", "run", *_notes(500))
        _checkpoint(path)
        with open_sync_store(f"sqlite:///{path}?mode=ro") as reader:
            assert reader.load_run("agent", "run").version == 505
            _shell("cp backup.db runs.db", path)
            until_blocking(_is_refused(reader.list_runs, "was overwritten while it was open"))


def test_a_decreased_version_of_a_run_is_noticed(path: Path) -> None:
    """A copy of the same size without the remembered events has the same effect."""
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_notes(5))
        connection = sqlite3.connect(path)
        connection.execute("DELETE FROM events WHERE id & 4294967295 > 3")
        connection.commit()
        connection.close()
        with pytest.raises(StoreUnavailable, match="agent/run is at version 3, but was at 5"):
            store.append_events("agent", "run", *_notes(2))


@pytest.mark.parametrize("condition", ["= 2", "> 3", "> 0"])
def test_lost_events_are_noticed_after_a_write_to_the_file(path: Path, condition: str) -> None:
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_notes(5))
        connection = sqlite3.connect(path)
        connection.execute(f"DELETE FROM events WHERE id & 4294967295 {condition}")
        connection.commit()
        connection.close()
        _checkpoint(path)
        message = "was overwritten while it was open: agent/run"
        until_blocking(_is_refused(lambda: store.append_events("agent", "other", *_notes()), message))


def test_a_copy_with_the_same_events_raises_no_error(path: Path) -> None:
    url = f"sqlite:///{path}"
    with open_sync_store(url) as store:
        store.append_events("agent", "run", *_notes(500))
        _checkpoint(path)
        _shell("cp runs.db backup.db", path)
        store.append_events("agent", "run", *_notes(300))
        _shell("cp backup.db runs.db", path)
        for count in range(1, 20):
            assert store.append_events("agent", "run", *_notes()).version == 800 + count
    with open_sync_store(url) as store:
        assert len(store.load_run("agent", "run").log) == 819


def test_a_file_with_two_hard_links_is_refused(path: Path) -> None:
    url = f"sqlite:///{path}"
    with open_sync_store(url) as store:
        store.append_events("agent", "run", *_notes(5))
        _shell("ln runs.db ../linked.db", path)
        until_blocking(_is_refused(lambda: store.append_events("agent", "run", *_notes()), "has 2 names (hard links)"))
        for name in (path, path.parent.parent / "linked.db"):
            with pytest.raises(StoreUnavailable, match=r"has 2 names \(hard links\)"):
                open_sync_store(f"sqlite:///{name}")
        with open_sync_store(f"{url}?mode=ro") as reader:
            version = reader.load_run("agent", "run").version
        _shell("rm ../linked.db", path)
        assert store.append_events("agent", "run", *_notes()).version == version + 1


def test_checkpoints_and_compaction_of_others_raise_no_error(path: Path) -> None:
    url = f"sqlite:///{path}"
    with open_sync_store(url) as store, open_sync_store(url) as other:
        assert isinstance(other, SyncSqliteStore)
        store.append_events("agent", "large", *_notes(2000))
        for round_number in range(20):
            store.append_events("agent", "run", *_notes(20))
            other.append_events("agent", "other", *_notes(100))
            if round_number % 5 == 4:
                _checkpoint(path)
                store.append_events("agent", "run", *_notes())
                before = path.stat().st_size
                other.delete_run("agent", "large" if round_number < 5 else "other")
                other.compact()
                assert path.stat().st_size < before
            else:
                store.append_events("agent", "run", *_notes())
            store.append_events("agent", "run", *_notes())
            assert store.load_run("agent", "run", limit=1).version == 22 * (round_number + 1)


def test_a_touched_file_raises_no_error(path: Path) -> None:
    with open_sync_store(f"sqlite:///{path}") as store:
        store.append_events("agent", "run", *_notes(5))
        _shell("touch runs.db; chmod 600 runs.db; touch neighbour", path)
        assert store.append_events("agent", "run", *_notes()).version == 6
