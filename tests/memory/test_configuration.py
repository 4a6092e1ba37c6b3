"""Tests of clients that open the store of their configuration."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import SyncStore, open_store, open_sync_store
from agent_memory_log.backend_kit import handles
from agent_memory_log.errors import BackendNotFound, InvalidArgument, StoreClosed, StoreUnavailable
from agent_memory_log.memory import MemoryClient, Principal, SyncMemoryClient
from agent_memory_log.memory.configuration import PREFIX, ClientSettings, read_settings

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions, and no fork")


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's data folder, which is empty, in an environment without settings."""
    for key in ClientSettings.__struct_fields__:
        monkeypatch.delenv(f"{PREFIX}{key.upper()}", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def test_client_without_arguments_remembers(data_folder: Path) -> None:
    with SyncMemoryClient() as me:
        assert list(data_folder.iterdir()) == []
        me.remember(key="language", value="english")
    with SyncMemoryClient() as me:
        record = me.get(key="language")
        assert record is not None
        assert record.value == "english"
        assert me.of(Principal("default", {"user": "default"})).get(key="language") == record
        assert me.of(Principal("default", {"user": "other"})).get(key="language") is None
    assert (data_folder / "agent-memory-log" / "memory.db").is_file()


async def test_async_client_without_arguments_remembers(data_folder: Path) -> None:
    async with MemoryClient() as me:
        assert list(data_folder.iterdir()) == []
        await asyncio.gather(*(me.remember(key=f"key {number}", value="x") for number in range(5)))
        assert len(await me.list()) == 5
        assert _open_stores() == 1
    with pytest.raises(StoreClosed):
        await me.list()


def _open_stores() -> int:
    """Return how many SQLite stores are open in this process."""
    return sum(handle.is_open() and "Sqlite" in type(handle).__name__ for handle in list(handles._open_handles))


def test_threads_open_the_store_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_slowly(url: str) -> SyncStore:
        opened.append(url)
        time.sleep(0.05)  # the other threads come meanwhile
        return open_sync_store(url)

    monkeypatch.setattr("agent_memory_log.opening.open_sync_store", open_slowly)
    count = 8
    barrier = threading.Barrier(count)
    with SyncMemoryClient() as me, ThreadPoolExecutor(count) as pool:

        def first_call(number: int) -> None:
            barrier.wait()
            me.remember(key=f"key {number}", value="x")

        list(pool.map(first_call, range(count)))
        assert len(me.list()) == count
        assert len(opened) == 1


def test_closing() -> None:
    client = SyncMemoryClient()
    client.close()
    client.close()
    with pytest.raises(StoreClosed, match="make a new one"):
        client.list()
    with open_sync_store("memory:") as store:
        with SyncMemoryClient(store) as passed:
            passed.of(Principal("acme", {"user": "1"})).remember(key="k", value="v")
        assert store.list_runs(include_reserved=True).runs


async def test_client_with_a_store_has_no_principal() -> None:
    with open_sync_store("memory:") as store:
        client = SyncMemoryClient(store)
        with pytest.raises(InvalidArgument, match=r"call \.of\(principal\)"):
            client.remember(key="k", value="v")
        with pytest.raises(InvalidArgument, match="config is only for a client without a store"):
            SyncMemoryClient(store, config={"user": "1"})
    async with open_store("memory:") as async_store:
        with pytest.raises(InvalidArgument, match=r"call \.of\(principal\)"):
            await MemoryClient(async_store).search("x")


def test_error_at_opening_is_raised_at_each_call_until_it_is_gone(tmp_path: Path) -> None:
    with SyncMemoryClient(config={"database_path": tmp_path / "missing" / "memory.db"}) as me:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"database_path .*missing"):
                me.list()
        (tmp_path / "missing").mkdir()
        assert me.list() == ()


@POSIX
def test_only_the_owner_can_read_the_files(data_folder: Path, tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        for config in ({}, {"database_path": tmp_path / "own.db"}):
            with SyncMemoryClient(config=config) as me:
                me.remember(key="language", value="english")
                me.search("english")
                files = [path for path in data_folder.rglob("*") if path.is_file()]
                assert len(files) >= 3
                assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        assert stat.S_IMODE((data_folder / "agent-memory-log").stat().st_mode) == 0o700
    finally:
        os.umask(old_mask)


@POSIX
def test_existing_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    path.touch(0o660)
    path.chmod(0o660)
    with SyncMemoryClient(config={"database_path": str(path)}) as me:
        me.remember(key="language", value="english")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


@POSIX
def test_data_folder_of_another_user_is_refused(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data_folder / "agent-memory-log").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: data_folder.stat().st_uid + 1)
    with SyncMemoryClient() as me, pytest.raises(StoreUnavailable, match="belongs to another user: set database_path"):
        me.remember(key="language", value="english")
    assert list((data_folder / "agent-memory-log").iterdir()) == []


_FORKING = """
import os, threading
from agent_memory_log.memory import SyncMemoryClient

me = SyncMemoryClient()
lock = me._store._lock()  # as of a thread that opens the store during the fork
lock.acquire()
child = os.fork()
if child == 0:
    me.remember(key="child", value="x")
    me.close()
    os._exit(0)
lock.release()
_, status = os.waitpid(child, 0)
me.remember(key="parent", value="x")
print(status, sorted(record.key for record in me.list()))
child = os.fork()
if child == 0:
    try:
        me.list()
    except Exception as error:
        os._exit(7 if "before a fork" in str(error) else 1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
me.close()
"""


@POSIX
def test_fork_before_the_first_call() -> None:
    process = subprocess.run(
        [sys.executable, "-c", _FORKING], capture_output=True, text=True, check=True, timeout=60, env=os.environ
    )
    assert process.stdout.splitlines() == ["0 ['child', 'parent']", "7"]


