"""A server for tests that serves many stores in one process: ``python -m tests.service.many_stores``.

The first part of a path names the store: a word, which is its key. The program reads lines of standard input, each with
a key and the URL of its store, opens the store, and answers with a line. Without a URL, it closes the store. It ends
when its input ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading

from starlette.types import Receive, Scope, Send

from agent_memory_log import Store, open_store
from agent_memory_log.memory import Principal
from agent_memory_log.service.callers import OneCaller
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
        self._stores: dict[str, tuple[Store, Server]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key, _, path = scope["path"].removeprefix("/").partition("/")
        await self._stores[key][1].app({**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}, receive, send)

    async def command(self, line: str) -> None:
        """Open or close a store."""
        key, _, url = line.partition(" ")
        if url:
            store = await open_store(url)
            principal = Principal("acme", {"user": "42"})
            self._stores[key] = (store, create_app(store, OneCaller(principal), limits=LIMITS))
            return
        store, server = self._stores.pop(key)
        server.stopping.set()
        await store.aclose()


async def main() -> None:
    """Serve until the input ends."""
    stores, stopping = ManyStores(), asyncio.Event()
    listener = socket.create_server((HOST, 0), backlog=1024)
    loop = asyncio.get_running_loop()

    def listen() -> None:
        for line in sys.stdin:
            answer = "ok"
            try:
                asyncio.run_coroutine_threadsafe(stores.command(line.rstrip("\n")), loop).result()
            except Exception as error:
                answer = repr(error)
            os.write(1, f"{answer}\n".encode())
        loop.call_soon_threadsafe(stopping.set)

    def say() -> None:
        os.write(1, f"{listener.getsockname()[1]}\n".encode())
        threading.Thread(target=listen, daemon=True).start()

    await serve(Server(stores, stopping), listener, limits=LIMITS, on_ready=say)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
