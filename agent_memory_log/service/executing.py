"""Carries out an operation for a caller. HTTP, MCP and gRPC use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import msgspec

from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory import MemoryClient
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.service.grants import Grant, check_access, visible_result
from agent_memory_log.service.limits import Limits
from agent_memory_log.service.runs import Runs
from agent_memory_log.service.table import needs_principal
from agent_memory_log.service.wire import encode_result
from agent_memory_log.store import Store


class Caller(msgspec.Struct, frozen=True):
    """A caller whose operations are carried out.

    Attributes:
        grant: The rights of the caller.
        execute: Carries out an operation, and returns the JSON value of its result. It raises the errors of
            ``Executor.result_of``.
    """

    grant: Grant
    execute: Callable[[Operation[Any]], Awaitable[Any]]


class Executor:
    """Carries out the operations of a store and of its memory.

    Args:
        store: Carries out the operations of runs.
        memory: Carries out the operations of memory.
        limits: The limits of a page, and the time for an operation.
    """

    def __init__(self, store: Store, memory: MemoryClient, limits: Limits) -> None:
        self._memory = memory
        self._limits = limits
        self._runs = Runs(store, limits)

    async def result_of(self, operation: Operation[Any], grant: Grant) -> object:
        """Carry out an operation and return the JSON value of its result, which may have parts that are encoded.

        Raises:
            AccessDenied: The caller may not carry out the operation.
            StoreUnavailable: The operation took too long.
        """
        check_access(grant, operation)
        seconds = self._limits.request_seconds
        try:
            async with asyncio.timeout(seconds):
                if needs_principal(type(operation)):
                    memory = self._memory.of(cast("Principal", grant.principal))  # checked by check_access
                    return encode_result(type(operation), visible_result(grant, await memory.execute(operation)))
                return await self._runs.result_of(operation, grant)
        except TimeoutError as error:
            raise StoreUnavailable(
                f"the operation was not complete after {seconds:g} seconds: ask for less at once, or send it again. "
                "A write may have been carried out; it is safe to send it again with the same event ids"
            ) from error

    async def json_of(self, operation: Operation[Any], grant: Grant) -> Any:  # noqa: ANN401  # any JSON value
        """Return the result as ``result_of`` does, without encoded parts."""
        return msgspec.json.decode(encode_json(await self.result_of(operation, grant)))

    def caller(self, grant: Grant) -> Caller:
        """Return a caller with a grant."""
        return Caller(grant, partial(self.json_of, grant=grant))
