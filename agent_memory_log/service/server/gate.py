"""Admits callers within their limits, and carries out their operations: the same for HTTP, MCP and gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument, StoreUnavailable
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.access.audit import Audit
from agent_memory_log.service.callers import Callers
from agent_memory_log.service.executing import Caller, Executor
from agent_memory_log.service.grants import Grant, check_access
from agent_memory_log.service.limits import Limits, Rates, Slots
from agent_memory_log.service.server.observing import Observation
from agent_memory_log.service.server.requests import HeldBytes, principal_of
from agent_memory_log.service.server.streams import results_of, watched
from agent_memory_log.service.table import needs_principal
from agent_memory_log.store import Store


class Credentials(msgspec.Struct, frozen=True):
    """The parts of a request that name its caller: the headers ``Authorization`` and ``Amlog-Principal``, or None."""

    authorization: str | None
    principal: bytes | None


class Gate:
    """Knows the callers, and holds the limits for each of them and for all.

    Args:
        store: Carries out the streams.
        executor: Carries out the other operations.
        callers: The callers and their rights.
        limits: The limits.
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
        self._audit = audit
        self._stopping = stopping
        self._rates = Rates(limits.rate, limits.burst)
        self.limits = limits
        self.held = HeldBytes(limits.held_bytes)
        self.requests = Slots("requests", limits.requests, limits.requests_of_caller)
        self.streams = Slots("streams", limits.streams, limits.streams_of_caller)

    @asynccontextmanager
    async def admitted(
        self, credentials: Credentials, observation: Observation, *, is_stream: bool = False
    ) -> AsyncGenerator[Grant]:
        """Yield the grant of a caller that is within its limits. Raises the errors of a caller that is not.

        Raises ``StoreUnavailable`` if the server stops.
        """
        if self._stopping.is_set():
            raise StoreUnavailable("the server is stopping: send the request again")
        grant = await self._callers.grant_of(credentials.authorization)
        observation.caller = grant.name
        if credentials.principal is not None:
            grant = grant.narrowed(principal_of(credentials.principal))
        self._rates.take(grant.name)
        with (self.streams if is_stream else self.requests).taken_by(grant.name):
            yield grant

    async def empty(self) -> None:
        """Wait until no admitted request and no stream is in progress."""
        await self.requests.empty.wait()
        await self.streams.empty.wait()

    async def answer_to(self, operation: Operation[Any], grant: Grant, observation: Observation) -> bytes:
        """Carry out an operation, and return its result as JSON. Raises the errors of ``Executor.result_of``."""
        with self._audit.recorded(grant, operation, observation.id):
            answer = encode_json(await self._executor.result_of(operation, grant))
            most = self.limits.answer_bytes
            if needs_principal(type(operation)) and not operation.writes and len(answer) > most:
                raise InvalidArgument(
                    f"the answer has {len(answer):,} bytes; the server's limit is {most:,}: ask for less"
                )
        return answer

    def caller(self, grant: Grant, observation: Observation) -> Caller:
        """Return a caller with a grant, whose changes are recorded."""

        async def execute(operation: Operation[Any]) -> object:
            with self._audit.recorded(grant, operation, observation.id):
                return await self._executor.json_of(operation, grant)

        return Caller(grant, execute)

    def items_of(
        self,
        operation: Operation[Any],
        grant: Grant,
        credentials: Credentials,
        observation: Observation,
        *interrupts: Callable[[], Coroutine[Any, Any, object]],
    ) -> AsyncGenerator[bytes | None]:
        """Return the items of a stream as JSON, and None as a sign of life. See ``watched``.

        Args:
            operation: The operation, which is a stream.
            grant: The rights of the caller at the beginning.
            credentials: Give the rights of the caller later.
            observation: Logs unexpected errors.
            interrupts: When the wait of one of them ends, the stream is interrupted.
        """
        check_access(grant, operation)

        async def check() -> None:
            check_access(await self._callers.grant_of(credentials.authorization), operation)

        results = _expected_errors(results_of(self._store, operation), observation)
        return watched(type(operation), results, check, self.limits.heartbeat_seconds, self._stopping.wait, *interrupts)


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
