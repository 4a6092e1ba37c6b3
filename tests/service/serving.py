"""Serves a store for tests, in a thread of this process or as ``amlog serve`` in another, and calls it."""

from __future__ import annotations

import asyncio
import http.client
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from agent_memory_log import JsonValue, Store, UserMessage, new_event, open_store
from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.memory import MemoryClient, Principal
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.callers import Callers, OneCaller
from agent_memory_log.service.grpc.server import serving_grpc
from agent_memory_log.service.problems import error_of
from agent_memory_log.service.server import Limits, create_app, serve
from agent_memory_log.service.table import NAMES
from agent_memory_log.service.wire import decode_result, encode_operation
from tests.amlog import environment
from tests.waiting import PATIENCE

PRINCIPAL = Principal("acme", {"user": "1"})

Open = Callable[[], Any]
"""Opens a store, as an asynchronous context manager."""


class Answer(NamedTuple):
    """An answer of a server: its status, its headers by lower-case name, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        return msgspec.json.decode(self.body)


class Address:
    """The address of a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host = urlsplit(url).hostname or ""
        self.port = urlsplit(url).port or 0

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection((self.host, self.port), timeout=PATIENCE)

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send a request on a new connection. An underscore in the name of a header stands for a dash."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            dashed = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, dashed)
            return _answer_of(connection.getresponse())
        finally:
            connection.close()

    def post(self, name: str, body: JsonValue, **headers: str) -> Answer:
        """Send an operation as JSON."""
        encoded = msgspec.json.encode(body)
        return self.request("POST", f"/v1/{name}", encoded, **{"content_type": "application/json", **headers})

    def call(self, operation: Operation[Any]) -> Any:
        """Carry out an operation, and return its result or raise its error."""
        answer = self.post(NAMES[type(operation)], encode_operation(operation))
        if answer.status == 200:
            return decode_result(type(operation), answer.json)
        error = error_of(answer.json)
        assert isinstance(error, AgentMemoryLogError), answer
        raise error

    @contextmanager
    def stream(self, name: str, body: JsonValue) -> Generator[Stream]:
        """Open a stream."""
        with self.connect() as connection:
            encoded = msgspec.json.encode(body)
            head = f"POST /v1/{name} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(encoded)}\r\n\r\n".encode() + encoded)
            response = http.client.HTTPResponse(connection, method="POST")
            response.begin()
            with response:
                yield Stream(response)


def _answer_of(response: http.client.HTTPResponse) -> Answer:
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


class Stream:
    """An open stream of server-sent events."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        assert response.status == 200, response.read()
        assert response.getheader("content-type") == "text/event-stream"
        self._response = response
        self.heartbeats = 0

    def next(self) -> tuple[str, Any] | None:
        """Return the kind and the data of the next event, or None if the stream ended."""
        kind = "message"
        while (text := self.line()) is not None:
            if text.startswith("event: "):
                kind = text.removeprefix("event: ")
            elif text.startswith("data: "):
                return kind, msgspec.json.decode(text.removeprefix("data: "))
        return None

    def line(self) -> str | None:
        """Return the next line, or None if the stream ended."""
        line = self._response.readline().decode()
        self.heartbeats += line.startswith(":")
        return line.rstrip("\n") if line else None


class Serving(Address):
    """A server in a thread. ``store`` may be used on its event loop, with ``on_loop``."""

    def __init__(
        self, url: str, store: Store, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event, grpc_target: str
    ) -> None:
        super().__init__(url)
        self.grpc_target = grpc_target
        self.store = store
        self.loop = loop
        self._stopping = stopping

    def stop(self) -> None:
        """Tell the server to stop."""
        self.loop.call_soon_threadsafe(self._stopping.set)


@contextmanager
def serving(
    open_: Open = lambda: open_store("memory:"),
    *,
    limits: Limits | None = None,
    callers: Callers | None = None,
    memory: Callable[[Store], MemoryClient] = MemoryClient,
    local: bool = True,
    grpc: bool = False,
) -> Generator[Serving]:
    """Serve a store in a thread while the block runs. With ``grpc``, serve it over gRPC too."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    ready: list[Serving] = []
    is_ready = threading.Event()
    limits = limits or Limits()

    async def run() -> None:
        async with AsyncExitStack() as resources:
            store = await resources.enter_async_context(open_())
            server = create_app(
                store,
                callers or OneCaller(PRINCIPAL),
                memory=memory(store),
                limits=limits,
                local_port=port if local else None,
            )
            target = ""
            if grpc:
                target = f"127.0.0.1:{await resources.enter_async_context(serving_grpc(server, '127.0.0.1', 0))}"
            loop = asyncio.get_running_loop()
            ready.append(Serving(f"http://127.0.0.1:{port}", store, loop, server.stopping, target))
            await serve(server, listener, limits=limits, on_ready=is_ready.set)

    def run_thread() -> None:
        try:
            asyncio.run(run())
        finally:
            is_ready.set()

    thread = threading.Thread(target=run_thread, name="server")
    thread.start()
    try:
        assert is_ready.wait(PATIENCE)
        yield ready[0]
    finally:
        if thread.is_alive():
            ready[0].stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


class ServerProcess(Address):
    """A process that runs ``amlog serve``."""

    def __init__(self, store: str, log: Path, *options: str) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agent_memory_log.cli", "serve", "--store", store, "--port", "0", *options],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment(),
            )
        assert self.process.stdout is not None
        url = self.process.stdout.readline().strip()
        assert url.startswith("http"), log.read_text()
        super().__init__(url)

    @property
    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        return [msgspec.json.decode(line) for line in self._log.read_bytes().splitlines()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


def message(event_id: str, text: str = "hello") -> Any:
    """Return an event with an id."""
    return new_event(UserMessage(message=text), event_id=event_id)
