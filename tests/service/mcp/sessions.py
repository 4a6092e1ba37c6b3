"""Opens sessions of MCP for tests: in this process, with a process over its standard streams, and over HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import msgspec
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from agent_memory_log import Store, open_store
from agent_memory_log.memory import MemoryClient, Principal
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.service.executing import Executor
from agent_memory_log.service.grants import RIGHTS, Grant
from agent_memory_log.service.limits import Limits
from agent_memory_log.service.mcp.server import make_server
from tests.amlog import environment
from tests.waiting import PATIENCE

ME = Principal("acme", {"user": "42"})
MINE = Grant("me", frozenset(RIGHTS), ME, ("support-*",))
OPTIONS = ("--tenant", "acme", "--user", "42")


def command(url: str, *options: str) -> StdioServerParameters:
    """Return the command of a server for ``ME``."""
    arguments = ["-m", "agent_memory_log.cli", "mcp", "--store", url, *OPTIONS, *options]
    return StdioServerParameters(command=sys.executable, args=arguments, env=environment())


@asynccontextmanager
async def embedded(store: Store, grant: Grant = MINE) -> AsyncGenerator[Client]:
    """Open a session with a server in this process."""
    executor = Executor(store, MemoryClient(store, extractor=RuleExtractor()), Limits())
    caller = executor.caller(grant)
    async with Client(make_server(lambda _: caller)) as client:
        yield client


@asynccontextmanager
async def session(grant: Grant = MINE) -> AsyncGenerator[tuple[Client, Store]]:
    """Open a session with a server in this process, on an empty store."""
    async with open_store("memory:") as store, embedded(store, grant) as client:
        yield client, store


@asynccontextmanager
async def over_stdio(url: str, *options: str) -> AsyncGenerator[Client]:
    """Open a session with a server in a process of its own."""
    async with Client(command(url, *options), read_timeout_seconds=PATIENCE) as client:
        yield client


@contextmanager
def http_server(url: str, *options: str) -> Generator[str]:
    """Run ``amlog serve`` for ``ME``, and yield the address of its endpoint."""
    arguments = ["serve", "--store", url, "--port", "0", *OPTIONS, *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "agent_memory_log.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
    )
    with process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip() + "/mcp"
        finally:
            process.terminate()
            process.wait(PATIENCE)


@asynccontextmanager
async def over_http(address: str, mode: str = "auto", **headers: str) -> AsyncGenerator[Client]:
    """Open a session over HTTP."""
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        transport = streamable_http_client(address, http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    """Return the text of an answer."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def lines_of(result: CallToolResult) -> list[Any]:
    """Return the lines of JSON of an answer."""
    text = text_of(result)
    assert not result.is_error, text
    lines = text.splitlines()
    assert (lines[0], "</memory>" in lines) == ("<memory>", True), text
    return [msgspec.json.decode(line) for line in lines[2 : lines.index("</memory>")]]
