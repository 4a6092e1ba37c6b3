"""The endpoint of all operations: from a request of a known caller to the operation's result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.types import Receive, Scope, Send

from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.executing import Caller
from agent_memory_log.service.server.answers import answer_refused, send_json
from agent_memory_log.service.server.gate import Credentials, Gate
from agent_memory_log.service.server.observing import Observation
from agent_memory_log.service.server.requests import (
    PRINCIPAL,
    Body,
    Refusal,
    RequestHeaders,
    authorization_of,
    check_single,
)
from agent_memory_log.service.server.streams import disconnected, send_stream
from agent_memory_log.service.table import OPERATIONS
from agent_memory_log.service.wire import decode_operation


class Operations:
    """The endpoint, an ASGI application. The path is ``/v1/`` and the name of an operation.

    Args:
        gate: Admits the callers, and carries out their operations.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        gate = self._gate
        headers: RequestHeaders = dict(scope["headers"])
        observation: Observation = scope["amlog"]
        with Body(headers, receive, gate.limits, gate.held) as body:
            try:
                name, cls = _operation_of(scope)
                observation.operation, observation.is_stream = name, cls.stream
                credentials = _credentials(scope, headers)
                async with gate.admitted(credentials, observation, is_stream=cls.stream) as grant:
                    operation = decode_operation(cls, await body.json())
                    if cls.stream:
                        disconnect = partial(disconnected, receive)
                        items = gate.items_of(operation, grant, credentials, observation, disconnect)
                        await send_stream(items, send)
                    else:
                        answer = await gate.answer_to(operation, grant, observation)
                        if not operation.writes:  # a write that was carried out is not refused
                            body.hold(len(answer))
                        await send_json(answer, send)
            except (AgentMemoryLogError, Refusal) as error:
                await answer_refused(error, body, scope, receive, send)

    async def admit(
        self, scope: Scope, receive: Receive, send: Send, answer: Callable[[Caller, object], Awaitable[None]]
    ) -> None:
        """Admit a request to another endpoint: pass its caller, and its body as JSON, to ``answer``."""
        gate = self._gate
        headers: RequestHeaders = dict(scope["headers"])
        observation: Observation = scope["amlog"]
        with Body(headers, receive, gate.limits, gate.held) as body:
            try:
                async with gate.admitted(_credentials(scope, headers), observation) as grant:
                    await answer(gate.caller(grant, observation), await body.json())
            except (AgentMemoryLogError, Refusal) as error:
                await answer_refused(error, body, scope, receive, send)


def _credentials(scope: Scope, headers: RequestHeaders) -> Credentials:
    check_single(headers, scope["headers"])
    return Credentials(authorization_of(headers), headers.get(PRINCIPAL))


def _operation_of(scope: Scope) -> tuple[str, type[Operation[Any]]]:
    """Return the name and the class of the operation that a request names."""
    name = scope["path"].removeprefix("/v1/")
    if name not in OPERATIONS:
        raise Refusal(404, "there is no such operation: see /openapi.json")
    if scope["method"] != "POST":
        raise Refusal(405, "use the method POST", {"allow": "POST"})
    return name, OPERATIONS[name]
