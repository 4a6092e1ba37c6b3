"""Tests of a store behind a network that breaks: nothing acknowledged is lost, nothing is stored or delivered twice."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
import trustme

from agent_memory_log import Event, Store, UserMessage, new_event, open_store
from agent_memory_log.conformance.checks import seqs_of, take
from agent_memory_log.conformance.harness import settle, waiting_next
from agent_memory_log.errors import RunDeleted, StoreClosed, StoreUnavailable
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.service.client import http, sync
from agent_memory_log.service.store_operations import CheckStore, LoadRun
from agent_memory_log.service.wire import encode_result
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import Flaw
from tests.mongo.ports import HOST
from tests.service.cutting_proxy import CuttingProxy
from tests.service.kinds import KINDS, opened
from tests.service.scripted import ScriptedServer, reply
from tests.service.servers import ManyStores
from tests.service.serving import ServerProcess
from tests.waiting import PATIENCE

AGENT, RUN = "agent", "run"
WRITERS, APPENDS = 4, 15


@pytest.fixture
def served(many_stores: ManyStores, tmp_path: Path) -> Generator[str]:
    """Serve an empty store, and return the path of its address."""
    with many_stores.serving(f"sqlite:///{tmp_path}/store.db?durability=os") as path:
        yield path


async def _write(store: Store, writer: int) -> list[tuple[str, int]]:
    """Append batches. Return the id and the seq of each acknowledged event."""
    acknowledged: list[tuple[str, int]] = []
    for number in range(APPENDS):
        batch = [new_event(UserMessage(message=f"{writer} {number} " + "x" * 300)) for _ in range(number % 3 + 1)]
        result = await store.append_events(AGENT, RUN, *batch)
        assert [event.event_id for event in result.events] == [event.event_id for event in batch]
        acknowledged += [(event.event_id, event.seq) for event in result.events]
    return acknowledged


@pytest.mark.parametrize("kind", KINDS)
async def test_cut_connections_lose_and_double_no_acknowledged_event(
    kind: str, many_stores: ManyStores, served: str
) -> None:
    total = WRITERS * sum(number % 3 + 1 for number in range(APPENDS))
    with CuttingProxy(many_stores.port, seed=7, request_bytes=8_000, answer_bytes=6_000) as proxy:
        async with opened(kind, many_stores.url(served, proxy.port)) as store:

            async def follow() -> list[tuple[str, int]]:
                async with aclosing(store.follow(AGENT, RUN)) as events:
                    return [(event.event_id, event.seq) for event in await take(events, total)]

            following = asyncio.create_task(follow())
            written = await asyncio.gather(*(_write(store, writer) for writer in range(WRITERS)))
            followed = await following
        assert proxy.cuts, "the test proves nothing without a cut"
    acknowledged = [pair for pairs in written for pair in pairs]
    async with open_store(many_stores.url(served)) as store:
        stored = [(event.event_id, event.seq) for event in (await store.load_run(AGENT, RUN)).log]
    assert sorted(acknowledged, key=lambda pair: pair[1]) == stored
    assert len({event_id for event_id, _ in stored}) == total == len(stored)
    assert followed == stored


@pytest.mark.parametrize("kind", KINDS)
async def test_a_follower_continues_when_the_server_comes_back(kind: str, many_stores: ManyStores, served: str) -> None:
    with CuttingProxy(many_stores.port) as proxy:
        direct = open_store(many_stores.url(served))
        async with opened(kind, many_stores.url(served, proxy.port)) as store, direct as other:
            await other.append_events(AGENT, RUN, _message("one"))
            async with aclosing(store.follow(AGENT, RUN)) as events:
                assert seqs_of(await take(events, 1)) == [1]
                waiting = await waiting_next(events)
                proxy.server_port = None
                proxy.cut_all()
                await other.append_events(AGENT, RUN, _message("two"), _message("three"))
                await settle()
                assert not waiting.done()
                proxy.server_port = many_stores.port
                assert (await waiting).seq == 2
                assert seqs_of(await take(events, 1)) == [3]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_follower_learns_of_a_deletion_while_the_server_was_gone(
    kind: str, many_stores: ManyStores, served: str
) -> None:
    with CuttingProxy(many_stores.port) as proxy:
        direct = open_store(many_stores.url(served))
        async with opened(kind, many_stores.url(served, proxy.port)) as store, direct as other:
            await other.append_events(AGENT, RUN, _message("one"))
            async with aclosing(store.follow(AGENT, RUN)) as events:
                await take(events, 1)
                waiting = await waiting_next(events)
                proxy.server_port = None
                proxy.cut_all()
                await other.delete_run(AGENT, RUN)
                await other.append_events(AGENT, RUN, _message("new"))
                proxy.server_port = many_stores.port
                with pytest.raises(RunDeleted):
                    await waiting


EMPTY = reply(encode_json(encode_result(LoadRun, Snapshot(AGENT, RUN))))
HEAD = b'data: {"version": 0, "first_seq": 1}\n\n'
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def _holding(*parts: bytes) -> Callable[[socket.socket], object]:
    """Return a reply that sends bytes and then waits until the client closes the connection."""

    def send(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)
        connection.recv(1)

    return send


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_without_signs_of_life_is_opened_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (http, sync):
        monkeypatch.setattr(module, "SILENCE_SECONDS", 0.1)
    with ScriptedServer([EMPTY], last=_holding(STREAM, HEAD)) as server:
        async with opened(kind, server.url) as store:
            waiting = await waiting_next(store.follow(AGENT, RUN))
            for _ in range(4):
                assert await asyncio.to_thread(server.arrived.acquire, timeout=PATIENCE)
            assert server.bodies[1] == server.bodies[2] == b'{"agent":"agent","run":"run","first_seq":1}'
            await store.aclose()
            with pytest.raises(StoreClosed):
                await waiting


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (reply(b"{}"), StoreUnavailable, "application/json"),
        (reply(b"", "404 Not Found", "text/html"), StoreUnavailable, "404 Not Found"),
        (STREAM + b"data: {}\n\n", StoreUnavailable, "version is missing"),
        (STREAM + b"data: nonsense\n\n", StoreUnavailable, "what this release expects"),
        (STREAM + b'event: error\ndata: {"status": 410, "code": "run_deleted", "detail": "d"}\n\n', RunDeleted, "d"),
        (
            STREAM + b'event: error\ndata: {"status": 400, "code": "newer", "detail": "d"}\n\n',
            StoreUnavailable,
            "'newer'",
        ),
        (STREAM + b"event: error\ndata: 5\n\n", StoreUnavailable, "an error without a code"),
        (STREAM + b'event: error\ndata: {"status": [], "code": {}}\n\n', StoreUnavailable, "the error '{}'"),
        (STREAM + b"data: " + b"x" * 2_000_000, StoreUnavailable, "1048576 byte limit"),
    ],
)
async def test_a_stream_of_no_server_of_this_library_ends_a_follower(
    kind: str, answer: bytes, error: type[Exception], message: str
) -> None:
    with ScriptedServer([EMPTY, answer]) as server:
        async with opened(kind, server.url) as store:
            with pytest.raises(error) as caught:
                await anext(store.follow(AGENT, RUN))
            assert message in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_or_leaving_a_follower_ends_its_request(kind: str) -> None:
    ended = threading.Semaphore(0)

    def hold(connection: socket.socket) -> None:
        connection.sendall(STREAM + HEAD)
        with suppress(ConnectionError):
            assert connection.recv(1) == b""
        ended.release()

    with ScriptedServer([EMPTY, hold, EMPTY, hold]) as server:
        async with opened(kind, server.url) as store:
            if kind == "async":  # a thread cannot be cancelled
                waiting = await waiting_next(store.follow(AGENT, RUN))
                for _ in range(2):
                    assert await asyncio.to_thread(server.arrived.acquire, timeout=PATIENCE)
                waiting.cancel()
                assert await asyncio.to_thread(ended.acquire, timeout=PATIENCE)
            waiting = await waiting_next(store.follow(AGENT, RUN))
            for _ in range(2):
                assert await asyncio.to_thread(server.arrived.acquire, timeout=PATIENCE)
            await store.aclose()
            assert await asyncio.to_thread(ended.acquire, timeout=PATIENCE)
            with pytest.raises(StoreClosed):
                await waiting


@pytest.mark.parametrize("kind", KINDS)
async def test_a_check_begins_again_only_before_its_first_flaw(kind: str) -> None:
    flaw = encode_json(encode_result(CheckStore, Flaw("a", "r", 1, "damaged")))
    item, end = b"data: " + flaw + b"\n\n", b"event: end\ndata: null\n\n"
    with ScriptedServer([STREAM, STREAM + b":\n\n", STREAM + item + item + end, STREAM + item]) as server:
        async with opened(kind, server.url) as store:
            assert [flaw.message async for flaw in store.check()] == ["damaged"] * 2
            assert len(server.bodies) == 3
            flaws = aiter(store.check())
            assert (await anext(flaws)).seq == 1
            with pytest.raises(StoreUnavailable, match="before its end"):
                await anext(flaws)
            assert len(server.bodies) == 4


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_in_progress_ends_as_usual_when_its_handle_is_closed(kind: str) -> None:
    go_on = threading.Event()

    def answer(connection: socket.socket) -> None:
        assert go_on.wait(PATIENCE)
        connection.sendall(EMPTY)

    def fail(connection: socket.socket) -> None:
        assert go_on.wait(PATIENCE)
        connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    for script in (answer, fail):
        go_on.clear()
        with ScriptedServer([script], last=EMPTY) as server:
            async with opened(kind, server.url) as store:
                loading = asyncio.create_task(store.load_run(AGENT, RUN))
                assert await asyncio.to_thread(server.arrived.acquire, timeout=PATIENCE)
                await store.aclose()
                go_on.set()
                if script is answer:
                    assert (await loading).version == 0
                else:
                    with pytest.raises(StoreClosed):
                        await loading


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_a_handle_ends_a_follower_on_an_encrypted_connection(kind: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    tls = ["--cert", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem")]
    with ServerProcess(f"sqlite:///{tmp_path}/runs.db", tmp_path / "log", *tls) as server:
        async with opened(kind, f"{server.url}?ca={tmp_path}/ca.pem") as store:
            await store.append_events(AGENT, RUN, _message("one"))
            events = store.follow(AGENT, RUN)
            assert (await anext(events)).seq == 1
            waiting = await waiting_next(events)
            await store.append_events(AGENT, RUN, _message("two"))
            assert (await waiting).seq == 2
            waiting = await waiting_next(events)
            await asyncio.sleep(0.2)  # most runs reach the wait for data; the promise holds for all
            await store.aclose()
            with pytest.raises(StoreClosed):
                await waiting


def _message(text: str) -> Event:
    return new_event(UserMessage(message=text))
