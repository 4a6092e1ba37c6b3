"""The asynchronous connection to a server: sends operations, reads streams, and closes."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from http import HTTPStatus

from httpx2 import AsyncClient, EventSource, Limits, RequestError, Response, Timeout

from agent_memory_log.backend_kit import AsyncHandle, ChangeSignal
from agent_memory_log.memory.records.arguments import Operation, Result
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.service.client.address import Address
from agent_memory_log.service.client.answers import (
    MOST_ITEM_BYTES,
    SILENCE_SECONDS,
    Answer,
    check_size,
    failure_in,
    item_in,
    reported_error,
    result_in,
    unexpected,
)
from agent_memory_log.service.client.attempts import Attempts, Failure, broken_stream
from agent_memory_log.service.client.requests import Request, Socket, end_waits, failure_of, request_for


class Connection(AsyncHandle):
    """A handle on a server, with a pool of connections."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address
        self._client = AsyncClient(
            headers=address.headers,
            verify=address.tls,
            # A proxy of the environment may pass encrypted data on, but must not see any other.
            trust_env=address.is_encrypted,
            follow_redirects=False,
            limits=Limits(max_connections=None, max_keepalive_connections=20),
        )
        self._closing = ChangeSignal()
        self._lock = threading.Lock()
        self._users = 1
        """The open handle, and each request and stream in progress. The last one closes the client."""
        self._sockets: set[Socket] = set()
        """The sockets of the open streams."""

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
            for stream in self._sockets:
                end_waits(stream)
        self._closing.notify()
        await self._leave()

    async def _answer(self, request: Request, attempts: Attempts) -> Answer:
        """Send a request once and read the whole answer. Raises ``Failure``."""
        timeout = Timeout(attempts.wait_seconds(), connect=attempts.connect_seconds())
        async with self._response(request, timeout) as response:
            return await self._read(request, response, attempts)

    async def _items(
        self, request: Request, operation: type[Operation[Result]], attempts: Attempts
    ) -> AsyncGenerator[Result]:
        """Send the request for a stream once, and yield its items. Raises ``Failure``."""
        timeout = Timeout(SILENCE_SECONDS, connect=attempts.connect_seconds())
        async with self._response(request, timeout) as response:
            answer = Answer(request.name, response.status_code, response.headers)
            if answer.status != HTTPStatus.OK:
                raise failure_in(await self._read(request, response, attempts))
            if answer.media_type != "text/event-stream":
                raise unexpected(answer)
            with self._ended_by_closing(response):
                async for event in EventSource(response, max_event_size=MOST_ITEM_BYTES):
                    if event.event == "end":
                        return
                    if event.event == "error":
                        raise reported_error(event.data, request.name)
                    yield item_in(event.data, operation, request.name)
        raise broken_stream()

    async def _read(self, request: Request, response: Response, attempts: Attempts) -> Answer:
        parts: list[bytes] = []
        size = 0
        async for part in response.aiter_raw():
            size += len(part)
            check_size(size, request.name)
            attempts.check_time()
            parts.append(part)
        return Answer(request.name, response.status_code, response.headers, b"".join(parts))

    @asynccontextmanager
    async def _response(self, request: Request, timeout: Timeout) -> AsyncGenerator[Response]:
        """Send a request, and give the block the head of the answer. Raises ``StoreClosed`` and ``Failure``."""
        with self._lock:
            self._check_open()
            self._users += 1
        try:
            async with self._client.stream(
                "POST", request.url, content=request.body, headers=request.headers, timeout=timeout
            ) as response:
                yield response
        except RequestError as error:
            raise failure_of(error, request.name) from error
        finally:
            await self._leave()

    @contextmanager
    def _ended_by_closing(self, response: Response) -> Generator[None]:
        """Let ``aclose`` end the block's wait for data."""
        stream: Socket = response.extensions["network_stream"].get_extra_info("socket")
        with self._lock:
            self._check_open()
            self._sockets.add(stream)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(stream)

    async def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            is_last = not self._users
        if is_last:
            await self._client.aclose()
