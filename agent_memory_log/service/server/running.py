"""Runs the application in a process: the connections with their limits, and the graceful stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from agent_memory_log.service.limits import Limits
from agent_memory_log.service.server.answers import problem_answer
from agent_memory_log.service.server.app import Server
from agent_memory_log.service.server.requests import Refusal

_CLOSE_SECONDS = 1
"""The time in which connections end after the accepted requests are answered."""


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the function that makes the fastest event loop of this machine, or None for that of ``asyncio``."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = uvicorn.Config(
        "", loop="auto", log_config=None
    ).get_loop_factory()
    return factory


async def serve(
    server: Server,
    listener: socket.socket,
    *,
    limits: Limits,
    tls: tuple[Path, Path] | None = None,
    on_ready: Callable[[], object] = lambda: None,
) -> None:
    """Serve an application until its ``stopping`` is set.

    The server then refuses new requests, ends the streams, and answers the accepted requests. Until they are answered,
    ``/readyz`` says that the server stops.

    Args:
        server: The application of ``create_app``.
        listener: The socket that listens. It is closed at the end.
        limits: The limits of connections, and the time for the stop.
        tls: The files of the certificate and its private key. Default: no TLS.
        on_ready: Called when the server accepts requests.

    Raises:
        OSError: The certificate or the key cannot be read.
    """
    certificate, key = tls or (None, None)
    config = uvicorn.Config(
        server.app,
        http=partial(_Connection, limits=limits),  # type: ignore[arg-type]  # it is only called, as a class is
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )
    config.load()
    process = _Process(config, on_ready)
    stopping = asyncio.ensure_future(process.stop_after(server, limits.stop_seconds))
    try:
        await process.serve(sockets=[listener])
    finally:
        stopping.cancel()


class _Process(uvicorn.Server):
    """A server that leaves signals to the command, and says when it is ready."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def stop_after(self, server: Server, seconds: float) -> None:
        await server.stopping.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await server.gate.empty()
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Connection(HttpToolsProtocol):
    """A connection with limits for the head of a request and for clients that do not read their answers."""

    def __init__(self, *arguments: Any, limits: Limits, **options: Any) -> None:  # noqa: ANN401  # those of uvicorn
        super().__init__(*arguments, **options)
        self._limits = limits
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.abort()
        else:
            self._head_timer = self.loop.call_later(self._limits.header_seconds, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._head_timer)
        _cancel(self._read_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_timer is None:
            return
        self._head_bytes += len(data)
        if self._head_bytes > self._limits.header_bytes and not self.transport.is_closing():
            self._refuse(431, f"the head of the request has more than {self._limits.header_bytes:,} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.header_seconds, self.transport.abort)

    def on_headers_complete(self) -> None:
        _cancel(self._head_timer)
        self._head_timer = None
        self._head_bytes = 0
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # the text of uvicorn is no problem document
        self._refuse(400, "the request is not valid HTTP/1.1")

    def _refuse(self, status: int, message: str) -> None:
        """Answer a request that never reaches the application, and close the connection."""
        answer = problem_answer(Refusal(status, message, {"connection": "close"}))
        lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(None)

    def resume_writing(self) -> None:
        _cancel(self._read_timer)
        super().resume_writing()

    def _watch_reader(self, unread: int | None) -> None:
        """Close the connection if the client has read nothing since ``unread`` bytes waited for it."""
        waiting = self.transport.get_write_buffer_size()
        if unread is not None and waiting >= unread:
            self.transport.abort()
        else:
            self._read_timer = self.loop.call_later(self._limits.write_seconds, self._watch_reader, waiting)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
