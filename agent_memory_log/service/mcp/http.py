"""Serves MCP over streamable HTTP, as an endpoint of the server.

Every request is complete in itself, and is carried out with the grant of its own token. There are no sessions, so a
token that was revoked ends no session: its next request fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, cast
from urllib.parse import urlsplit

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest
from starlette.types import Message, Receive, Scope, Send

from agent_memory_log.errors import AccessDenied
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.service.executing import Caller
from agent_memory_log.service.mcp.server import Request, make_server

_CALLER = "amlog.caller"
_WHOLE_BODY = 2**63
"""The limit of a body for the SDK. The server has checked the body already."""


class Admits(Protocol):
    """Admits requests to the server."""

    async def admit(
        self, scope: Scope, receive: Receive, send: Send, answer: Callable[[Caller, object], Awaitable[None]]
    ) -> None:
        """Pass the caller, and the body as JSON, to ``answer``. Errors become answers."""
        ...


class McpEndpoint:
    """The endpoint, an ASGI application for POST requests.

    Args:
        server: Knows the callers and has the limits.
    """

    def __init__(self, server: Admits) -> None:
        self._server = server
        self._mcp = make_server(_caller_of)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def answer(caller: Caller, value: object) -> None:
            _check_origin(Headers(scope=scope))
            body = encode_json(value)
            # A manager holds the sessions of a server. Here each request has its own, because there are no sessions.
            manager = StreamableHTTPSessionManager(
                self._mcp, json_response=True, stateless=True, max_request_body_size=_WHOLE_BODY
            )
            async with manager.run():
                own_scope = {**scope, "headers": _stripped(scope["headers"]), _CALLER: caller}
                await manager.handle_request(own_scope, _replay(body, receive), send)

        scope["amlog"].operation = "mcp"
        await self._server.admit(scope, receive, send, answer)


def _caller_of(request: Request) -> Caller:
    http_request = cast("HttpRequest", request.request)  # as for each request over HTTP
    caller: Caller = http_request.scope[_CALLER]
    return caller


def _stripped(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers without white space around their values, which is no part of them (RFC 9110, section 5.5).

    uvicorn leaves it there, and the SDK compares the values with the body.
    """
    return [(name, value.strip(b" \t")) for name, value in headers]


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body that was read already, and then the later messages."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again


def _check_origin(headers: Headers) -> None:
    """Check that a request of a web page comes from a page of this server, as the specification of MCP demands.

    Raises ``AccessDenied`` for another page.
    """
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise AccessDenied("requests from web pages of other sites are refused")
