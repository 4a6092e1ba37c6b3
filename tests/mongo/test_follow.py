"""Tests followers: change streams wake them, polling replaces a missing stream, and faults lose no event."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient

from agent_memory_log import PlannerNote, Store, new_event, open_store, open_sync_store
from agent_memory_log.conformance.threaded import threaded
from agent_memory_log.errors import RunDeleted, StoreClosed, StoreUnavailable
from agent_memory_log.events.payloads import Redaction
from agent_memory_log_mongo import MongoStore, SyncMongoStore
from tests.mongo.failpoints import fail_command
from tests.mongo.followers import Follower, passing, stream_is_read
from tests.mongo.held import HeldRequest
from tests.mongo.kinds import KINDS, opened
from tests.mongo.messages import Request, command
from tests.mongo.server import MongoServer
from tests.tcp_proxy import TcpProxy
from tests.waiting import PATIENCE, store_threads

SHORT = 2
"""The timeout in seconds of calls that must time out."""
LONG = 20
"""The time limit in seconds for work that takes up to four seconds on an idle machine."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[MongoServer]:
    with MongoServer(tmp_path_factory.mktemp("follow"), test_commands=True, sync_on_commit=False) as server:
        yield server


@pytest.fixture
def proxy(server: MongoServer) -> Generator[TcpProxy]:
    with TcpProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def database() -> str:
    return f"d{uuid.uuid4().hex}"


@pytest.fixture
def direct(server: MongoServer, database: str) -> str:
    """Return the URI of the test's database without the proxy."""
    return server.uri(database)


@pytest.fixture
def through(server: MongoServer, proxy: TcpProxy, database: str) -> str:
    """Return the URI of the same database through the proxy."""
    return server.uri(database, port=proxy.port)


async def _append(store: Store, count: int = 1, run: str = "run") -> None:
    for _ in range(count):
        await store.append_events("agent", run, new_event(PlannerNote(note="n")))


# Being woken.


@pytest.mark.parametrize("kind", KINDS)
async def test_waiting_follower_sends_no_query_until_it_is_woken(
    kind: str, proxy: TcpProxy, through: str, direct: str
) -> None:
    async with opened(kind, through) as store, open_store(direct) as other, Follower(store) as follower:
        await _append(other)
        await follower.until(1)
        await stream_is_read(proxy, 2)
        queries = proxy.seen.count("find")
        await _append(other, 3, "another")
        await stream_is_read(proxy, 4)
        # One late query is allowed. Polling would send twenty.
        assert proxy.seen.count("find") - queries <= 2
        for seq in range(2, 12):
            await _append(other)
            await follower.until(seq)
        assert follower.seqs == list(range(1, 12))
        assert proxy.seen.count("aggregate") == 1, "one stream serves from beginning to end"


@pytest.mark.parametrize("kind", KINDS)
async def test_waiting_follower_learns_of_redactions_and_expiry(kind: str, proxy: TcpProxy, through: str) -> None:
    async with opened(kind, through) as store, open_store(through) as other, Follower(store) as follower:
        await _append(other)
        await follower.until(1)
        await stream_is_read(proxy, 2)
        await other.redact_events("agent", "run", [1], reason="asked")
        await follower.until(2)
        assert follower.events[1].data == Redaction(seqs=(1,), reason="asked")
        await other.delete_run("agent", "run")
        with pytest.raises(RunDeleted):
            await asyncio.wait_for(asyncio.shield(follower.task), PATIENCE)


def _asks_for_a_stream(request: Request) -> bool:
    return request.command == "aggregate" and "$changeStream" in request.body["pipeline"][0]


@pytest.mark.parametrize("kind", KINDS)
async def test_follower_gets_events_appended_while_its_stream_opens(
    kind: str, proxy: TcpProxy, through: str, direct: str
) -> None:
    async with opened(kind, through) as store, open_store(direct) as other:
        with HeldRequest(proxy, _asks_for_a_stream) as request:
            async with Follower(store) as follower:
                await passing(request.happened.is_set)
                for seq in range(1, 4):
                    await _append(other)
                    await follower.until(seq)
                request.release()
                await stream_is_read(proxy, 2)
                await _append(other)
                await follower.until(4)
                assert follower.seqs == [1, 2, 3, 4]


def _is_closed(proxy: TcpProxy, streams: int) -> bool:
    return proxy.seen.count("killCursors") == streams


