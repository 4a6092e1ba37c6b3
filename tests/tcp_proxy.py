"""A proxy between a MongoDB driver and its server that makes, on command, the faults a network makes.

It lives in threads of its own, so that synchronous and asynchronous tests use it alike. It understands plain messages:
TLS does not pass through it, and compressed requests, which drivers send when asked to, pass unnoticed.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from struct import unpack
from types import TracebackType
from typing import Self, TypeVar

from tests.mongo.messages import Request, When, ids, parse_request
from tests.mongo.ports import HOST, port_of, reserve_port
from tests.waiting import PATIENCE

_FaultT = TypeVar("_FaultT", bound="Fault")


class _ConnectionEnds(Exception):
    """One of the two ends closed it, or a fault does."""


class Fault:
    """What is to happen to the next requests that match."""

    def __init__(self, when: When, times: int | None) -> None:
        self.requests: list[Request] = []
        """The requests it was for, in the order in which they came."""
        self.happened = threading.Event()
        """Set when it first happened; to a reply, that is after the server carried the request out."""
        self._when = when
        self._times = times

    def takes(self, request: Request) -> bool:
        """Whether it is for ``request``, which then counts as one of its times."""
        if len(self.requests) == self._times or not self._when(request):
            return False
        self.requests.append(request)
        return True

    def cancel(self) -> None:
        """Let it happen to no further request."""
        self._times = len(self.requests)

    def before_the_server(self) -> None:
        """What happens to the request before the server has it."""

    def before_the_client(self, ended: Callable[[], bool]) -> None:
        """What happens to the reply before the client has it, unless the connection has ``ended``."""


class _DroppedRequest(Fault):
    def before_the_server(self) -> None:
        self.happened.set()
        raise _ConnectionEnds


class _DroppedReply(Fault):
    def before_the_client(self, ended: Callable[[], bool]) -> None:  # noqa: ARG002  # there is nothing to wait for
        self.happened.set()
        raise _ConnectionEnds


class HeldReplies(Fault):
    """Replies kept from the client until the block ends, and with them all that come after on the same connection."""

    def __init__(self, when: When, times: int | None, changed: threading.Condition) -> None:
        super().__init__(when, times)
        self._changed = changed
        self._released = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Pass on what is held, where the client is still there, and hold nothing more."""
        with self._changed:
            self.cancel()
            self._released = True
            self._changed.notify_all()

    def before_the_client(self, ended: Callable[[], bool]) -> None:
        self.happened.set()
        with self._changed:
            self._changed.wait_for(lambda: self._released or ended())


