"""Tests of the server's answers to requests that are not as they should be: wrong, hostile, slow or too many."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Generator, Iterable
from typing import Any

import msgspec
import pytest

from agent_memory_log.errors import Unauthenticated
from agent_memory_log.service.grants import Grant
from agent_memory_log.service.server import Limits
from agent_memory_log.service.server.logs import JsonLines
from agent_memory_log.service.store_operations import AppendEvents
from agent_memory_log.service.wire import encode_operation
from agent_memory_log.store import Erasures, RunHead
from agent_memory_log_inmem import MemoryStore
from tests.service.serving import Address, Serving, message, serving
from tests.waiting import PATIENCE, until_blocking

LOAD = {"agent": "a", "run": "r"}


@pytest.fixture(scope="module")
def server() -> Generator[Serving]:
    with serving() as server:
        yield server


def exchange(address: Address, sent: bytes) -> bytes:
    """Send bytes on a new connection, and return everything that comes until the server closes it."""
    with address.connect() as connection:
        connection.sendall(sent)
        return _until_closed(connection)


def _until_closed(connection: socket.socket) -> bytes:
    connection.settimeout(PATIENCE)
    parts: list[bytes] = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+) ", received)]


def problem(received: bytes) -> dict[str, Any]:
    assert b"content-type: application/problem+json" in received.lower()
    decoded: dict[str, Any] = msgspec.json.decode(received.partition(b"\r\n\r\n")[2])
    assert {"type", "status", "code", "detail"} <= decoded.keys()
    return decoded


def head(server: Address, path: str = "/v1/runs/load_run", *lines: str) -> bytes:
    host = f"Host: {server.host}:{server.port}"
    return "\r\n".join([f"POST {path} HTTP/1.1", host, "Content-Type: application/json", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/runs/load_run", 405),
        ("DELETE", "/v1/memory/search", 405),
        ("POST", "/healthz", 405),
        ("POST", "/v1/runs/drop_table", 404),
        ("POST", "/v1/runs/../metrics", 404),
        ("POST", "/v1/runs%2Fload_run%00", 404),
        ("GET", "/", 404),
        ("GET", "/etc/passwd", 404),
    ],
)
def test_unknown_paths_and_methods_are_problems(server: Serving, method: str, path: str, status: int) -> None:
    answer = server.request(method, path, b"{}" if method == "POST" else None, content_type="application/json")
    assert (answer.status, answer.json["status"], answer.json["code"]) == (status, status, "invalid_argument")
    assert answer.headers["content-type"] == "application/problem+json"
    assert (status == 405) == ("allow" in answer.headers)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json"])
def test_the_pages_for_monitors_answer(server: Serving, path: str) -> None:
    assert server.request("GET", path).status == 200


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "the body is empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "the body must be an object"),
        (b'{"agent":"a"}', "run is missing"),
        (b'{"agent":"a","run":"r","run":"s","x":1}', "no field 'x'"),
        (b'{"agent":"\\ud800","run":"r"}', ""),
        (b"[" * 100_000, "nesting"),
        (b'{"agent":' * 50_000, "nesting"),
        (b"1" * 10_000, ""),
        (b"NaN", "not JSON"),
    ],
)
def test_a_body_of_another_form_is_refused(server: Serving, body: bytes, detail: str) -> None:
    answer = server.request("POST", "/v1/runs/load_run", body, content_type="application/json")
    assert answer.status == 422
    assert detail in answer.json["detail"]


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_another_media_type_is_refused(server: Serving, media_type: str) -> None:
    answer = server.post("runs/load_run", LOAD, content_type=media_type)
    assert (answer.status, answer.json["code"]) == (415, "invalid_argument")


def test_a_media_type_may_have_parameters(server: Serving) -> None:
    assert server.post("runs/load_run", LOAD, content_type="Application/JSON; charset=utf-8").status == 200


def test_pipelined_requests_are_answered_in_order(server: Serving) -> None:
    requests = b""
    for number in range(1, 30):
        body = msgspec.json.encode(encode_operation(AppendEvents("a", "pipeline", (message(f"e{number}"),))))
        requests += head(server, "/v1/runs/append_events", f"Content-Length: {len(body)}") + body
    last = head(server, "/v1/runs/load_run", "Content-Length: 29", "Connection: close")
    received = exchange(server, requests + last + b'{"agent":"a","run":"unknown"}')
    assert statuses(received) == [200] * 30
    assert [int(version) for version in re.findall(rb'"version":(\d+)', received)] == [*range(1, 30), 0]


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/runs/load_run HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/runs/load_run HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/runs/load_run HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_a_request_that_is_not_http_is_refused(server: Serving, sent: bytes) -> None:
    received = exchange(server, sent)
    assert statuses(received) == [400]
    assert problem(received)["status"] == 400


def test_a_request_without_a_body_is_refused(server: Serving) -> None:
    received = exchange(server, head(server, "/v1/runs/load_run", "Connection: close"))
    assert statuses(received) == [422]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example", ""])
def test_another_host_is_refused(server: Serving, host: str) -> None:
    answer = server.post("runs/load_run", LOAD, host=host)
    assert (answer.status, answer.json["code"]) == (403, "access_denied")


def test_the_own_host_and_origin_are_accepted(server: Serving) -> None:
    for host in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST"):
        name = f"{host}:{server.port}"
        assert server.post("runs/load_run", LOAD, host=name).status == 200
        assert server.post("runs/load_run", LOAD, host=name, origin=f"http://{name.lower()}").status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost", "https://localhost:1", ""])
def test_another_origin_is_refused(server: Serving, origin: str) -> None:
    answer = server.post("runs/load_run", LOAD, origin=origin)
    assert (answer.status, answer.json["code"]) == (403, "access_denied")
    assert server.request("GET", "/metrics", origin=origin).status == 403


def test_two_hosts_are_refused(server: Serving) -> None:
    received = exchange(
        server, head(server, "/v1/runs/load_run", "Host: evil.example", "Content-Length: 0", "Connection: close")
    )
    assert statuses(received) == [403]


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read() -> None:
    with serving(limits=Limits(body_bytes=1_000, linger_seconds=0.01)) as server:
        received = exchange(server, head(server, "/v1/runs/load_run", "Content-Length: 100000000000"))
        assert statuses(received) == [413]
        document = problem(received)
        assert (document["code"], document["limit"]) == ("event_too_large", 1_000)


def test_a_body_in_parts_is_refused_as_soon_as_it_is_too_large() -> None:
    with serving(limits=Limits(body_bytes=1_000, linger_seconds=0.01)) as server:
        part = b"%x\r\n%s\r\n" % (700, b" " * 700)
        received = exchange(server, head(server, "/v1/runs/load_run", "Transfer-Encoding: chunked") + 2 * part)
        assert statuses(received) == [413]


def test_a_refusal_is_answered_although_the_client_still_sends() -> None:
    limits = Limits(body_bytes=1_000, linger_seconds=PATIENCE)
    with serving(limits=limits) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        connection.connect((server.host, server.port))
        connection.sendall(head(server, "/v1/runs/load_run", "Content-Length: 1000000") + b" " * 1_000_000)
        received = _until_closed(connection)
        assert statuses(received) == [413]
        assert b"connection: close" in received


def test_a_small_refused_body_keeps_the_connection_open(server: Serving) -> None:
    refused = head(server, "/v1/runs/unknown", "Content-Length: 2") + b"{}"
    accepted = head(server, "/v1/runs/load_run", "Content-Length: 23", "Connection: close") + b'{"agent":"a","run":"r"}'
    assert statuses(exchange(server, refused + accepted)) == [404, 200]


def test_a_slow_head_loses_the_connection() -> None:
    with serving(limits=Limits(header_seconds=0.05)) as server:
        assert exchange(server, b"") == b""
        assert exchange(server, b"POST /v1/runs/load_run HTTP/1.1\r\nHost: ") == b""
    # The time begins again with each request of a connection.
    with serving(limits=Limits(header_seconds=1)) as server:
        ok = head(server, "/v1/runs/load_run", "Content-Length: 23") + b'{"agent":"a","run":"r"}'
        assert statuses(exchange(server, ok + b"POST /v1/r")) == [200]


def test_a_slow_body_is_refused() -> None:
    with serving(limits=Limits(body_seconds=0.05)) as server:
        received = exchange(server, head(server, "/v1/runs/load_run", "Content-Length: 23") + b'{"agent"')
        assert statuses(received) == [408]
        assert problem(received)["code"] == "store_unavailable"


def test_an_unused_connection_is_closed() -> None:
    with serving(limits=Limits(idle_seconds=1)) as server:
        ok = head(server, "/v1/runs/load_run", "Content-Length: 23") + b'{"agent":"a","run":"r"}'
        assert statuses(exchange(server, ok)) == [200]


def test_a_large_head_is_refused() -> None:
    with serving(limits=Limits(header_bytes=2_000)) as server:
        received = exchange(server, b"POST /v1/runs/load_run HTTP/1.1\r\nX: " + b"x" * 300_000)
        assert statuses(received) == [431]
        assert problem(received)["status"] == 431


def test_too_many_connections_are_closed() -> None:
    with serving(limits=Limits(connections=2)) as server:
        open_connections = [server.connect() for _ in range(2)]
        try:
            for connection in open_connections:
                connection.sendall(b"GET")
            assert exchange(server, b"") == b""
        finally:
            for connection in open_connections:
                connection.close()


def test_a_caller_that_sends_too_many_requests_learns_when_to_try_again() -> None:
    with serving(limits=Limits(rate=0.01, burst=3)) as server:
        answers = [server.post("runs/load_run", LOAD) for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].json["code"] == "too_many_requests"
        assert 50 < int(answers[-1].headers["retry-after"]) <= 100
        assert 50 < answers[-1].json["retry_after"] <= 100


def test_bodies_and_answers_are_refused_if_all_together_are_too_large() -> None:
    with serving(limits=Limits(held_bytes=10_000)) as server:
        append = encode_operation(AppendEvents("a", "r", (message("e", "x" * 4_000),)))
        for _ in range(3):  # each body is released
            assert server.post("runs/append_events", append).status == 200
            assert server.post("runs/load_run", LOAD).status == 200
        large = encode_operation(AppendEvents("a", "r", (message("e", "x" * 12_000),)))
        assert server.post("runs/append_events", large).status == 429


class Stuck(MemoryStore):
    """A store that never answers ``peek_runs``, or fails in an unexpected way."""

    failure: Exception | None = None

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        if self.failure is not None:
            raise self.failure
        await asyncio.Event().wait()
        return await super().peek_runs(runs)


class Failing(Stuck):
    failure = KeyError("hunter2")

    async def erasures(self, **options: object) -> Erasures:
        raise KeyError(options)


def test_an_operation_that_takes_too_long_says_what_to_do() -> None:
    with serving(Stuck, limits=Limits(request_seconds=0.05)) as server:
        answer = server.post("runs/peek_runs", {"runs": []})
        assert (answer.status, answer.json["code"]) == (503, "store_unavailable")
        assert "send it again" in answer.json["detail"]


def test_too_many_requests_at_once_are_refused() -> None:
    with serving(Stuck, limits=Limits(requests_of_caller=2, stop_seconds=0)) as server:
        body = b'{"runs":[]}'
        waiting = [server.connect() for _ in range(2)]
        try:
            for connection in waiting:
                connection.sendall(head(server, "/v1/runs/peek_runs", f"Content-Length: {len(body)}") + body)
            until_blocking(lambda: active_requests(server) == 2)
            answer = server.post("runs/peek_runs", {"runs": []})
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        finally:
            for connection in waiting:
                connection.close()


def test_a_client_that_does_not_read_its_answer_loses_the_connection() -> None:
    limits = Limits(write_seconds=0.05, page_bytes=2**24)
    with serving(limits=limits) as server, socket.socket() as connection:
        for number in range(8):
            server.call(AppendEvents("a", "r", (message(f"e{number}", "x" * 2_000_000),)))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect((server.host, server.port))
        connection.sendall(head(server, "/v1/runs/load_run", "Content-Length: 23") + b'{"agent":"a","run":"r"}')
        until_blocking(lambda: b'operation="runs/load_run"' in server.request("GET", "/metrics").body)
        received = _until_closed(connection)
        assert statuses(received) == [200]
        assert len(received) < 16_000_000


def active_requests(server: Address) -> int:
    text = server.request("GET", "/metrics").body.decode()
    return int(float(text.split("\namlog_active_requests ")[1].split()[0]))


def test_an_unexpected_error_shows_no_internals(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), serving(Failing) as server:
        answer = server.post("runs/peek_runs", {"runs": []})
        assert (answer.status, answer.json["code"]) == (500, "agent_memory_log_error")
        assert "hunter2" not in answer.body.decode()
        assert answer.headers["x-request-id"] in answer.json["detail"]
        with server.stream("runs/follow", LOAD) as stream:
            kind, document = stream.next() or ("", {})
            assert (kind, document["status"]) == ("error", 500)
            assert "hunter2" not in repr(document)
        readiness = server.request("GET", "/readyz")
        assert (readiness.status, readiness.json["code"]) == (500, "agent_memory_log_error")
    logged = [record for record in caplog.records if record.exc_info]
    line = JsonLines().format(logged[0])
    assert answer.headers["x-request-id"] in line
    assert "hunter2" not in line
    assert "KeyError" in line


class Strict:
    """Knows one token."""

    async def grant_of(self, authorization: str | None) -> Grant:
        if authorization != "Bearer good":
            raise Unauthenticated("the token is unknown")
        return Grant("evil\r\n\x1b[31m\u2028name", frozenset({"read"}), None, ("a",))


def test_callers_have_only_the_rights_of_their_token(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), serving(callers=Strict(), local=False) as server:
        answer = server.post("runs/load_run", LOAD, authorization="Bearer bad")
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert server.post("runs/load_run", LOAD).status == 401
        assert server.post("runs/load_run", LOAD, authorization="Bearer good").status == 200
        assert server.post("runs/load_run", {"agent": "b", "run": "r"}, authorization="Bearer good").status == 403
        append = encode_operation(AppendEvents("a", "r", (message("e"),)))
        assert server.post("runs/append_events", append, authorization="Bearer good").status == 403
        assert server.post("memory/list", {}, authorization="Bearer good").status == 403
        assert server.post("runs/check", {}, authorization="Bearer good").status == 403
        # Tokens are no cookies: a browser does not send them unasked, so the host does not matter.
        assert server.post("runs/load_run", LOAD, authorization="Bearer good", host="other.example").status == 200
        assert server.request("GET", "/healthz").status == 200
    lines = [JsonLines().format(record) for record in caplog.records if hasattr(record, "fields")]
    assert len(lines) >= 9
    assert all(line.isascii() and line.isprintable() for line in lines)