@pytest.mark.parametrize("kind", KINDS)
async def test_stream_lives_from_first_to_last_follower(kind: str, proxy: TcpProxy, through: str, direct: str) -> None:
    async with opened(kind, through) as store, open_store(direct) as other:
        await _append(other)
        for opened_streams in (1, 2):
            # A waiting synchronous follower returns only with the next event.
            async with Follower(store) as follower:
                await follower.until(1)
                await stream_is_read(proxy, 2)
                assert proxy.seen.count("aggregate") == opened_streams
            await _append(store)
            await passing(partial(_is_closed, proxy, opened_streams))


# Missing and broken streams.


def _is_polled(proxy: TcpProxy, asked_before: int) -> bool:
    return proxy.seen.count("find") > asked_before + 4


async def test_followers_poll_a_standalone_server(tmp_path: Path) -> None:
    with MongoServer(tmp_path, standalone=True, sync_on_commit=False) as server, TcpProxy(server.port) as proxy:
        for number, kind in enumerate(KINDS, 1):
            async with (
                opened(kind, server.uri(kind, port=proxy.port)) as store,
                open_store(server.uri(kind)) as other,
                Follower(store) as follower,
                Follower(store, "another") as other_follower,
            ):
                for seq in range(1, 6):
                    await _append(other)
                    await follower.until(seq)
                await _append(other, run="another")
                await other_follower.until(1)
                await passing(partial(_is_polled, proxy, proxy.seen.count("find")))
                assert proxy.seen.count("aggregate") == number, "a stream is asked for once"


CURSOR_NOT_FOUND, HISTORY_LOST, UNAUTHORIZED = 43, 286, 13


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", [CURSOR_NOT_FOUND, HISTORY_LOST, UNAUTHORIZED])
async def test_failed_stream_loses_no_event(
    kind: str, code: int, server: MongoServer, proxy: TcpProxy, through: str, direct: str
) -> None:
    async with opened(kind, through) as store, open_store(direct) as other, Follower(store) as follower:
        await _append(other)
        await follower.until(1)
        await stream_is_read(proxy, 1)
        with fail_command(server, "getMore", error_code=code):
            for seq in range(2, 5):
                await _append(other)
                await follower.until(seq)
        for seq in range(5, 8):
            await _append(other)
            await follower.until(seq)
        assert follower.seqs == list(range(1, 8))
        if code != UNAUTHORIZED:
            await stream_is_read(proxy, 2)  # the new stream works


@pytest.mark.parametrize("kind", KINDS)
async def test_stream_with_a_lost_connection_loses_no_event(
    kind: str, proxy: TcpProxy, through: str, direct: str
) -> None:
    async with opened(kind, through) as store, open_store(direct) as other, Follower(store) as follower:
        await _append(other)
        await follower.until(1)
        lost: list[Callable[[], object]] = [
            proxy.close_connections,
            partial(proxy.drop_request, command("getMore")),
            partial(proxy.drop_reply, command("getMore")),
        ]
        for seq, lose in enumerate(lost, 2):
            await stream_is_read(proxy, 1)
            lose()
            await _append(other)
            await follower.until(seq)
        assert follower.seqs == [1, 2, 3, 4]


