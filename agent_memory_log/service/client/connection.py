"""The asynchronous connection to a server: sends operations, reads streams, and closes."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from agent_memory_log.backend_kit import AsyncHandle, ChangeSignal
from agent_memory_log.memory.records.arguments import Operation, Result
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.service.client.address import Address
from agent_memory_log.service.client.answers import Answer, item_in, result_in
from agent_memory_log.service.client.attempts import Attempts, Failure, broken_stream
from agent_memory_log.service.client.http import HttpTransport
from agent_memory_log.service.client.requests import Request, request_for

if TYPE_CHECKING:
    from agent_memory_log.service.grpc.client import GrpcTransport


class Connection(AsyncHandle):
    """A handle on a server."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address
        self._transport = _transport_to(address)
        self._closing = ChangeSignal()
        self._lock = threading.Lock()
        self._users = 1
        """The open handle, and each request and stream in progress. The last one closes the transport."""

    async def call(
        self,
        operation: Operation[Result],
        *,
        principal: Principal | None = None,
        is_opening: bool = False,
        endless: bool = False,
    ) -> Result:
        """Send an operation, again and again if necessary, and return its result.

        Args:
            operation: An operation that is not a stream. The server checks its arguments.
            principal: The principal whose memory the operation uses, or None for that of the token.
            is_opening: Whether this is the handle's first call, which gives up when nobody accepts the connection.
            endless: Whether to wait for the server without a time limit.

        Raises:
            StoreClosed: The handle was closed.
            StoreUnavailable: The server did not answer in time, or as no server of this library does.
            AgentMemoryLogError: The error that the server reports.
        """
        self._check_open()
        request = request_for(self._address, operation, principal)
        attempts = Attempts(request.name, self._address.seconds, writes=operation.writes, endless=endless)
        while True:
            try:
                return result_in(await self._answer(request, attempts), type(operation))
            except Failure as failure:
                if is_opening and failure.is_refused:
                    raise attempts.error_of(failure) from failure.__cause__
                rest = attempts.rest_after(failure)
            await self._closing.wait_async(0, rest)

    async def stream(self, operation: Operation[Result], *, endless: bool = False) -> AsyncGenerator[Result]:
        """Yield the items of a stream.

        Args:
            operation: The operation, which is a stream.
            endless: Whether to open the stream again each time it breaks. Otherwise it is opened again only until the
                first item.

        Raises:
            StoreClosed: The handle was closed.
            StoreUnavailable: See ``call``. Or the stream broke after an item.
            AgentMemoryLogError: The error that the server reports.
        """
        self._check_open()
        request = request_for(self._address, operation)
        attempts = Attempts(request.name, self._address.seconds, endless=endless)
        has_begun = False
        while True:
            try:
                async with aclosing(self._items(request, type(operation), attempts)) as items:
                    async for item in items:
                        attempts.succeeded()
                        has_begun = True
                        yield item
                if not endless:
                    return
                raise broken_stream()  # handled as any other break
            except Failure as failure:
                self._check_open()
                if has_begun and not endless:
                    raise attempts.error_of(failure) from failure.__cause__
                rest = attempts.rest_after(failure)
            await self._closing.wait_async(0, rest)

    async def aclose(self) -> None:
        """Close the handle. Streams end at once, and requests in progress end as usual. A second call does nothing."""
        self._check_loop()
        with self._lock:
            if not self._mark_closed():
                return
        self._transport.end_streams()
        self._closing.notify()
        await self._leave()

    async def _answer(self, request: Request, attempts: Attempts) -> Answer:
        """Send a request once and read the whole answer. Raises ``StoreClosed`` and ``Failure``."""
        async with self._used():
            return await self._transport.answer(request, attempts)

    async def _items(
        self, request: Request, operation: type[Operation[Result]], attempts: Attempts
    ) -> AsyncGenerator[Result]:
        """Send the request for a stream once, and yield its items. Raises ``StoreClosed`` and ``Failure``."""
        async with self._used(), aclosing(self._transport.items(request, attempts)) as items:
            async for item in items:
                yield item_in(item, operation, request.name)

    @asynccontextmanager
    async def _used(self) -> AsyncGenerator[None]:
        """Keep the transport open while the block runs. Raises ``StoreClosed``."""
        with self._lock:
            self._check_open()
            self._users += 1
        try:
            yield
        finally:
            await self._leave()

    async def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            is_last = not self._users
        if is_last:
            await self._transport.aclose()


def _transport_to(address: Address) -> HttpTransport | GrpcTransport:
    """Return the transport over gRPC if the address names a target and the extra is installed, else over HTTP."""
    if address.grpc_target:
        try:
            from agent_memory_log.service.grpc.client import GrpcTransport  # noqa: PLC0415  # needs the extra grpc
        except ModuleNotFoundError as error:
            if error.name != "grpc":
                raise
        else:
            return GrpcTransport(address)
    return HttpTransport(address)
