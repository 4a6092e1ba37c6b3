"""Tests the test tools themselves, with pymongo alone: the MongoDB servers, the proxy and the faults."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient, WriteConcern
from pymongo.errors import (
    AutoReconnect,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteConcernError,
)

from tests.mongo.certificates import make_certificates
from tests.mongo.failpoints import fail_command
from tests.mongo.messages import Request, command
from tests.mongo.ports import HOST
from tests.mongo.server import USER, MongoServer, with_database
from tests.processes import PATIENCE, ROOT
from tests.tcp_proxy import TcpProxy
from tests.waiting import until, until_blocking

Client = MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[MongoServer]:
    with MongoServer(tmp_path_factory.mktemp("rig"), test_commands=True) as server:
        yield server


@pytest.fixture
def proxy(server: MongoServer) -> Generator[TcpProxy]:
    with TcpProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def direct(server: MongoServer) -> Generator[Client]:
    """Return a client without the proxy, with an empty collection ``rig.c``."""
    with server.client() as client:
        client["rig"]["c"].drop()
        yield client


@pytest.fixture
def through(server: MongoServer, proxy: TcpProxy) -> Generator[Client]:
    """Return a client that uses the proxy and never retries."""
    with _client(server, port=proxy.port, retryWrites=False, retryReads=False) as client:
        yield client


def _client(server: MongoServer, *, port: int | None = None, **options: str | int) -> Client:
    return MongoClient(with_database(server.uri(port=port, serverSelectionTimeoutMS=2000), "", **options))


def _insert(client: Client, *numbers: int, **concern: Any) -> None:
    collection = client["rig"].get_collection("c", write_concern=WriteConcern(**concern))
    collection.insert_many([{"_id": number} for number in numbers])


def _stored(client: Client) -> list[int]:
    return sorted(document["_id"] for document in client["rig"]["c"].find())


def _processes() -> str:
    return subprocess.run(["ps", "-A", "-ww", "-o", "args"], check=True, capture_output=True, text=True).stdout


# The proxy.


def test_dropped_reply_hides_a_stored_insert(proxy: TcpProxy, through: Client, direct: Client) -> None:
    fault = proxy.drop_reply(command("insert"))
    with pytest.raises(AutoReconnect):
        _insert(through, 1)
    assert fault.happened.is_set()
    assert _stored(direct) == [1]
    _insert(through, 2)
    assert _stored(through) == [1, 2], "it happens once"


def test_driver_retry_reports_the_insert_with_a_dropped_reply(
    server: MongoServer, proxy: TcpProxy, direct: Client
) -> None:
    proxy.drop_reply(command("insert"))
    with _client(server, port=proxy.port) as client:
        _insert(client, 1)
    assert proxy.seen.count("insert") == 2
    assert _stored(direct) == [1]


def test_dropped_request_never_reaches_the_server(proxy: TcpProxy, through: Client, direct: Client) -> None:
    fault = proxy.drop_request(command("insert"), times=2)
    for _ in range(2):
        with pytest.raises(AutoReconnect):
            _insert(through, 1)
    assert len(fault.requests) == 2
    assert _stored(direct) == []
    _insert(through, 1)
    assert _stored(direct) == [1]


def test_fault_applies_only_to_matching_requests(proxy: TcpProxy, through: Client, direct: Client) -> None:
    def inserts_three(request: Request) -> bool:
        return request.command == "insert" and {"_id": 3} in [dict(document) for document in request.documents]

    fault = proxy.drop_reply(inserts_three)
    _insert(through, 1, 2)
    with pytest.raises(AutoReconnect):
        _insert(through, 3, 4)
    (request,) = fault.requests
    assert (request.body["$db"], request.body["insert"]) == ("rig", "c")
    assert [document["_id"] for document in request.documents] == [3, 4]
    assert _stored(direct) == [1, 2, 3, 4]
    fault = proxy.drop_reply(inserts_three)
    fault.cancel()
    with pytest.raises(PyMongoError, match="E11000"):
        _insert(through, 3)


def test_held_reply_exceeds_a_short_timeout(server: MongoServer, proxy: TcpProxy, direct: Client) -> None:
    with _client(server, port=proxy.port, retryWrites=False, socketTimeoutMS=100) as client:
        with proxy.hold_replies(command("insert")) as reply, pytest.raises(NetworkTimeout):
            _insert(client, 1)
        assert reply.happened.is_set()
        assert _stored(direct) == [1]
        _insert(client, 2)
        assert _stored(client) == [1, 2]


async def test_held_reply_arrives_after_its_release(server: MongoServer, proxy: TcpProxy, direct: Client) -> None:
    async with AsyncMongoClient[dict[str, Any]](server.uri(port=proxy.port)) as client:
        collection = client["rig"]["c"]
        reply = proxy.hold_replies(command("insert"))
        insert = asyncio.create_task(collection.insert_one({"_id": 1}))
        await until(reply.happened.is_set)
        assert await collection.find_one() == {"_id": 1}, "other connections go on"
        assert not insert.done()
        reply.release()
        async with asyncio.timeout(PATIENCE):
            assert (await insert).inserted_id == 1
    assert _stored(direct) == [1]


def test_refused_connections(server: MongoServer, proxy: TcpProxy, through: Client) -> None:
    _insert(through, 11)
    proxy.refuse_connections()
    assert proxy.connections > 0
    with (
        _client(server, port=proxy.port, serverSelectionTimeoutMS=100) as client,
        pytest.raises(ServerSelectionTimeoutError, match="refused"),
    ):
        _stored(client)
    assert 11 in _stored(through), "connections that there were stay"
    proxy.accept_connections()
    with _client(server, port=proxy.port) as client:
        assert 11 in _stored(client)


def test_closed_connections(server: MongoServer, proxy: TcpProxy, direct: Client) -> None:
    with socket.create_connection((HOST, proxy.port), timeout=PATIENCE) as idle:
        until_blocking(lambda: proxy.connections)
        proxy.close_connections()
        assert idle.recv(1) == b""
    with _client(server, port=proxy.port) as client:
        for number in range(5):
            _insert(client, number)
            proxy.close_connections()
    assert _stored(direct) == list(range(5))


def test_proxy_without_a_server_closes_connections(tmp_path: Path) -> None:
    with MongoServer(tmp_path) as server, TcpProxy(server.port) as proxy:
        with _client(server, port=proxy.port, retryWrites=False, serverSelectionTimeoutMS=100) as client:
            _insert(client, 1)
            server.kill()
            with pytest.raises(AutoReconnect):
                _insert(client, 2)
        until_blocking(lambda: not proxy.connections)


def test_proxy_raises_a_tests_error_at_its_exit(server: MongoServer) -> None:
    def mistaken(request: Request) -> bool:
        return bool(request.body["no such field"])

    def make_the_mistake() -> None:
        with TcpProxy(server.port) as proxy:
            proxy.drop_reply(mistaken)
            with (
                _client(server, port=proxy.port, serverSelectionTimeoutMS=100) as client,
                pytest.raises(ServerSelectionTimeoutError),
            ):
                _insert(client, 1)

    with pytest.raises(KeyError):
        make_the_mistake()


# Starting and stopping a server.


@pytest.mark.parametrize(
    ("sync_on_commit", "concern"), [(True, {"w": "majority"}), (True, {}), (False, {"w": "majority", "j": True})]
)
def test_acknowledged_writes_survive_a_kill(tmp_path: Path, sync_on_commit: bool, concern: dict[str, Any]) -> None:
    with MongoServer(tmp_path, sync_on_commit=sync_on_commit) as server:
        numbers = list(range(100))
        with _client(server, serverSelectionTimeoutMS=100) as client:
            for number in numbers:
                _insert(client, number, **concern)
            server.kill()
            assert not server.running
            with pytest.raises(AutoReconnect):
                _stored(client)
        server.start()
        with server.client() as client:
            assert _stored(client) == numbers


def test_client_reconnects_to_a_restarted_server(tmp_path: Path) -> None:
    with MongoServer(tmp_path) as server, server.client() as client:
        _insert(client, 1)
        server.stop()
        server.start()
        assert _stored(client) == [1]
        _insert(client, 2)
        assert _stored(client) == [1, 2]


def test_frozen_server_responds_after_thawing(tmp_path: Path) -> None:
    with MongoServer(tmp_path) as server:
        with _client(server, retryWrites=False, socketTimeoutMS=100) as client:
            _insert(client, 1)
            server.freeze()
            with pytest.raises(NetworkTimeout):
                _insert(client, 2)
            server.thaw()
            _insert(client, 3)
            until_blocking(lambda: _stored(client) == [1, 2, 3])
        server.freeze()


def test_failed_server_start_shows_the_log(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    server = MongoServer(tmp_path)
    with pytest.raises(AssertionError, match=r"exit code 1:(?s:.*)Error"), server:
        pass
    assert str(tmp_path) not in _processes()


def test_crashed_server_is_reported(tmp_path: Path) -> None:
    with MongoServer(tmp_path) as server:
        server.signal("SIGABRT")
        until_blocking(lambda: not server.running)
        with pytest.raises(AssertionError, match="not running"):
            server.freeze()
        server.start()
        with server.client() as client:
            _insert(client, 1)


_KEEPS_A_SERVER = """
import pathlib, sys
from tests.mongo.server import MongoServer
server = MongoServer(pathlib.Path(sys.argv[1]))
server.start()
print(server._keeper.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("victim", ["test", "keeper"])
def test_no_server_outlives_its_test(tmp_path: Path, victim: str) -> None:
    if victim == "keeper" and sys.platform != "linux":
        pytest.skip("only Linux ends a process with the one that started it")
    with subprocess.Popen(
        [sys.executable, "-c", _KEEPS_A_SERVER, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as test:
        assert test.stdout is not None
        keeper = int(test.stdout.readline())
        assert f"--storage-path {tmp_path / 'data'}" in _processes()
        os.kill(test.pid if victim == "test" else keeper, signal.SIGKILL)
        until_blocking(lambda: f"--storage-path {tmp_path / 'data'}" not in _processes())
        test.kill()


# Options of a server.


def test_fail_points_need_test_commands(tmp_path: Path) -> None:
    with (
        MongoServer(tmp_path) as server,
        pytest.raises(OperationFailure, match="no such command"),
        fail_command(server, "insert", error_code=91),
    ):
        pass


def test_server_requires_authentication(tmp_path: Path) -> None:
    with MongoServer(tmp_path, auth=True) as server:
        server.create_user("reader", "pw", "read", database="rig")
        for _ in range(2):
            with server.client() as client:
                _insert(client, len(_stored(client)))
            server.kill()
            server.start()
        with server.client() as client:
            assert _stored(client) == [0, 1]
        for user, code in (("", 13), (f"{USER}:wrong@", 18), ("nobody:wrong@", 18)):
            with (
                MongoClient[dict[str, Any]](f"mongodb://{user}{HOST}:{server.port}") as client,
                pytest.raises(OperationFailure) as caught,
            ):
                _stored(client)
            assert caught.value.code == code
        with MongoClient[dict[str, Any]](f"mongodb://reader:pw@{HOST}:{server.port}/rig") as client:
            assert _stored(client) == [0, 1]
            with pytest.raises(OperationFailure, match="not authorized") as caught:
                client["rig"]["c"].insert_one({})
            assert caught.value.code == 13


def test_server_uses_tls(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path / "certificates")
    other_certificates = make_certificates(tmp_path / "others")
    with MongoServer(tmp_path / "server", certificates=certificates) as server:
        with server.client() as client:
            _insert(client, 1)
            assert _stored(client) == [1]
        with (
            _client(server, tlsCAFile=str(other_certificates.authority), serverSelectionTimeoutMS=500) as client,
            pytest.raises(ServerSelectionTimeoutError, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            _stored(client)
        with (
            MongoClient[dict[str, Any]](HOST, server.port, serverSelectionTimeoutMS=500) as client,
            pytest.raises(ServerSelectionTimeoutError),
        ):
            _stored(client)


def test_standalone_server_has_no_change_streams(tmp_path: Path) -> None:
    with MongoServer(tmp_path, standalone=True) as server, server.client() as client:
        _insert(client, 1)
        with pytest.raises(OperationFailure, match="only supported on replica sets") as caught:
            client["rig"]["c"].watch()
        assert caught.value.code == 40573


def test_change_stream_resumes_after_a_kill(tmp_path: Path) -> None:
    with MongoServer(tmp_path) as server:
        with server.client() as client:
            _insert(client, 1)
            with client["rig"]["c"].watch() as stream:
                _insert(client, 2)
                assert next(stream)["documentKey"] == {"_id": 2}
                token = stream.resume_token
            _insert(client, 3)
        server.kill()
        server.start()
        with server.client() as client:
            _insert(client, 4)
            with client["rig"]["c"].watch(resume_after=token) as stream:
                assert [next(stream)["documentKey"]["_id"] for _ in range(2)] == [3, 4]


def test_short_oplog_loses_a_resume_point(tmp_path: Path) -> None:
    with MongoServer(tmp_path, oplog_entries=10) as server, server.client() as client:
        _insert(client, 0)
        with client["rig"]["c"].watch() as stream:
            _insert(client, 1)
            next(stream)
            token = stream.resume_token

        def lost() -> int | None:
            # The server drops old oplog entries at times, after an insert.
            client["rig"]["filler"].insert_many([{} for _ in range(500)])
            try:
                client["rig"]["c"].watch(resume_after=token).close()
            except OperationFailure as failure:
                return failure.code
            return None

        until_blocking(lambda: lost() == 286)


def test_server_removes_expired_documents_on_request(server: MongoServer, direct: Client) -> None:
    collection = direct["rig"]["c"]
    collection.create_index("at", expireAfterSeconds=0)
    now = dt.datetime.now(dt.UTC)
    day = dt.timedelta(days=1)
    collection.insert_many([{"_id": 1, "at": now - day}, {"_id": 2, "at": now + day}, {"_id": 3}])
    assert server.delete_expired() == 1
    assert _stored(direct) == [2, 3]


# Faults that the server makes.


def test_fail_point_fails_a_command(server: MongoServer, direct: Client) -> None:
    with fail_command(server, "insert", "find", error_code=8000, skip=1, times=2):
        _insert(direct, 1)
        for _ in range(2):
            with pytest.raises(OperationFailure) as caught:
                _insert(direct, 2)
            assert caught.value.code == 8000
        _insert(direct, 3)
    with fail_command(server, "insert", error_code=8000), pytest.raises(OperationFailure):
        _insert(direct, 4)
    _insert(direct, 5)
    assert _stored(direct) == [1, 3, 5]


def test_driver_retries_a_labelled_failure(server: MongoServer, direct: Client) -> None:
    with fail_command(server, "insert", error_code=6, error_labels=["RetryableWriteError"], times=1):
        _insert(direct, 1)
    with fail_command(server, "insert", error_code=6, error_labels=[], times=1), pytest.raises(OperationFailure):
        _insert(direct, 2)
    assert _stored(direct) == [1]


def test_write_concern_error_leaves_the_write_stored(server: MongoServer, direct: Client) -> None:
    error = {"code": 64, "errmsg": "waiting for replication timed out", "errInfo": {"wtimeout": True}}
    with fail_command(server, "insert", write_concern_error=error), pytest.raises(WriteConcernError) as caught:
        direct["rig"]["c"].insert_one({"_id": 1})
    assert caught.value.code == 64
    assert _stored(direct) == [1]


def test_fail_point_closes_a_connection(server: MongoServer, direct: Client) -> None:
    with (
        _client(server, retryWrites=False) as client,
        fail_command(server, "insert", close_connection=True, times=1),
        pytest.raises(AutoReconnect),
    ):
        _insert(client, 1)
    assert _stored(direct) == []


def test_fail_point_delays_a_command(server: MongoServer, direct: Client) -> None:
    with (
        _client(server, retryWrites=False, socketTimeoutMS=100) as client,
        fail_command(server, "insert", block_ms=300, times=1),
        pytest.raises(NetworkTimeout),
    ):
        _insert(client, 1)
    until_blocking(lambda: _stored(direct) == [1])


def test_fail_point_applies_to_one_client(server: MongoServer, direct: Client) -> None:
    # Only finds fail: a failing heartbeat would make the driver forget the server.
    with (
        _client(server, appname="unlucky") as client,
        fail_command(server, "find", error_code=8000, app_name="unlucky"),
    ):
        _insert(direct, 1)
        with pytest.raises(OperationFailure):
            _stored(client)
    assert _stored(direct) == [1]


def test_killing_a_server_ends_its_fail_points(tmp_path: Path) -> None:
    with MongoServer(tmp_path, test_commands=True) as server:
        with fail_command(server, "insert", error_code=8000):
            server.kill()
        server.start()
        with server.client() as client:
            _insert(client, 1)


# Fixtures.

_USES_A_DATABASE = """
from pymongo import MongoClient

def test_it(mongo_server, mongo_database, mongo_uri):
    with MongoClient(mongo_uri) as client:
        assert client.get_default_database().name == mongo_database
        assert not client[mongo_database].list_collection_names()
        client[mongo_database]["c"].insert_one({})
    with mongo_server.client() as client:
        assert client[mongo_database]["c"].count_documents({}) == 1
    print("stored", mongo_uri)

test_again = test_it
"""


def test_each_test_has_its_own_dropped_database(tmp_path: Path, server: MongoServer) -> None:
    (tmp_path / "test_inner.py").write_text(_USES_A_DATABASE)
    inner = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.conftest", "--rootdir", str(tmp_path), str(tmp_path)],
        check=False,
        cwd=ROOT,
        env={**os.environ, "AMLOG_TEST_MONGO_URI": server.uri("rig")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert inner.returncode == 0, inner.stdout + inner.stderr
    databases = re.findall(f"stored mongodb://{HOST}:{server.port}/(amlog_test_[0-9a-f]+)", inner.stdout)
    assert len(set(databases)) == 2
    with server.client() as client:
        assert not [name for name in client.list_database_names() if name.startswith("amlog_test_")]


def test_uri_can_name_a_database() -> None:
    assert with_database("mongodb://h1:1,h2:2", "d", w="majority") == "mongodb://h1:1,h2:2/d?w=majority"
    assert with_database("mongodb://u:p%40@h/own?w=1", "d b", w=2, tls=True) == (
        "mongodb://u:p%40@h/d%20b?w=2&authSource=own&tls=true"
    )
    assert with_database("mongodb://u:p@h/own?authSource=admin", "d") == "mongodb://u:p@h/d?authSource=admin"
    assert with_database("mongodb+srv://h/own", "d") == "mongodb+srv://h/d"
