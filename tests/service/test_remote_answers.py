"""Tests of the answers of broken servers and proxies: errors, pages of HTML, broken JSON, answers without an end."""

from __future__ import annotations

import gzip
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.errors import (
    AccessDenied,
    AgentMemoryLogError,
    EventTooLarge,
    StoreCorrupt,
    StoreUnavailable,
    TooManyRequests,
    Unauthenticated,
    VersionConflict,
)
from agent_memory_log.service.client import answers
from tests.mongo.ports import HOST, port_of, reserve_port
from tests.service.kinds import KINDS, opened
from tests.service.scripted import Reply, ScriptedServer, problem, reply

pytestmark = pytest.mark.parametrize("kind", KINDS)

HEADS = b'[{"version": 3, "first_seq": 1}]'
HTML = b"<html>It works!</html>"


async def peek(kind: str, url: str) -> object:
    async with opened(kind, url) as store:
        return await store.peek_runs([("agent", "run")])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (reply(HTML, content_type="text/html"), "200 OK with text/html; this is not the address"),
        (reply(HTML, "404 Not Found", "text/html; charset=utf-8"), "404 Not Found with text/html"),
        (reply(b"", "404 Not Found", "text/plain"), "check host, port and path"),
        (reply(HEADS[:-4]), "is not what this release expects"),
        (reply(b"\xff"), "is not what this release expects"),
        (reply(b"[" * 100_000), "is not what this release expects"),
        (reply(b""), "is not what this release expects"),
        (reply(b"{}"), "must be an array"),
        (reply(b'[{"version": 3}]'), "first_seq is missing"),
        (reply(b"[]"), "0 values for 1"),
        (reply(gzip.compress(HEADS), "200 OK", "application/json", "Content-Encoding: gzip"), "in the encoding 'gzip'"),
        (reply(b"", "301 Moved", "text/html", "Location: https://elsewhere.example/"), "elsewhere.example"),
        (reply(b"", "307 Moved", "text/html", "Location: https://elsewhere.example/"), "the token is not sent"),
        (reply(b"", "599 Odd", "text/html"), "599"),
        (problem("418 Teapot", "newer"), "the server reported the error 'newer': 'detail of newer'"),
        (problem("409 Conflict", "version_conflict"), "the error 'version_conflict'"),  # without attributes
        (reply(b"nonsense", "500 Oops", "application/problem+json"), "is not JSON"),
        (reply(b"[]", "500 Oops", "application/problem+json"), "an error without a code"),
        (problem("500 Oops", "store_closed"), "the error 'store_closed'"),
    ],
)
async def test_an_answer_of_no_server_of_this_library_is_refused_at_once(
    kind: str, answer: bytes, message: str
) -> None:
    with ScriptedServer([answer]) as server:
        with pytest.raises(StoreUnavailable) as caught:
            await peek(kind, server.url)
        assert message in str(caught.value)
        assert len(server.requests) == 2
        assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (problem("401 Unauthorized", "unauthenticated"), Unauthenticated),
        (problem("403 Forbidden", "access_denied"), AccessDenied),
        (problem("409 Conflict", "version_conflict", expected=1, actual=2), VersionConflict),
        (problem("413 Too Large", "event_too_large", size=2, limit=1), EventTooLarge),
        (problem("500 Oops", "store_corrupt"), StoreCorrupt),
        (reply(HTML, "401 Unauthorized", "text/html"), Unauthenticated),
        (reply(HTML, "403 Forbidden", "text/html"), Unauthenticated),
    ],
)
async def test_a_problem_becomes_the_error_of_a_local_store(
    kind: str, answer: bytes, error: type[AgentMemoryLogError]
) -> None:
    with ScriptedServer([answer]) as server:
        with pytest.raises(error) as caught:
            await peek(kind, server.url)
        assert type(caught.value) is error
        assert len(server.requests) == 2


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


@pytest.mark.parametrize(
    "failure",
    [
        b"",
        b"HTTP/1.1 200",
        b"nonsense\r\n\r\n",
        reply(HEADS, length=len(HEADS) + 1),
        reply(b"", "502 Bad Gateway", "text/html"),
        reply(HTML, "503 Unavailable", "text/html", "Retry-After: 0"),
        reply(HTML, "504 Timeout", "text/html", "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"),
        problem("503 Unavailable", "store_unavailable"),
        problem("408 Timeout", "store_unavailable"),
        problem("429 Too Many", "too_many_requests", "Retry-After: 0", retry_after=0),
        _reset,
    ],
)
async def test_a_failed_request_is_sent_again(kind: str, failure: Reply) -> None:
    with ScriptedServer([failure, failure, reply(HEADS)]) as server:
        heads = await peek(kind, server.url)
        assert [request.partition(b"\r\n\r\n")[2] for request in server.requests[1:]] == [
            b'{"runs":[["agent","run"]]}'
        ] * 3
    assert heads is not None


