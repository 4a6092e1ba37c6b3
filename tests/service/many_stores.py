"""A server for tests that serves many stores in one process: ``python -m tests.service.many_stores``.

The first part of a path names the store: a word, which is its key. The program reads lines of standard input, each with
a key and the URL of its store, opens the store, and answers with a line. With the further word ``grpc``, it also serves
the store over gRPC, and the answer is the port. Without a URL, it closes the store. It ends when its input ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from contextlib import AsyncExitStack

from starlette.types import Receive, Scope, Send

from agent_memory_log import open_store
from agent_memory_log.memory import Principal
from agent_memory_log.service.callers import OneCaller
from agent_memory_log.service.grpc.server import serving_grpc
from agent_memory_log.service.server import Limits, create_app, loop_factory, serve
from agent_memory_log.service.server.app import Server
from tests.mongo.ports import HOST

MIB = 1024 * 1024

LIMITS = Limits(
    rate=1_000_000, burst=1_000_000, page_events=50, page_bytes=4 * 1024 * 1024, body_bytes=64 * 1024 * 1024
)
"""Small pages, so that tests read runs in several of them."""


class ManyStores:
    """An ASGI application: those of several stores, each below its key."""

    def __init__(self) -> None:
        self._stores: dict[str, tuple[Server, AsyncExitStack]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key, _, path = scope["path"].removeprefix("/").partition("/")
        await self._stores[key][0].app({**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}, receive, send)

    async def command(self, line: str) -> str:
        """Open or close a store. Returns the answer."""
        key, *arguments = line.split(" ")
        if not arguments:
            server, resources = self._stores.pop(key)
            server.stopping.set()
            await resources.aclose()
            return "ok"
        url, *grpc = arguments
        resources = AsyncExitStack()
        store = await resources.enter_async_context(open_store(url))
        server = create_app(store, OneCaller(Principal("acme", {"user": "42"})), limits=LIMITS)
        self._stores[key] = (server, resources)
        return str(await resources.enter_async_context(serving_grpc(server, HOST, 0))) if grpc else "ok"


async def main() -> None:
    """Serve until the input ends."""
    stores, stopping = ManyStores(), asyncio.Event()
    listener = socket.create_server((HOST, 0), backlog=1024)
    loop = asyncio.get_running_loop()

    def listen() -> None:
        for line in sys.stdin:
            try:
                answer = asyncio.run_coroutine_threadsafe(stores.command(line.rstrip("\n")), loop).result()
            except Exception as error:
                answer = repr(error)
            os.write(1, f"{answer}\n".encode())
        loop.call_soon_threadsafe(stopping.set)

    def say() -> None:
        os.write(1, f"{listener.getsockname()[1]}\n".encode())
        threading.Thread(target=listen, daemon=True).start()

    async with open_store("memory:") as store:
        any_server = create_app(store, OneCaller(), limits=LIMITS)
        await serve(any_server._replace(app=stores, stopping=stopping), listener, limits=LIMITS, on_ready=say)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