async def test_followers_continue_after_a_server_restart(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(MongoServer(tmp_path, sync_on_commit=False))
        waiting: list[Follower] = []
        between: list[Follower] = []
        other = await stack.enter_async_context(open_store(server.uri("d")))
        impatient = await stack.enter_async_context(opened("async", server.uri("d"), timeout=SHORT))
        await _append(other, 3)
        for kind in KINDS:
            store = await stack.enter_async_context(opened(kind, server.uri("d"), timeout=SHORT))
            waiting.append(await stack.enter_async_context(Follower(store)))
            between.append(await stack.enter_async_context(Follower(store, stop_at=2)))
        for follower in waiting:
            await follower.until(3)
        for follower in between:
            await follower.until(2)
        for last in (5, 7):
            await asyncio.to_thread(server.kill)
            for follower in between:
                follower.go_on()
            # This is longer than the timeout of a call, but a follower waits without a limit.
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await _append(impatient)
            await asyncio.to_thread(server.start)
            await _append(other, 2)
            for follower in (*waiting, *between):
                await follower.until(last)
        assert [follower.seqs for follower in (*waiting, *between)] == [list(range(1, 8))] * 6


# Many followers, and the end of them.


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_hundred_followers_share_a_pool_of_three(
    kind: str, server: MongoServer, proxy: TcpProxy, database: str, direct: str
) -> None:
    uri = server.uri(database, port=proxy.port, maxPoolSize=3)
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened(kind, uri))
        other = await stack.enter_async_context(open_store(direct))
        followers = [await stack.enter_async_context(Follower(store, f"run-{number % 50}")) for number in range(100)]
        for seq in (1, 2):
            for number in range(50):
                await _append((store, other)[number % 2], run=f"run-{number}")
            for follower in followers:
                await follower.until(seq)
        # A driver has two monitoring connections in addition to its pool.
        assert proxy.connections <= 5
        assert {tuple(follower.seqs) for follower in followers} == {(1, 2)}
        # Closing the handle wakes the threads in which its calls wait.
        for number in range(50):
            await _append(other, run=f"run-{number}")


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_a_handle_ends_its_followers_and_stream(
    kind: str, proxy: TcpProxy, through: str, direct: str, database: str
) -> None:
    tasks = asyncio.all_tasks()
    async with open_store(direct) as other:
        await _append(other, 3)
    with contextlib.ExitStack() as clients:
        async with contextlib.AsyncExitStack() as stack:
            store: Store
            if kind == "motor":
                client: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(through)
                clients.callback(client.close)
                store = await MongoStore.open(client, database)
            else:
                store = await open_store(through) if kind == "async" else threaded(open_sync_store(through))
            waiting = await stack.enter_async_context(Follower(store))
            between = await stack.enter_async_context(Follower(store, stop_at=2))
            nothing_yet = await stack.enter_async_context(Follower(store, "no such run"))
            await waiting.until(3)
            await between.until(2)
            await stream_is_read(proxy, 2)
            async with asyncio.timeout(LONG):
                await store.aclose()
            between.go_on()
            for follower in (waiting, between, nothing_yet):
                with pytest.raises(StoreClosed, match="closed"):
                    await asyncio.wait_for(asyncio.shield(follower.task), LONG)
        assert proxy.seen.count("killCursors") == proxy.seen.count("aggregate") == 1
        assert not store_threads()
    await passing(lambda: not proxy.connections)
    assert asyncio.all_tasks() == tasks


async def test_closing_a_handle_leaves_a_callers_client_unchanged(
    proxy: TcpProxy, through: str, database: str, direct: str
) -> None:
    tasks = asyncio.all_tasks()
    async with AsyncMongoClient[dict[str, Any]](through) as client, open_store(direct) as other:
        await _append(other)
        before = asyncio.all_tasks()
        async with await MongoStore.open(client, database) as store, Follower(store) as follower:
            await follower.until(1)
            await stream_is_read(proxy, 2)
        assert proxy.seen.count("killCursors") == 1
        assert (await client["admin"].command("ping"))["ok"] == 1
        assert {task for task in asyncio.all_tasks() - before if "TaskWatcher" in repr(task)} == set()
    assert asyncio.all_tasks() == tasks
    with MongoClient[dict[str, Any]](through) as synchronous:
        with SyncMongoStore.open(synchronous, database) as store_:
            events = store_.follow("agent", "run")
            assert next(events).seq == 1
            ended: list[BaseException] = []

            def wait_for_more() -> None:
                try:
                    next(events)
                except StoreClosed as error:
                    ended.append(error)

            thread = threading.Thread(target=wait_for_more)
            thread.start()
            await stream_is_read(proxy, 2)
        thread.join(LONG)
        assert len(ended) == 1
        assert not store_threads()
        assert synchronous["admin"].command("ping")["ok"] == 1
        assert proxy.seen.count("killCursors") == 2


def _freeze_and_thaw(server: MongoServer) -> tuple[Callable[[], None], Callable[[], None]]:
    return server.freeze, server.thaw


def _kill_and_start(server: MongoServer) -> tuple[Callable[[], None], Callable[[], None]]:
    return server.kill, server.start


@pytest.mark.parametrize("fault", [_freeze_and_thaw, _kill_and_start])
async def test_handle_closes_without_a_server(
    fault: Callable[[MongoServer], tuple[Callable[[], None], Callable[[], None]]], tmp_path: Path
) -> None:
    with MongoServer(tmp_path, sync_on_commit=False) as server:
        go_away, come_back = fault(server)
        async with contextlib.AsyncExitStack() as stack:
            followers: list[Follower] = []
            stores: list[Store] = []
            for kind in KINDS:
                # The exit stack closes each store at the end. The test may have closed it before.
                stores.append(await stack.enter_async_context(opened(kind, server.uri("d"))))
                await _append(stores[-1])
                followers.append(await stack.enter_async_context(Follower(stores[-1])))
            for follower in followers:
                await follower.until(3)
            await asyncio.to_thread(go_away)
            async with asyncio.timeout(LONG):
                await asyncio.gather(*(store.aclose() for store in stores))
                for follower in followers:
                    with pytest.raises(StoreClosed):
                        await asyncio.shield(follower.task)
        assert not store_threads()
        come_back()
