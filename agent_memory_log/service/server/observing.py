"""Observes every request: gives it an id, logs and counts its answer, and answers unexpected errors."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_memory_log.errors import AccessDenied, AgentMemoryLogError
from agent_memory_log.events.event import new_event_id
from agent_memory_log.service.server.answers import problem_answer
from agent_memory_log.service.server.logs import LOGGER
from agent_memory_log.service.server.metrics import Metrics
from agent_memory_log.service.server.origins import check_origin
from agent_memory_log.service.server.requests import ClientGone

_CLIENT_GONE = 499
"""The status in logs and metrics if the client closed the connection before the answer. nginx uses it too."""


class Observation:
    """The facts about a request that are logged and counted.

    Attributes:
        id: The id of the request, in the log and in the header ``X-Request-Id`` of the answer.
        operation: The name of the operation, or of another known path.
        caller: The name of the caller, if known.
        is_stream: Tells whether the answer is a stream, whose duration says nothing.
        status: The status of the answer, or 0 before it begins.
    """

    def __init__(self) -> None:
        self.id = new_event_id()
        self.operation = "unknown"
        self.caller = ""
        self.is_stream = False
        self.status = 0

    def unexpected(self, error: Exception) -> AgentMemoryLogError:
        """Log an unexpected error, and return the error that the caller sees instead."""
        LOGGER.error("unexpected error", exc_info=error, extra={"fields": {"request": self.id}})
        return AgentMemoryLogError(f"the server failed: tell its operator the request id {self.id}")

    def record(self, metrics: Metrics, seconds: float) -> None:
        """Log and count the answer."""
        status = self.status or _CLIENT_GONE
        metrics.count(self.operation, status, None if self.is_stream else seconds)
        if LOGGER.isEnabledFor(logging.INFO):
            fields = {
                "operation": self.operation,
                "caller": self.caller,
                "status": status,
                "seconds": round(seconds, 6),
                "request": self.id,
            }
            LOGGER.info("answered", extra={"fields": fields})


class Observing:
    """The outermost application: it passes requests on, and finds the application by the path.

    An application finds the ``Observation`` in the scope, under ``amlog``.

    Args:
        operations: The application for paths that begin with ``/v1/``.
        pages: The application for all other paths.
        metrics: Counts the answers.
        local_port: The port of a server without tokens. See ``check_origin``.
    """

    def __init__(self, operations: ASGIApp, pages: ASGIApp, metrics: Metrics, local_port: int | None) -> None:
        self._operations = operations
        self._pages = pages
        self._metrics = metrics
        self._local_port = local_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        start = time.perf_counter()
        observation = scope["amlog"] = Observation()

        async def send_observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                observation.status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", observation.id.encode())]
            await send(message)

        try:
            if self._local_port is not None:
                check_origin(scope, self._local_port)
            app = self._operations if scope["path"].startswith("/v1/") else self._pages
            await app(scope, receive, send_observed)
        except ClientGone:
            observation.status = _CLIENT_GONE
        except AccessDenied as error:
            await problem_answer(error)(scope, receive, send_observed)
        except Exception as error:
            answer = problem_answer(observation.unexpected(error))
            if observation.status:
                raise  # the answer has begun, so only the end of the connection can show the error
            await answer(scope, receive, send_observed)
        finally:
            observation.record(self._metrics, time.perf_counter() - start)