async def test_an_append_has_the_same_event_ids_in_each_request(kind: str) -> None:
    with ScriptedServer(last=reply(b"", "502 Bad Gateway")) as server:
        async with opened(kind, f"{server.url}?timeout=3") as store:
            with pytest.raises(StoreUnavailable, match="may have carried it out, and it is safe to repeat"):
                await store.append_events("agent", "run", new_event(UserMessage(message="hi")))
        assert len(server.bodies) > 1
        assert len(set(server.bodies)) == 1


async def test_a_silent_server_ends_the_call_at_its_time(kind: str) -> None:
    def wait(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.recv(1)

    with ScriptedServer(last=wait) as server:
        async with opened(kind, f"{server.url}?timeout=3") as store:
            with pytest.raises(StoreUnavailable, match="no answer in time") as caught:
                await store.list_runs()
            assert caught.value.__cause__ is not None
            assert "may have" not in str(caught.value)  # a read changes nothing


async def test_a_long_retry_after_ends_the_call_at_once(kind: str) -> None:
    busy = problem("429 Too Many", "too_many_requests", "Retry-After: 3600", retry_after=3600)
    with ScriptedServer(last=busy) as server:
        with pytest.raises(TooManyRequests) as caught:
            await peek(kind, server.url)
        assert caught.value.retry_after == 3600
        assert len(server.requests) == 2


async def test_an_answer_without_an_end_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_BYTES", 1_000_000)

    def send_forever(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
        while True:
            connection.sendall(b" " * 65536)

    with ScriptedServer([send_forever]) as server:
        with pytest.raises(StoreUnavailable, match="more than 1,000,000 bytes"):
            await peek(kind, server.url)
        assert len(server.requests) == 2


async def test_an_answer_that_trickles_ends_at_its_time(kind: str) -> None:
    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
        while True:
            time.sleep(0.05)
            connection.sendall(b" ")

    with ScriptedServer(last=trickle) as server, pytest.raises(StoreUnavailable, match="did not end within 3 s"):
        await peek(kind, f"{server.url}?timeout=3")


async def test_the_token_is_sent_to_the_server_and_not_to_the_target_of_a_redirect(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMLOG_TOKEN", "s3cr3t")
    with ScriptedServer(opens=False) as other:
        moved = reply(b"", "308 Moved", "text/html", f"Location: {other.url}/v1/runs/peek_runs")
        with ScriptedServer([moved]) as server:
            with pytest.raises(StoreUnavailable, match="redirects"):
                await peek(kind, server.url)
            assert all(b"authorization: bearer s3cr3t" in request.lower() for request in server.requests)
        assert other.requests == []


async def test_opening_does_not_wait_for_a_missing_server(kind: str) -> None:
    with reserve_port() as reservation:
        url = f"http://{HOST}:{port_of(reservation)}?timeout=3600"
        with pytest.raises(StoreUnavailable, match=r"no connection: Connection refused") as caught:
            await peek(kind, url)
        assert caught.value.__cause__ is not None


@pytest.mark.parametrize(("token", "error"), [("unauthenticated", Unauthenticated), ("access_denied", None)])
async def test_opening_checks_the_token(kind: str, token: str, error: type[Exception] | None) -> None:
    """A token that may only append is refused the read that opens the store, and can still be used."""
    with ScriptedServer([problem("403 Forbidden", token)], opens=False) as server:
        if error is None:
            async with opened(kind, server.url):
                pass
        else:
            with pytest.raises(error):
                await peek(kind, server.url)


async def test_a_certificate_of_an_unknown_authority_is_refused(kind: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    context.load_cert_chain(tmp_path / "server.pem")
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(file)
    with ScriptedServer([reply(b"[null]")], tls=context) as server:
        with pytest.raises(StoreUnavailable, match=r"certificate .* \?ca=FILE"):
            await peek(kind, server.url)
        assert server.requests == []
        assert await peek(kind, f"{server.url}?ca={file}") == (None,)
        other = f"{server.url.replace(HOST, 'localhost')}?ca={file}"
        with pytest.raises(StoreUnavailable, match="certificate"):
            await peek(kind, other)


def test_an_error_names_the_server_and_no_secret(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    del kind
    monkeypatch.setenv("AMLOG_TOKEN", "s3cr3t")
    with ScriptedServer([reply(HTML, content_type="text/html")], opens=False) as server:
        with pytest.raises(StoreUnavailable) as caught:
            open_sync_store(f"{server.url}/base/?timeout=5")
        assert str(caught.value).startswith(f"{server.url}/base: runs/peek_runs: ")
        assert "s3cr3t" not in str(caught.value)
