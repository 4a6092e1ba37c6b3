"""The web application: the endpoint of all operations, and those that describe and watch the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from agent_memory_log.errors import AgentMemoryLogError, StoreUnavailable
from agent_memory_log.memory import MemoryClient
from agent_memory_log.service.access.audit import Audit
from agent_memory_log.service.callers import Callers
from agent_memory_log.service.executing import Executor
from agent_memory_log.service.limits import Limits
from agent_memory_log.service.openapi import document
from agent_memory_log.service.server.answers import json_answer, problem_answer
from agent_memory_log.service.server.gate import Gate
from agent_memory_log.service.server.metrics import CONTENT_TYPE, Metrics
from agent_memory_log.service.server.observing import Observation, Observing
from agent_memory_log.service.server.operations import Operations
from agent_memory_log.service.server.requests import Refusal
from agent_memory_log.store import Store

_READY_SECONDS = 5
"""The time in which the store must answer ``/readyz``."""


class Server(NamedTuple):
    """The web application of a store, and the parts that gRPC shares with it.

    Attributes:
        app: The ASGI application.
        stopping: Set it to end the streams and to make ``/readyz`` fail.
        gate: Admits the callers, and carries out their operations.
        metrics: Counts the answers.
    """

    app: ASGIApp
    stopping: asyncio.Event
    gate: Gate
    metrics: Metrics


def create_app(
    store: Store,
    callers: Callers,
    *,
    memory: MemoryClient | None = None,
    limits: Limits | None = None,
    audit: Audit | None = None,
    local_port: int | None = None,
) -> Server:
    """Return the web application of a store and its memory.

    Args:
        store: The store, opened on the event loop that runs the application.
        callers: The callers and their rights.
        memory: Carries out the operations of memory. Default: a client of ``store`` without further options.
        limits: The limits. Default: those of ``Limits``.
        audit: Records the operations that change the store. Default: in the log.
        local_port: The port of a server without tokens, which refuses requests of web pages. Default: it has tokens.
    """
    limits, stopping = limits or Limits(), asyncio.Event()
    executor = Executor(store, memory or MemoryClient(store), limits)
    gate = Gate(store, executor, callers, limits, audit or Audit(), stopping)
    operations = Operations(gate)
    metrics = Metrics(gate.requests, gate.streams)

    async def healthz(_request: Request) -> Response:
        return json_answer({"status": "ok"})

    async def readyz(_request: Request) -> Response:
        if stopping.is_set():
            raise StoreUnavailable("the server is stopping")
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await store.erasures(runs=())
        except TimeoutError as error:
            raise StoreUnavailable(f"the store did not answer within {_READY_SECONDS} seconds") from error
        return json_answer({"status": "ok"})

    async def show_metrics(_request: Request) -> Response:
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def describe(_request: Request) -> Response:
        return json_answer(document())

    pages = Starlette(
        routes=[
            _page("healthz", healthz),
            _page("readyz", readyz),
            _page("metrics", show_metrics),
            _page("openapi.json", describe),
            *_mcp_routes(operations),
        ],
        exception_handlers={HTTPException: _refused},
    )
    return Server(Observing(operations, pages, metrics, local_port), stopping, gate, metrics)


def _mcp_routes(operations: Operations) -> list[Route]:
    """Return the route of MCP, if the extra ``mcp`` is installed."""
    try:
        from agent_memory_log.service.mcp.http import McpEndpoint  # noqa: PLC0415  # needs the extra mcp
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        return []
    return [Route("/mcp", McpEndpoint(operations), methods=["POST"])]


def _page(name: str, answer: Callable[[Request], Coroutine[Any, Any, Response]]) -> Route:
    async def observed(request: Request) -> Response:
        observation: Observation = request.scope["amlog"]
        observation.operation = name
        try:
            return await answer(request)
        except AgentMemoryLogError as error:
            return problem_answer(error)
        except Exception as error:  # noqa: BLE001  # as for operations
            return problem_answer(observation.unexpected(error))

    return Route(f"/{name}", observed)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # the class of this handler
    allowed = dict(error.headers or {})
    message = f"use the method {allowed.get('Allow')}" if allowed else "there is no such path: see /openapi.json"
    return problem_answer(Refusal(error.status_code, message, allowed))
