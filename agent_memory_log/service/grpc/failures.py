"""The answers of a gRPC server as those of the HTTP server, and what its clients share: options and certificates."""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from typing import Protocol, cast

import grpc
import msgspec

from agent_memory_log.errors import EventTooLarge, InvalidArgument, StoreUnavailable, Unauthenticated
from agent_memory_log.service.client.address import Address
from agent_memory_log.service.client.answers import MOST_BYTES, Answer
from agent_memory_log.service.client.attempts import Failure
from agent_memory_log.service.client.requests import Request
from agent_memory_log.service.grpc.messages import PROBLEM, Metadata, unpack
from agent_memory_log.service.problems import MEDIA_TYPE

Cancelled = asyncio.CancelledError
"""The exception of ``grpc.aio`` for a call that this side cancelled."""


class Cancellable(Protocol):
    """A call of ``grpc`` or ``grpc.aio``."""

    def cancel(self) -> bool:
        """End the call."""
        ...


_TOO_LARGE = re.compile(r"SERVER: Received message larger than max \((\d+) vs\. (\d+)\)")
_NO_CONNECTION = "failed to connect"
_BAD_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
"""Parts of the texts of gRPC, which has no other sign of these errors."""

_TRANSPORT = frozenset({
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN,
})  # fmt: skip
"""The codes for broken connections and busy servers, if there is no problem document."""


class _Status(Protocol):
    """The part of an ``RpcError`` that says what happened. Those of calls have it, with and without ``await``."""

    def code(self) -> grpc.StatusCode: ...

    def details(self) -> str | None: ...

    def trailing_metadata(self) -> Metadata | None: ...


def channel_options(address: Address) -> list[tuple[str, int]]:
    """Return the options of a channel."""
    return [
        ("grpc.max_receive_message_length", MOST_BYTES),
        ("grpc.max_send_message_length", -1),  # the server has a limit
        ("grpc.max_metadata_size", 64 * 1024),
        ("grpc.absolute_max_metadata_size", 64 * 1024),
        ("grpc.per_message_decompression", 0),  # a small compressed answer could become a far larger one
        ("grpc.use_local_subchannel_pool", 1),  # each handle has its own connection
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 5_000),  # also the time for a connection
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.keepalive_time_ms", 15_000),
        ("grpc.keepalive_timeout_ms", 15_000),
        # A proxy of the environment may pass encrypted data on, but must not see any other.
        ("grpc.enable_http_proxy", int(address.is_encrypted)),
    ]


def credentials_of(address: Address) -> grpc.ChannelCredentials:
    """Return what checks the certificate of the server: the authorities of HTTP, or those of gRPC if it knows none."""
    authorities = address.tls.get_ca_certs(binary_form=True)
    pem = "".join(map(ssl.DER_cert_to_PEM_cert, authorities)).encode()
    return grpc.ssl_channel_credentials(pem or None)


def answer_of(message: bytes, request: Request) -> Answer:
    """Return the answer in a message. Raises ``StoreUnavailable`` for a message of another form."""
    try:
        return Answer(request.name, 200, {"content-type": "application/json"}, unpack(message))
    except InvalidArgument as error:
        raise StoreUnavailable(f"{request.name}: the answer is not what this release expects: {error}") from error


def problem_answer(error: grpc.RpcError, request: Request) -> Answer:
    """Return the answer with the problem document of an error.

    Raises:
        Failure: There is no document, because the connection broke or the server is busy.
        EventTooLarge: The request is larger than the server allows.
        StoreUnavailable: The error is not one of this library's server, or its certificate is not accepted.
    """
    status = cast("_Status", error)
    document = dict(status.trailing_metadata() or ()).get(PROBLEM)
    if document is None:
        raise _error_of(status.code(), status.details() or "", request) from error
    body = document.encode() if isinstance(document, str) else document
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as cause:
        raise StoreUnavailable(f"{request.name}: the server reported an error of another form: {cause}") from error
    headers = {"content-type": MEDIA_TYPE}
    if problem.retry_after is not None:
        headers["retry-after"] = str(math.ceil(problem.retry_after))
    return Answer(request.name, problem.status, headers, body)


class _Problem(msgspec.Struct):
    status: int
    retry_after: float | None = None


def _error_of(code: grpc.StatusCode, detail: str, request: Request) -> Exception:
    """Return the error of a call that ended without a problem document."""
    too_large = _TOO_LARGE.fullmatch(detail)
    if too_large:
        size, limit = map(int, too_large.groups())
        text = f"the message has {size:,} bytes; the server's limit is {limit:,}: send it in parts"
        return EventTooLarge(text, size=size, limit=limit)
    if _BAD_CERTIFICATE in detail:
        return StoreUnavailable(
            f"{request.name}: the certificate of the server is not accepted: {detail}; for an authority of your own, "
            "add ?ca=FILE to the URL"
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Failure(StoreUnavailable("no answer in time"))
    if code in _TRANSPORT and not detail.startswith("CLIENT: "):
        is_refused = detail.startswith(_NO_CONNECTION)
        kind = "no connection" if is_refused else "the connection broke"
        return Failure(StoreUnavailable(f"{kind}: {detail}"), was_sent=not is_refused, is_refused=is_refused)
    if code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
        return Unauthenticated(
            f"{request.name}: something before the server refused the request ({code.name}): check the token and the "
            "address"
        )
    return StoreUnavailable(
        f"{request.name}: the answer is {code.name}: {detail[:200]!r}; check that the option 'grpc' names a server of "
        "agent-memory-log, and compare the releases of client and server"
    )