class TcpProxy:
    """A proxy on ``port`` before the server that listens on ``server_port`` of this machine; entering it starts it.

    Give the driver a direct connection (``MongoServer.uri(..., port=proxy.port)``): from a replica set it learns the
    members' own ports, and goes past the proxy.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._reservation = reserve_port()
        self.port = port_of(self._reservation)
        self.seen: list[str] = []
        """The name of every command that came, in order; the driver's own, such as ``hello``, are among them."""
        self.changed = threading.Condition()
        """Held to change, and told of changes to, what the threads share."""
        self._faults: list[Fault] = []
        self._errors: list[Exception] = []
        self._open: set[_Connection] = set()
        self._accepting = False
        self._acceptor: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.accept_connections()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse_connections()
        self.close_connections()
        self._reservation.close()
        if self._errors and error is None:
            raise self._errors[0]

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._open)

    def drop_reply(self, when: When, *, times: int = 1) -> Fault:
        """Let the next matching requests through, wait for the server's reply, and close the connection instead."""
        return self._add(_DroppedReply(when, times))

    def drop_request(self, when: When, *, times: int = 1) -> Fault:
        """Close the connection when the next matching requests come; the server never sees them."""
        return self._add(_DroppedRequest(when, times))

    def hold_replies(self, when: When, *, times: int | None = None) -> HeldReplies:
        """Keep the replies to matching requests (the next ``times``, or all) until they are released."""
        return self._add(HeldReplies(when, times, self.changed))

    def close_connections(self) -> None:
        """Close all connections that there are, and wait until they are closed.

        A driver may learn of it before it uses them again; ``drop_request`` is what it learns of only then.
        """
        with self.changed:
            connections = list(self._open)
        for connection in connections:
            connection.end()
        for connection in connections:
            connection.wait()

    def refuse_connections(self) -> None:
        """Refuse new connections, as a machine does on which no server runs. Those that there are stay."""
        if self._acceptor is None:
            return
        self._accepting = False
        # It waits for a connection, whosever it is.
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self.port), timeout=PATIENCE).close()
        self._acceptor.join()
        self._acceptor = None

    def accept_connections(self) -> None:
        """Accept connections, from now on or again."""
        if self._acceptor is not None:
            return
        listener = socket.create_server((HOST, self.port))
        self._accepting = True
        self._acceptor = threading.Thread(target=self._accept, args=(listener,), name="tcp-proxy-accepts", daemon=True)
        self._acceptor.start()

    def fault_for(self, request: Request) -> Fault | None:
        """The first fault that is for ``request``, which is noted as seen."""
        with self.changed:
            self.seen.append(request.command)
            return next((fault for fault in self._faults if fault.takes(request)), None)

    def closed(self, connection: _Connection, error: Exception | None) -> None:
        """Take note that ``connection`` is closed, and of a mistake that ended it: a test's predicate may raise."""
        with self.changed:
            self._open.discard(connection)
            if error is not None:
                self._errors.append(error)

    def _add(self, fault: _FaultT) -> _FaultT:
        with self.changed:
            self._faults.append(fault)
        return fault

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                client, _ = listener.accept()
                if not self._accepting:
                    client.close()
                    return
                try:
                    server = socket.create_connection((HOST, self._server_port))
                except OSError:
                    client.close()
                    continue
                connection = _Connection(self, client, server)
                with self.changed:
                    self._open.add(connection)
                    connection.start()


class _Connection:
    """A client's connection to the proxy and the proxy's to the server, with a thread for each way."""

    def __init__(self, proxy: TcpProxy, client: socket.socket, server: socket.socket) -> None:
        self._ended = False
        self._proxy = proxy
        self._client = client
        self._server = server
        self._faults: dict[int, Fault] = {}
        self._replies = threading.Thread(target=self._run_replies, name="tcp-proxy-replies", daemon=True)
        self._requests = threading.Thread(target=self._run_requests, name="tcp-proxy-requests", daemon=True)

    def start(self) -> None:
        self._replies.start()
        self._requests.start()

    def end(self) -> None:
        """Let both threads end, whatever they wait for."""
        with self._proxy.changed:
            self._ended = True
            self._proxy.changed.notify_all()
        for end in (self._client, self._server):
            # It may be closed by now.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        """Wait until both threads have ended, and both sockets are closed."""
        self._requests.join()

    def _run_requests(self) -> None:
        mistake: Exception | None = None
        try:
            self._pass_requests()
        except (_ConnectionEnds, OSError):
            pass
        except Exception as error:
            mistake = error
        self.end()
        self._replies.join()
        self._client.close()
        self._server.close()
        self._proxy.closed(self, mistake)

    def _run_replies(self) -> None:
        with contextlib.suppress(_ConnectionEnds, OSError):
            self._pass_replies()
        self.end()

    def _pass_requests(self) -> None:
        while True:
            message = _read_message(self._client)
            request = parse_request(message)
            fault = None if request is None else self._proxy.fault_for(request)
            if fault is not None:
                fault.before_the_server()
                self._faults[ids(message)[0]] = fault
            self._server.sendall(message)

    def _pass_replies(self) -> None:
        while True:
            message = _read_message(self._server)
            fault = self._faults.pop(ids(message)[1], None)
            if fault is not None:
                fault.before_the_client(lambda: self._ended)
            self._client.sendall(message)


def _read_message(end: socket.socket) -> bytes:
    length = _read(end, 4)
    return length + _read(end, unpack("<i", length)[0] - len(length))


def _read(end: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = end.recv(min(size, 1 << 20))
        if not part:
            raise _ConnectionEnds
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
