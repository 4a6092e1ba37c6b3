"""A server that answers each request with the next bytes of a script, as broken servers and proxies do."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from tests.mongo.ports import HOST
from tests.waiting import PATIENCE

Reply = bytes | Callable[[socket.socket], object]
"""The bytes that a server sends for a request, or a function that uses the connection. Then it closes it."""

OPENED = b"[]"
"""The result of the request that opens a store."""


def reply(
    body: bytes,
    status: str = "200 OK",
    content_type: str = "application/json",
    *headers: str,
    length: int | None = None,
) -> bytes:
    """Return the bytes of an answer. ``length`` is its Content-Length, by default the true one."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def problem(status: str, code: str, *headers: str, **attributes: JsonValue) -> bytes:
    """Return the bytes of an answer with a problem document."""
    document = {"status": int(status[:3]), "code": code, "detail": f"detail of {code}", **attributes}
    return reply(encode_json(document), status, "application/problem+json", *headers)


class ScriptedServer:
    """A server for a ``with`` block.

    Args:
        replies: What it does with the first requests.
        opens: Whether it first answers the request that opens a store.
        last: What it does with all further requests. Default: it closes the connection.
        tls: The certificate and key, for a server with TLS.
    """

    def __init__(
        self,
        replies: Iterable[Reply] = (),
        *,
        opens: bool = True,
        last: Reply = b"",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._replies = [*([reply(OPENED)] if opens else []), *replies]
        self._last = last
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://{HOST}:{self.port}"
        self._tls = tls
        self.requests: list[bytes] = []
        """The requests that arrived, each with its head and body."""
        self.arrived = threading.Semaphore(0)
        """Released for each request after the one that opens the store."""
        self._opens = opens
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the requests after the one that opens the store."""
        return [request.partition(b"\r\n\r\n")[2] for request in self.requests[self._opens :]]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(PATIENCE)
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._connections.append(connection)
            request = _read_request(connection)
            if request is None:
                return
            number = len(self.requests)
            self.requests.append(request)
            step = self._replies[number] if number < len(self._replies) else self._last
            if number or not self._opens:
                self.arrived.release()
            if callable(step):
                step(connection)
            else:
                connection.sendall(step)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _read_request(connection: socket.socket) -> bytes | None:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
