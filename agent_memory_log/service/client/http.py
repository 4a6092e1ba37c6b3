"""The asynchronous transport over HTTP: sends requests once, with a pool of connections."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus

from httpx2 import AsyncClient, EventSource, Limits, RequestError, Response, Timeout

from agent_memory_log.service.client.address import Address
from agent_memory_log.service.client.answers import (
    MOST_ITEM_BYTES,
    SILENCE_SECONDS,
    Answer,
    check_size,
    failure_in,
    reported_error,
    unexpected,
)
from agent_memory_log.service.client.attempts import Attempts, broken_stream
from agent_memory_log.service.client.requests import Request, Socket, end_waits, failure_of, url_of

# A small compressed answer could become a far larger one.
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}


class HttpTransport:
    """Sends requests to the server of an address."""

    def __init__(self, address: Address) -> None:
        self._server = address.server
        self._client = AsyncClient(
            headers={**_HEADERS, **address.headers},
            verify=address.tls,
            # A proxy of the environment may pass encrypted data on, but must not see any other.
            trust_env=address.is_encrypted,
            follow_redirects=False,
            limits=Limits(max_connections=None, max_keepalive_connections=20),
        )
        self._lock = threading.Lock()
        self._sockets: set[Socket] = set()
        """The sockets of the open streams."""
        self._has_ended = False

    async def answer(self, request: Request, attempts: Attempts) -> Answer:
        """Send a request once and read the whole answer. Raises ``Failure``."""
        timeout = Timeout(attempts.wait_seconds(), connect=attempts.connect_seconds())
        async with self._response(request, timeout) as response:
            return await self._read(request, response, attempts)

    async def items(self, request: Request, attempts: Attempts) -> AsyncGenerator[str]:
        """Send the request for a stream once, and yield its items as JSON.

        Raises:
            Failure: The stream may be opened again.
            AgentMemoryLogError: The error that the server reports.
        """
        timeout = Timeout(SILENCE_SECONDS, connect=attempts.connect_seconds())
        async with self._response(request, timeout) as response:
            answer = Answer(request.name, response.status_code, response.headers)
            if answer.status != HTTPStatus.OK:
                raise failure_in(await self._read(request, response, attempts))
            if answer.media_type != "text/event-stream":
                raise unexpected(answer)
            with self._can_be_ended(response):
                async for event in EventSource(response, max_event_size=MOST_ITEM_BYTES):
                    if event.event == "end":
                        return
                    if event.event == "error":
                        raise reported_error(event.data, request.name)
                    yield event.data
        raise broken_stream()

    def end_streams(self) -> None:
        """End the open streams, and each that is opened later."""
        with self._lock:
            self._has_ended = True
            for stream in self._sockets:
                end_waits(stream)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

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
        """Send a request, and give the block the head of the answer. Raises ``Failure``."""
        url = url_of(self._server, request.operation)
        try:
            async with self._client.stream(
                "POST", url, content=request.body, headers=request.headers, timeout=timeout
            ) as response:
                yield response
        except RequestError as error:
            raise failure_of(error, request.name) from error

    @contextmanager
    def _can_be_ended(self, response: Response) -> Generator[None]:
        """Let ``end_streams`` end the block's wait for data."""
        stream: Socket = response.extensions["network_stream"].get_extra_info("socket")
        with self._lock:
            if self._has_ended:
                raise broken_stream()
            self._sockets.add(stream)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(stream)
