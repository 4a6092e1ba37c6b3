"""A proxy that cuts each connection after a random number of bytes, as bad networks and restarting balancers do."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.mongo.ports import HOST
from tests.waiting import PATIENCE

_ENDLESS = 1 << 62

_SPARED = 4
"""Each fourth connection is not cut, so that large requests succeed in time."""


class CuttingProxy:
    """A proxy for a server on ``server_port`` of this machine, for a ``with`` block.

    Args:
        server_port: The port of the server.
        seed: The seed of the random numbers.
        request_bytes: A connection is cut after at most so many bytes to the server, which then has not received the
            whole request. Default: requests are not cut.
        answer_bytes: A connection is cut after at most so many bytes from the server. Default: answers are not cut.
    """

    def __init__(self, server_port: int, *, seed: int = 0, request_bytes: int = 0, answer_bytes: int = 0) -> None:
        self.server_port: int | None = server_port
        """The port of the server, or None to close each new connection, as if the server were gone."""
        self._random = random.Random(seed)
        self._most = (request_bytes, answer_bytes)
        self._listener = socket.create_server((HOST, 0), backlog=512)
        self.port = self._listener.getsockname()[1]
        self.cuts = 0
        """The number of connections that were cut."""
        self._connections = 0
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
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
        self.cut_all()

    def cut_all(self) -> None:
        """Cut all open connections now."""
        with self._lock:
            ends = list(self._ends)
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.server_port is None:
                client.close()
                continue
            try:
                server = socket.create_connection((HOST, self.server_port))
            except OSError:  # the server is down
                client.close()
                continue
            self._connections += 1
            is_spared = self._connections % _SPARED == 0
            budgets = [_ENDLESS if is_spared or not most else self._random.randint(0, most) for most in self._most]
            threading.Thread(target=self._run, args=(client, server, *budgets), daemon=True).start()

    def _run(self, client: socket.socket, server: socket.socket, requests: int, answers: int) -> None:
        with client, server:
            with self._lock:
                self._ends |= {client, server}
            back = threading.Thread(target=self._pass, args=(server, client, answers), daemon=True)
            back.start()
            self._pass(client, server, requests)
            back.join()
            with self._lock:
                self._ends -= {client, server}

    def _pass(self, source: socket.socket, target: socket.socket, budget: int) -> None:
        with suppress(OSError):
            while part := source.recv(65536):
                target.sendall(part[:budget])
                budget -= len(part)
                if budget < 0:
                    with self._lock:
                        self.cuts += 1
                    break
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
