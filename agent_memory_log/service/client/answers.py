"""Reads the answers of a server: a result, or an error that names the problem of the address, token or server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypeVar, cast

import msgspec

from agent_memory_log.errors import (
    AgentMemoryLogError,
    DecodeError,
    InvalidArgument,
    StoreClosed,
    StoreUnavailable,
    Unauthenticated,
)
from agent_memory_log.events.jsonvalue import decode_json
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.client.address import TOKEN_VARIABLE
from agent_memory_log.service.client.attempts import Failure
from agent_memory_log.service.problems import MEDIA_TYPE, error_of
from agent_memory_log.service.wire import decode_result

_Result = TypeVar("_Result")

MOST_BYTES = 256 * 1024 * 1024
"""The largest answer. A server sends its pages and results in far smaller ones."""

MOST_ITEM_BYTES = 1024 * 1024
"""The largest item of a stream. Heads, flaws and errors are far smaller."""

SILENCE_SECONDS = 60.0
"""The time without a sign of life after which a stream is opened again. A server sends one every 15 seconds."""

_JSON = "application/json"
_TEMPORARY = frozenset({408, 429, 502, 503, 504})
_MOST_SHOWN = 200

_SECONDS = re.compile("[0-9]{1,6}")


class Answer(msgspec.Struct, frozen=True):
    """An answer of a server.

    Attributes:
        server: The address and the name of the operation, for messages.
        status: The HTTP status.
        headers: The headers, with names in lower case.
        body: The body.
    """

    server: str
    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def media_type(self) -> str:
        """The type of the body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_size(size: int, server: str) -> None:
    """Raise ``StoreUnavailable`` if the body of an answer is too large."""
    if size > MOST_BYTES:
        raise StoreUnavailable(f"{server}: the answer has more than {MOST_BYTES:,} bytes, so it was not read")


def result_in(answer: Answer, operation: type[Operation[_Result]]) -> _Result:
    """Return the result in an answer.

    Raises:
        Failure: The server cannot answer now.
        AgentMemoryLogError: The error that the server reports, or ``StoreUnavailable`` for any other answer.
    """
    if answer.status != HTTPStatus.OK:
        raise failure_in(answer)
    if answer.media_type != _JSON or answer.headers.get("content-encoding", "identity") != "identity":
        raise unexpected(answer)
    return item_in(answer.body, operation, answer.server)


def item_in(body: bytes | str, operation: type[Operation[_Result]], server: str) -> _Result:
    """Return the result, or the item of a stream, that a JSON text holds. Raises ``StoreUnavailable``."""
    try:
        return decode_result(operation, _decoded(body))
    except (InvalidArgument, DecodeError, ValueError) as error:
        raise StoreUnavailable(
            f"{server}: the answer is not what this release expects: {error}; compare the releases of client and server"
        ) from error


def failure_in(answer: Answer) -> Exception:
    """Return the error in an answer that has no result: a ``Failure`` if the request may succeed later."""
    is_problem = answer.media_type == MEDIA_TYPE and answer.status != HTTPStatus.NOT_FOUND  # no operation is not found
    error = problem_in(answer.body, answer.server) if is_problem else None
    if answer.status not in _TEMPORARY:
        return error or unexpected(answer)
    if not isinstance(error, StoreUnavailable):
        error = StoreUnavailable(error or f"the server answered {_status(answer.status)}")
    wait = _retry_after(answer.headers)
    return Failure(error, seconds=wait, was_sent=answer.status != HTTPStatus.TOO_MANY_REQUESTS)


def problem_in(body: bytes | str, server: str) -> AgentMemoryLogError:
    """Return the error of a problem document."""
    try:
        problem = _decoded(body)
    except ValueError as cause:
        return StoreUnavailable(f"{server}: the server reported an error that is not JSON: {cause}")
    if not isinstance(problem, dict):
        return StoreUnavailable(f"{server}: the server reported an error without a code: {_excerpt(problem)}")
    document = cast("dict[str, Any]", problem)
    error = error_of(document)
    if isinstance(error, Unauthenticated):
        return Unauthenticated(
            f"{server}: {error}; the client reads it from {TOKEN_VARIABLE}, or from the variable that token_env names"
        )
    if error is None or isinstance(error, StoreClosed):  # the server's handle was closed, and not this one
        code, detail = _excerpt(document.get("code")), _excerpt(document.get("detail"))
        return StoreUnavailable(f"{server}: the server reported the error {code}: {detail}")
    return error


def reported_error(document: str, server: str) -> Exception:
    """Return the error that a stream reports: a ``Failure`` if the stream may be opened again."""
    try:
        status = cast("Any", _decoded(document))["status"]
    except (ValueError, TypeError, KeyError):
        status = None
    if not isinstance(status, int):
        status = HTTPStatus.INTERNAL_SERVER_ERROR
    return failure_in(Answer(server, status, {"content-type": MEDIA_TYPE}, document.encode()))


def unexpected(answer: Answer) -> AgentMemoryLogError:
    """Return the error for an answer that no server of this library sends."""
    status, kind = answer.status, answer.media_type or "no content type"
    if "content-encoding" in answer.headers:
        kind += f" in the encoding {_excerpt(answer.headers['content-encoding'])}"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        target = _excerpt(answer.headers.get("location"))
        advice = f"it redirects to {target}, where the token is not sent: write the final address into the URL"
    elif status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return Unauthenticated(
            f"{answer.server}: something before the server refused the request ({_status(status)}, {kind}): check the "
            "token and the address"
        )
    else:
        advice = "this is not the address of a server of agent-memory-log: check host, port and path of the URL"
    return StoreUnavailable(f"{answer.server}: the answer is {_status(status)} with {kind}; {advice}")


def _decoded(body: bytes | str) -> object:
    """Return the JSON value of a text. Raises ``ValueError``."""
    try:
        return decode_json(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("it nests too deep") from error


def _excerpt(value: object) -> str:
    """Return what a server sent, for a message."""
    return repr(str(value)[:_MOST_SHOWN])


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of ``Retry-After``, or None if it is missing or a date."""
    text = headers.get("retry-after", "")
    return float(text) if _SECONDS.fullmatch(text) else None
