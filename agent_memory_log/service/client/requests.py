"""The requests to a server, the failures of a request that has no answer, and the end of a wait for one."""

from __future__ import annotations

import json
import os
import socket
import ssl
from asyncio.trsock import TransportSocket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import httpx2
import msgspec

from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.service.client.address import Address
from agent_memory_log.service.client.attempts import Failure
from agent_memory_log.service.table import NAMES
from agent_memory_log.service.wire import encode_operation

_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_PERMANENT = (httpx2.SSEError, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)

Socket = socket.socket | TransportSocket
"""The socket of a connection, which ``asyncio`` wraps."""


class Request(msgspec.Struct, frozen=True):
    """A request, which may be sent several times.

    Attributes:
        name: The server and the operation, for messages.
        operation: The operation.
        headers: The headers that this request has beside those of the address.
        body: The operation's arguments as JSON.
    """

    name: str
    operation: type[Operation[Any]]
    headers: Mapping[str, str]
    body: bytes


def request_for(address: Address, operation: Operation[Any], principal: Principal | None = None) -> Request:
    """Return the request for an operation. ``principal`` narrows that of the token.

    Raises ``InvalidArgument`` if the operation has a value that cannot be sent to a server.
    """
    name = NAMES[type(operation)]
    headers: dict[str, str] = {}
    if principal is not None:
        headers["Amlog-Principal"] = json.dumps({"tenant": principal.tenant, "scopes": dict(principal.scopes)})
    body = encode_json(encode_operation(operation))
    return Request(f"{address.server}: {name}", type(operation), headers, body)


@lru_cache(1_000)
def url_of(server: str, operation: type[Operation[Any]]) -> httpx2.URL:
    """Return the URL of an operation. It is kept, because httpx2 reads a text for each request."""
    return httpx2.URL(f"{server}/v1/{NAMES[operation]}")


def failure_of(error: httpx2.RequestError, name: str) -> Exception:
    """Return the error of a request that has no answer: a ``Failure`` if another attempt may succeed."""
    causes = list(_causes(error))
    reasons = [reason for cause in reversed(causes) if (reason := _reason(cause))]
    reason = next(iter(reasons), "") or str(error) or type(error).__name__
    if isinstance(error, _PERMANENT):
        return StoreUnavailable(f"{name}: {reason}")
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return StoreUnavailable(
            f"{name}: the certificate of the server is not accepted: {reason}; for an authority of your own, add "
            "?ca=FILE to the URL"
        )
    if isinstance(error, _NEVER_SENT):
        is_refused = isinstance(error, httpx2.ConnectError)
        has_no_tls = any(getattr(cause, "reason", "") == "WRONG_VERSION_NUMBER" for cause in causes)
        advice = "the server has no TLS: use http:" if has_no_tls else "check host and port, and that the server runs"
        return Failure(StoreUnavailable(f"no connection: {reason}; {advice}"), was_sent=False, is_refused=is_refused)
    kind = "no answer in time" if isinstance(error, httpx2.TimeoutException) else "the connection broke"
    return Failure(StoreUnavailable(f"{kind}: {reason}"))


def end_waits(connection: Socket) -> None:
    """End every wait for data of a connection, in any thread. The connection is not closed."""
    # A thread that waits does not notice that its socket is closed. The method of an SSLSocket also drops its TLS
    # state, which that thread uses.
    with suppress(OSError):
        if isinstance(connection, socket.socket):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
        else:
            connection.shutdown(socket.SHUT_RDWR)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _reason(cause: BaseException) -> str:
    """Return the system's words for an error, or ``""``."""
    if not isinstance(cause, OSError):
        return ""
    # asyncio puts words of its own into strerror. Errors of TLS and of names have numbers of their own.
    is_of_system = type(cause) is OSError or isinstance(cause, ConnectionError)
    return os.strerror(cause.errno) if is_of_system and cause.errno else cause.strerror or ""