@pytest.mark.parametrize(
    ("platform", "variables", "place"),
    [
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data"),
        ("linux", {"XDG_DATA_HOME": ""}, "/home/kim/.local/share"),
        ("linux", {"XDG_DATA_HOME": "relative"}, "/home/kim/.local/share"),
        ("darwin", {}, "/home/kim/Library/Application Support"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local"),
        ("win32", {"LOCALAPPDATA": ""}, "/home/kim/AppData/Local"),
    ],
)
@POSIX
def test_place_of_the_default_file(
    platform: str, variables: Mapping[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent_memory_log.memory import configuration  # noqa: PLC0415  # for its private function

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", "/home/kim")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(configuration._default_path()) == f"{place}/agent-memory-log/memory.db"


def test_argument_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMLOG_MODE", "REMOTE")
    monkeypatch.setenv("AMLOG_BASE_URL", "https://memory.example.com")
    monkeypatch.setenv("AMLOG_USER", "kim")
    monkeypatch.setenv("AMLOG_TENANT", "  ")
    monkeypatch.setenv("AMLOG_PREFER_GRPC", "True")
    settings = read_settings(None)
    assert settings == ClientSettings(
        mode="remote", base_url="https://memory.example.com", user="kim", prefer_grpc=True
    )
    assert settings.principal == Principal("default", {"user": "kim"})
    embedded = read_settings({"mode": "Embedded", "user": "ines", "tenant": None, "database_path": "~/a?#b.db"})
    assert embedded.principal == Principal("default", {"user": "ines"})
    assert embedded.database_path == str(Path.home() / "a?#b.db")


def test_principal_of_a_token_is_not_replaced_by_a_default() -> None:
    assert read_settings({"mode": "remote", "base_url": "http://localhost:8080"}).principal is None


def test_path_may_hold_any_character_and_the_working_directory_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with SyncMemoryClient(config={"database_path": "50% ä?#&.db"}) as me:
        monkeypatch.chdir("/")
        me.remember(key="k", value="v")
    assert (tmp_path / "50% ä?#&.db").is_file()


WRONG: list[tuple[Any, str]] = [
    ([], "config must be a map, got list"),
    ({"modus": "remote"}, "config has no key 'modus', only mode, database_path, base_url"),
    ({"mode": "cloud"}, "mode must be one of embedded, remote, got str 'cloud'"),
    ({"mode": ""}, "mode must be one of"),
    ({"mode": 1}, "mode must be one of"),
    ({"mode": "remote"}, "base_url is missing.*AMLOG_BASE_URL"),
    ({"base_url": "https://memory.example.com"}, "base_url needs a mode"),
    ({"mode": "remote", "base_url": "memory.example.com"}, "base_url must be the URL of a server"),
    ({"mode": "remote", "base_url": "https://"}, "base_url must be the URL of a server"),
    ({"mode": "remote", "base_url": "https://[x/"}, "base_url must be the URL of a server"),
    ({"mode": "remote", "base_url": "https://kim:s3cret@example.com"}, "base_url must be .*AMLOG_TOKEN"),
    ({"database_path": ""}, "database_path must not be empty"),
    ({"database_path": ":memory:"}, "database_path must name a file"),
    ({"database_path": "a\0b"}, "database_path must name a file"),
    ({"database_path": "a\ud800b"}, "database_path .*surrogate"),
    ({"database_path": b"a"}, "database_path must be text"),
    ({"tenant": ""}, "tenant must not be empty"),
    ({"user": 7}, "user must be text"),
    ({"user": "a\n"}, "tenant or user: .*control characters"),
    ({"prefer_grpc": "true"}, "prefer_grpc must be True or False"),
    ({"grpc_target": 1}, "grpc_target must be text"),
    ({"token": "s3cret"}, "config has token: .*AMLOG_TOKEN"),
    *(
        ({key: 60}, f"config has {key}: ")
        for key in (
            "rrf_k",
            "default_search_limit",
            "semantic_limit",
            "lexical_limit",
            "entity_limit",
            "enable_sqlite_vec",
        )
    ),
]


@pytest.mark.parametrize(("config", "message"), WRONG)
def test_wrong_configuration_is_refused_with_its_key(config: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{message}") as refused:
        SyncMemoryClient(config=config)
    with pytest.raises(InvalidArgument, match=f"^{message}"):
        MemoryClient(config=config)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("AMLOG_MODE", "cloud", "AMLOG_MODE must be one of embedded, remote, got str 'cloud'"),
        ("AMLOG_PREFER_GRPC", "perhaps", "AMLOG_PREFER_GRPC must be True or False"),
        ("AMLOG_DATABASE_PATH", ":memory:", "AMLOG_DATABASE_PATH must name a file"),
        ("AMLOG_BASE_URL", "ftp://example.com", "AMLOG_BASE_URL must be the URL of a server"),
        ("AMLOG_BASE_URL", "https://example.com", "base_url needs a mode"),
        ("AMLOG_USER", "a\x01", "tenant or user: "),
    ],
)
def test_wrong_variable_is_refused_with_its_name(
    variable: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(InvalidArgument, match=f"^{message}"):
        SyncMemoryClient()


def test_remote_client_opens_the_base_url_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SyncMemoryClient(config={"mode": "remote", "base_url": "https://memory.example.com"})
    monkeypatch.setattr("agent_memory_log.opening.installed_backends", dict)
    with pytest.raises(BackendNotFound, match="https"):
        client.list()
    with pytest.raises(InvalidArgument, match=r"^max_keyed has no effect on a server"):
        SyncMemoryClient(config={"mode": "remote", "base_url": "https://memory.example.com"}, max_keyed=None)
