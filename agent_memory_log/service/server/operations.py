"""The endpoint of all operations: from a request of a known caller to the operation's result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import Receive, Scope, Send

from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.access.audit import Audit
from agent_memory_log.service.callers import Callers
from agent_memory_log.service.executing import Caller, Executor
from agent_memory_log.service.grants import Grant, check_access
from agent_memory_log.service.limits import Limits, Rates, Slots
from agent_memory_log.service.server.answers import answer_refused, json_answer, send_in_parts
from agent_memory_log.service.server.observing import Observation
from agent_memory_log.service.server.requests import (
    PRINCIPAL,
    Body,
    HeldBytes,
    Refusal,
    RequestHeaders,
    authorization_of,
    check_single,
    principal_of,
)
from agent_memory_log.service.server.streams import results_of, send_stream
from agent_memory_log.service.table import OPERATIONS, needs_principal
from agent_memory_log.service.wire import decode_operation
from agent_memory_log.store import Store


class Operations:
    """The endpoint, an ASGI application. The path is ``/v1/`` and the name of an operation.

    Args:
        store: Carries out the streams.
        executor: Carries out the other operations.
        callers: The callers and their rights.
        limits: The limits for each caller and for all.
        audit: Records the operations that change the store.
        stopping: Set when the server stops.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        callers: Callers,
        limits: Limits,
        audit: Audit,
        stopping: asyncio.Event,
    ) -> None:
        self._store = store
        self._executor = executor
        self._callers = callers
        self._limits = limits
        self._audit = audit
        self._stopping = stopping
        self._held = HeldBytes(limits.held_bytes)
        self._rates = Rates(limits.rate, limits.burst)
        self.requests = Slots("requests", limits.requests, limits.requests_of_caller)
        self.streams = Slots("streams", limits.streams, limits.streams_of_caller)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers: RequestHeaders = dict(scope["headers"])
        observation: Observation = scope["amlog"]
        with Body(headers, receive, self._limits, self._held) as body:
            try:
                name, cls = _operation_of(scope)
                observation.operation, observation.is_stream = name, cls.stream
                async with self._admitted(scope, headers, self.streams if cls.stream else self.requests) as grant:
                    operation = decode_operation(cls, await body.json())
                    if cls.stream:
                        check_access(grant, operation)
                        await self._send_stream(operation, headers, observation, (receive, send))
                    else:
                        with self._audit.recorded(grant, operation, observation.id):
                            result = await self._executor.result_of(operation, grant)
                            is_limited = needs_principal(cls) and not cls.writes
                            answer = json_answer(result, self._limits.answer_bytes if is_limited else None)
                        if not operation.writes:  # a write that was carried out is not refused
                            body.hold(len(answer.body))
                        await send_in_parts(answer, send)
            except (AgentMemoryLogError, Refusal) as error:
                await answer_refused(error, body, scope, receive, send)

    async def admit(
        self, scope: Scope, receive: Receive, send: Send, answer: Callable[[Caller, object], Awaitable[None]]
    ) -> None:
        """Admit a request to another endpoint: pass its caller, and its body as JSON, to ``answer``."""
        headers: RequestHeaders = dict(scope["headers"])
        observation: Observation = scope["amlog"]
        with Body(headers, receive, self._limits, self._held) as body:
            try:
                async with self._admitted(scope, headers, self.requests) as grant:

                    async def execute(operation: Operation[Any]) -> object:
                        with self._audit.recorded(grant, operation, observation.id):
                            return await self._executor.json_of(operation, grant)

                    await answer(Caller(grant, execute), await body.json())
            except (AgentMemoryLogError, Refusal) as error:
                await answer_refused(error, body, scope, receive, send)

    @asynccontextmanager
    async def _admitted(self, scope: Scope, headers: RequestHeaders, slots: Slots) -> AsyncGenerator[Grant]:
        """Yield the grant of a caller that is within its limits. Raises the errors of a caller that is not."""
        check_single(headers, scope["headers"])
        grant = await self._grant_of(headers, scope["amlog"])
        self._rates.take(grant.name)
        with slots.taken_by(grant.name):
            yield grant

    async def _grant_of(self, headers: RequestHeaders, observation: Observation) -> Grant:
        grant = await self._callers.grant_of(authorization_of(headers))
        observation.caller = grant.name
        principal = headers.get(PRINCIPAL)
        return grant if principal is None else grant.narrowed(principal_of(principal))

    async def _send_stream(
        self,
        operation: Operation[Any],
        headers: RequestHeaders,
        observation: Observation,
        connection: tuple[Receive, Send],
    ) -> None:
        async def check() -> None:
            check_access(await self._callers.grant_of(authorization_of(headers)), operation)

        await send_stream(
            type(operation),
            _expected_errors(results_of(self._store, operation), observation),
            connection,
            stopping=self._stopping,
            check=check,
            check_seconds=self._limits.heartbeat_seconds,
        )


def _operation_of(scope: Scope) -> tuple[str, type[Operation[Any]]]:
    """Return the name and the class of the operation that a request names."""
    name = scope["path"].removeprefix("/v1/")
    if name not in OPERATIONS:
        raise Refusal(404, "there is no such operation: see /openapi.json")
    if scope["method"] != "POST":
        raise Refusal(405, "use the method POST", {"allow": "POST"})
    return name, OPERATIONS[name]


async def _expected_errors(results: AsyncGenerator[Any], observation: Observation) -> AsyncGenerator[Any]:
    """Yield the results. An unexpected error is logged, and becomes one that the caller may see."""
    try:
        async for result in results:
            yield result
    except AgentMemoryLogError:
        raise
    except Exception as error:
        raise observation.unexpected(error) from error
    finally:
        await results.aclose()
