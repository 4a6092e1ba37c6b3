"""MCP over HTTP: the grant of each request's token decides, and web pages of other sites are refused."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from agent_memory_log import UserMessage, new_event, open_store
from agent_memory_log.errors import Unauthenticated
from agent_memory_log.memory import MemoryClient, Principal
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.service.grants import Grant
from agent_memory_log.service.limits import Limits
from agent_memory_log.service.server import create_app, serve
from tests.service.mcp.sessions import ME, MINE, lines_of, over_http
from tests.waiting import PATIENCE

ALICE = "Bearer alice"
READER = "Bearer reader"
BOB = "Bearer bob"


class Tokens:
    """The callers of a test server, by the header ``Authorization``."""

    def __init__(self) -> None:
        self.grants = {
            ALICE: MINE,
            READER: Grant("reader", frozenset({"read"}), ME),
            BOB: Grant("bob", MINE.rights, Principal("acme", {"user": "43"}), ("billing",)),
        }

    async def grant_of(self, authorization: str | None) -> Grant:
        if authorization not in self.grants:
            raise Unauthenticated("unknown token")
        return self.grants[authorization]


@asynccontextmanager
async def server(tokens: Tokens | None = None) -> AsyncGenerator[str]:
    """Serve an empty store on this event loop, and yield the address of the endpoint."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    ready = asyncio.Event()
    async with open_store("memory:") as store:
        await store.append_events("support-1", "run", new_event(UserMessage(message="hello")))
        memory = MemoryClient(store, extractor=RuleExtractor())
        application = create_app(store, tokens or Tokens(), memory=memory)
        task = asyncio.create_task(serve(application, listener, limits=Limits(), on_ready=ready.set))
        async with asyncio.timeout(PATIENCE):
            await ready.wait()
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            application.stopping.set()
            await task


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_each_token_has_its_own_tools_runs_and_memory(mode: str) -> None:
    async with server() as address:
        async with over_http(address, mode, authorization=ALICE) as alice:
            await alice.call_tool("memory_set", {"key": "language", "value": "english"})
            assert len(lines_of(await alice.call_tool("run_read", {"agent": "support-1", "run": "run"}))) == 2
        async with over_http(address, mode, authorization=READER) as reader:
            assert "memory_store" not in {tool.name for tool in (await reader.list_tools()).tools}
            assert "english" in str(await reader.call_tool("memory_search", {"query": "language"}))
        async with over_http(address, mode, authorization=BOB) as bob:
            assert "english" not in str(await bob.call_tool("memory_search", {"query": "language"}))
            assert (await bob.call_tool("run_read", {"agent": "support-1", "run": "run"})).is_error


async def test_a_revoked_token_fails_at_the_next_request() -> None:
    tokens = Tokens()
    answered: list[str] = []

    async def call(address: str) -> None:
        async with over_http(address, authorization=ALICE) as alice:
            await alice.call_tool("memory_search", {"query": "x"})
            tokens.grants[ALICE] = Grant("alice", frozenset({"read"}), ME)
            answered.extend(tool.name for tool in (await alice.list_tools()).tools)
            del tokens.grants[ALICE]
            await alice.call_tool("memory_search", {"query": "x"})
            answered.append("a call with a revoked token")

    async with server(tokens) as address:
        with pytest.raises(ExceptionGroup):
            await call(address)
    assert "memory_search" in answered
    assert {"memory_store", "a call with a revoked token"}.isdisjoint(answered)


async def request(address: str, method: str = "POST", body: Any = None, **headers: str) -> tuple[int, Any]:
    """Send a request, and return the status and the JSON of the answer."""

    def send() -> tuple[int, Any]:
        url = urlsplit(address)
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=PATIENCE)
        all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
        accepted = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        connection.request(method, url.path, encoded if method == "POST" else None, accepted | all_headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, msgspec.json.decode(content) if content else None

    return await asyncio.to_thread(send)


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


async def test_requests_that_are_refused() -> None:
    async with server() as address:
        host = urlsplit(address).netloc
        assert (await request(address, body=PING, authorization=ALICE))[0] == 200
        assert (await request(address, body=PING, authorization=ALICE, origin=f"http://{host}"))[0] == 200
        for status, code, answer in (
            (401, "unauthenticated", await request(address, body=PING)),
            (401, "unauthenticated", await request(address, body=PING, authorization="Bearer nobody")),
            (
                403,
                "access_denied",
                await request(address, body=PING, authorization=ALICE, origin="http://evil.example"),
            ),
            (403, "access_denied", await request(address, body=PING, authorization=ALICE, origin="null")),
            (405, "invalid_argument", await request(address, "GET", authorization=ALICE)),
            (405, "invalid_argument", await request(address, "DELETE", authorization=ALICE)),
            (
                415,
                "invalid_argument",
                await request(address, body=PING, authorization=ALICE, content_type="text/plain"),
            ),
            (422, "invalid_argument", await request(address, body=b"{", authorization=ALICE)),
            (
                403,
                "access_denied",
                await request(
                    address,
                    body=PING,
                    authorization=ALICE,
                    amlog_principal='{"tenant": "acme", "scopes": {"user": "43"}}',
                ),
            ),
        ):
            assert (answer[0], answer[1]["code"]) == (status, code)


async def test_white_space_around_a_header_is_no_part_of_it() -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": dict[str, Any](),
    }
    params = {"name": "memory_health", "arguments": dict[str, Any](), "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "authorization": ALICE}
    async with server() as address:
        status, answer = await request(address, body=body, mcp_name="memory_health \t ", **headers)
        assert (status, answer["result"]["isError"]) == (200, False)
        assert (await request(address, body=body, mcp_name="memory_audit", **headers))[0] == 400


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with server() as address:
        body = b'"' + b"x" * (Limits().body_bytes + 1) + b'"'
        assert (await request(address, body=body, authorization=ALICE))[0] == 413
