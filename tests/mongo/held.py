"""Holds one request back until the test releases it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from tests.mongo.messages import When
from tests.tcp_proxy import Fault, TcpProxy
from tests.waiting import PATIENCE


class HeldRequest(Fault):
    """A context manager that holds the next matching request until ``release`` is called or the block ends."""

    def __init__(self, proxy: TcpProxy, when: When) -> None:
        super().__init__(when, 1)
        self._released = threading.Event()
        proxy._add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Send the request to the server."""
        self.cancel()
        self._released.set()

    def before_the_server(self) -> None:
        """Wait until the test releases the request."""
        self.happened.set()
        self._released.wait(PATIENCE)
