"""The answers of the server: JSON values, and problem documents with the headers that belong to their status."""

from __future__ import annotations

import math
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from agent_memory_log.errors import (
    AgentMemoryLogError,
    InvalidArgument,
    StoreUnavailable,
    TooManyRequests,
    Unauthenticated,
)
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.service.problems import MEDIA_TYPE, problem_of
from agent_memory_log.service.server.requests import Body, Refusal

_PART = 256 * 1024
"""The bytes of a large answer that are sent at once."""


def json_answer(value: object) -> Response:
    """Return the answer with a JSON value."""
    return Response(encode_json(value), media_type="application/json")


def problem_answer(error: AgentMemoryLogError | Refusal) -> Response:
    """Return the answer with the problem document of an error."""
    headers: Mapping[str, str] = {}
    if isinstance(error, Refusal):
        kind = StoreUnavailable if error.is_temporary else InvalidArgument
        problem, headers = {**problem_of(kind(str(error))), "status": error.status}, error.headers
    else:
        problem = problem_of(error)
    if isinstance(error, Unauthenticated):
        headers = {"www-authenticate": "Bearer"}
    if isinstance(error, TooManyRequests):
        headers = {"retry-after": str(math.ceil(error.retry_after))}
    return Response(encode_json(problem), int(str(problem["status"])), headers, MEDIA_TYPE)


async def send_json(body: bytes, send: Send) -> None:
    """Send encoded JSON. If it is large, wait between its parts until the client has read most of them."""
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for start in range(0, len(body), _PART):
        part = body[start : start + _PART]
        await send({"type": "http.response.body", "body": part, "more_body": start + _PART < len(body)})


async def answer_refused(
    error: AgentMemoryLogError | Refusal, body: Body, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer with a problem before the whole body was read.

    The connection stays open if the rest of the body is small. Otherwise it is closed, but only when the client had
    time to read the answer: a reset would discard it.
    """
    if body.is_small:
        await body.discard()
    answer = problem_answer(error)
    if body.is_read:
        await answer(scope, receive, send)
        return
    answer.headers["connection"] = "close"

    async def send_then_linger(message: Message) -> None:
        if message["type"] == "http.response.body":
            await send({**message, "more_body": True})
            await body.discard()
            message = {"type": "http.response.body", "body": b""}
        await send(message)

    await answer(scope, receive, send_then_linger)
