"""Reads the parts of a request, each within its limits: the body, its media type, the principal."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Self

import msgspec
from starlette.types import Receive

from agent_memory_log.errors import EventTooLarge, InvalidArgument, TooManyRequests
from agent_memory_log.events.jsonvalue import decode_json
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.service.limits import Limits

RequestHeaders = Mapping[bytes, bytes]
"""The headers of a request by lower-case name. If several have the same name, it has the last."""

AUTHORIZATION = b"authorization"

PRINCIPAL = b"amlog-principal"
"""The header that narrows a token's principal for one request."""

_SMALL = 64 * 1024
"""The most bytes of an unwanted body that are read before the answer, so that the connection can stay open."""


class ClientGone(Exception):
    """The client closed the connection before its request was complete. No answer can be sent."""


class Refusal(Exception):
    """The request is refused for a reason of HTTP.

    Attributes:
        status: The status of the answer.
        headers: Its further headers.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}

    @property
    def is_temporary(self) -> bool:
        """True if the same request can succeed later."""
        return self.status == HTTPStatus.REQUEST_TIMEOUT


class HeldBytes:
    """Counts the bytes of all bodies and answers that are held at the same time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0

    @contextmanager
    def of(self, size: int) -> Generator[None]:
        """Count bytes while the block runs. Raises ``TooManyRequests`` if they are too many."""
        self.add(size)
        try:
            yield
        finally:
            self.count -= size

    def add(self, size: int) -> None:
        """Count further bytes. Raises ``TooManyRequests`` if they are too many."""
        if self.count + size > self._most:
            raise TooManyRequests("the server holds too many large requests and answers", retry_after=1)
        self.count += size


class Body:
    """The body of a request, which arrives in parts.

    Args:
        headers: The headers of the request.
        receive: Returns the next part.
        limits: The limits of size and time.
        all_bytes: Counts the bytes of all bodies and answers. The ``with`` block of the body holds its own.
    """

    def __init__(self, headers: RequestHeaders, receive: Receive, limits: Limits, all_bytes: HeldBytes) -> None:
        self._headers = headers
        self._receive = receive
        self._limits = limits
        self._all_bytes = all_bytes
        self._size = 0
        length = headers.get(b"content-length")
        self._length = None if length is None else int(length)
        self.is_read = self._length == 0 or (self._length is None and b"transfer-encoding" not in headers)
        """True if the whole body was read. A request without a length and without parts has no body."""
        self._is_late = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._all_bytes.count -= self._size
        self._size = 0

    def hold(self, size: int) -> None:
        """Count further bytes until the end of the ``with`` block. Raises ``TooManyRequests``."""
        self._all_bytes.add(size)
        self._size += size

    async def json(self) -> object:
        """Read the body and return its JSON value.

        Raises:
            Refusal: The media type is not JSON, or the body did not arrive in time.
            EventTooLarge: The body is too large.
            InvalidArgument: The body is not JSON.
            TooManyRequests: The bodies of all requests are too large.
        """
        media_type = self._headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media_type != b"application/json":
            raise Refusal(415, "the body must be JSON: send the header Content-Type: application/json")
        if self._length is not None and self._length > self._limits.body_bytes:
            raise self._too_large(self._length)
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while not self.is_read:
                    parts.append(await self._next())
                    size = len(parts[-1])
                    if self._size + size > self._limits.body_bytes:
                        raise self._too_large(self._size + size)
                    self.hold(size)
        except TimeoutError as error:
            self._is_late = True
            seconds = self._limits.body_seconds
            raise Refusal(408, f"the body did not arrive within {seconds:g} seconds: send it again") from error
        if not any(parts):
            raise InvalidArgument("the body is empty: send a JSON object, {} if there are no arguments")
        return decoded(b"".join(parts), "body")

    @property
    def is_small(self) -> bool:
        """True if the body is known to be small."""
        return self._length is not None and self._length <= _SMALL

    async def discard(self) -> None:
        """Read the rest of the body for a short time, unless it is late already."""
        try:
            async with asyncio.timeout(0 if self._is_late else self._limits.linger_seconds):
                while not self.is_read:
                    await self._next()
        except TimeoutError:
            self._is_late = True

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self.is_read = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    def _too_large(self, size: int) -> EventTooLarge:
        limit = self._limits.body_bytes
        return EventTooLarge(
            f"the body has {size:,} bytes or more; the server's limit is {limit:,}: send it in parts",
            size=size,
            limit=limit,
        )


def decoded(text: bytes, name: str) -> object:
    """Return the JSON value of a text. Raises ``InvalidArgument`` with the name of the text."""
    try:
        return decode_json(text)
    except (msgspec.DecodeError, UnicodeError, ValueError) as error:
        raise InvalidArgument(f"the {name} is not JSON: {error}") from error
    except RecursionError as error:
        raise InvalidArgument(f"the {name} has too many levels of nesting") from error


def check_single(headers: RequestHeaders, pairs: Sequence[tuple[bytes, bytes]]) -> None:
    """Check that no header for access occurs twice: a proxy may have looked at another one than we do.

    Raises ``Refusal`` with the name of the header.
    """
    if len(headers) == len(pairs):
        return
    for name in (AUTHORIZATION, PRINCIPAL):
        if sum(other == name for other, _ in pairs) > 1:
            raise Refusal(400, f"the request has several headers {name.decode()}")


def authorization_of(headers: RequestHeaders) -> str | None:
    """Return the header ``Authorization``, or None if there is no such header."""
    value = headers.get(AUTHORIZATION)
    return None if value is None else value.decode("latin-1")


def principal_of(header: bytes) -> Principal:
    """Return the principal of the header ``Amlog-Principal``. Raises ``InvalidArgument`` for another form."""
    try:
        fields = msgspec.json.decode(header, type=_Principal)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError, RecursionError) as error:
        raise InvalidArgument(f"the header Amlog-Principal must be like {_EXAMPLE}: {error}") from error
    return Principal(fields.tenant, fields.scopes)


class _Principal(msgspec.Struct, forbid_unknown_fields=True):
    tenant: str
    scopes: dict[str, str]


_EXAMPLE = '{"tenant": "acme", "scopes": {"user": "42"}}'
