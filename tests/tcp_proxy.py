"""A proxy between a MongoDB driver and its server that simulates faults of a network.

The proxy has its own threads, so that synchronous and asynchronous tests can use it. It does not support TLS.
Compressed requests pass without a fault, because the proxy cannot read them.
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
    """The client, the server or a fault ends the connection."""


class Fault:
    """A fault for the next matching requests."""

    def __init__(self, when: When, times: int | None) -> None:
        self.requests: list[Request] = []
        """The requests with this fault, in the order of their arrival."""
        self.happened = threading.Event()
        """Set when the fault first happened. For a reply, the server has then executed the request."""
        self._when = when
        self._times = times

    def takes(self, request: Request) -> bool:
        """Return whether the fault applies to ``request``, and count the request if it does."""
        if len(self.requests) == self._times or not self._when(request):
            return False
        self.requests.append(request)
        return True

    def cancel(self) -> None:
        """Stop the fault for all further requests."""
        self._times = len(self.requests)

    def before_the_server(self) -> None:
        """Handle the request before the server receives it."""

    def before_the_client(self, ended: Callable[[], bool]) -> None:
        """Handle the reply before the client receives it. Return at the latest when ``ended()`` is true."""


class _DroppedRequest(Fault):
    def before_the_server(self) -> None:
        self.happened.set()
        raise _ConnectionEnds


class _DroppedReply(Fault):
    def before_the_client(self, ended: Callable[[], bool]) -> None:  # noqa: ARG002  # this fault does not wait
        self.happened.set()
        raise _ConnectionEnds


class HeldReplies(Fault):
    """Replies that the proxy holds back until the block ends, with all later replies of the same connection."""

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
        """Send the held replies to clients that are still connected, and hold no more replies."""
        with self._changed:
            self.cancel()
            self._released = True
            self._changed.notify_all()

    def before_the_client(self, ended: Callable[[], bool]) -> None:
        self.happened.set()
        with self._changed:
            self._changed.wait_for(lambda: self._released or ended())


class TcpProxy:
    """A proxy on ``port`` for the server on ``server_port`` of this machine. Entering the context starts it.

    Give the driver a direct connection (``MongoServer.uri(..., port=proxy.port)``). Otherwise, the driver learns the
    ports of the replica set's members and connects to them without the proxy.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._reservation = reserve_port()
        self.port = port_of(self._reservation)
        self.seen: list[str] = []
        """The names of all received commands, in order. The driver's own commands, such as ``hello``, are included."""
        self.changed = threading.Condition()
        """The condition that protects the shared state of the threads. It is notified of changes."""
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
        """The number of open connections."""
        return len(self._open)

    def drop_reply(self, when: When, *, times: int = 1) -> Fault:
        """Pass the next matching requests to the server, but close the connection instead of sending the reply."""
        return self._add(_DroppedReply(when, times))

    def drop_request(self, when: When, *, times: int = 1) -> Fault:
        """Close the connection when the next matching requests arrive. The server does not receive them."""
        return self._add(_DroppedRequest(when, times))

    def hold_replies(self, when: When, *, times: int | None = None) -> HeldReplies:
        """Hold the replies to the next ``times`` matching requests, or to all of them, until they are released."""
        return self._add(HeldReplies(when, times, self.changed))

    def close_connections(self) -> None:
        """Close all open connections, and wait until they are closed.

        A driver may notice this before its next request. With ``drop_request``, it notices only at its next request.
        """
        with self.changed:
            connections = list(self._open)
        for connection in connections:
            connection.end()
        for connection in connections:
            connection.wait()

    def refuse_connections(self) -> None:
        """Refuse new connections, like a machine without a server. Open connections stay open."""
        if self._acceptor is None:
            return
        self._accepting = False
        # This connection ends the thread's wait for the next client.
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self.port), timeout=PATIENCE).close()
        self._acceptor.join()
        self._acceptor = None

    def accept_connections(self) -> None:
        """Accept new connections, after the start or after ``refuse_connections``."""
        if self._acceptor is not None:
            return
        listener = socket.create_server((HOST, self.port))
        self._accepting = True
        self._acceptor = threading.Thread(target=self._accept, args=(listener,), name="tcp-proxy-accepts", daemon=True)
        self._acceptor.start()

    def fault_for(self, request: Request) -> Fault | None:
        """Record the command of ``request``. Return the first fault that applies to it."""
        with self.changed:
            self.seen.append(request.command)
            return next((fault for fault in self._faults if fault.takes(request)), None)

    def closed(self, connection: _Connection, error: Exception | None) -> None:
        """Record that ``connection`` is closed, and the error that ended it, such as an error of a test's predicate."""
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
    """A client's connection to the proxy and the proxy's connection to the server, with a thread for each direction."""

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
        """Interrupt the waits of both threads, so that they end."""
        with self._proxy.changed:
            self._ended = True
            self._proxy.changed.notify_all()
        for end in (self._client, self._server):
            # The socket may already be closed.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        """Wait until both threads have ended and both sockets are closed."""
        self._requests.join()

    def _run_requests(self) -> None:
        failure: Exception | None = None
        try:
            self._pass_requests()
        except (_ConnectionEnds, OSError):
            pass
        except Exception as error:
            failure = error
        self.end()
        self._replies.join()
        self._client.close()
        self._server.close()
        self._proxy.closed(self, failure)

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
