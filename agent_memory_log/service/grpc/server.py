"""The gRPC server: one method for each operation, with the callers, limits and audit of the HTTP server.

A call is admitted before its message is read, so a caller without a token cannot make the server hold a message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import grpc
import grpc.aio

from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument, StoreUnavailable, TooManyRequests
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.grpc.messages import (
    AUTHORIZATION,
    PATHS,
    PRINCIPAL,
    REQUEST_ID,
    failure_of,
    pack,
    unpack,
)
from agent_memory_log.service.limits import Limits
from agent_memory_log.service.problems import status_of
from agent_memory_log.service.server.app import Server
from agent_memory_log.service.server.gate import Credentials, Gate
from agent_memory_log.service.server.metrics import Metrics
from agent_memory_log.service.server.observing import Observation
from agent_memory_log.service.server.requests import HeldBytes, decoded
from agent_memory_log.service.server.streams import Interrupted
from agent_memory_log.service.table import NAMES
from agent_memory_log.service.wire import decode_operation

_FRAME = 16
"""The bytes of a message beside its JSON, at most."""

_PING_SECONDS = 30
"""The seconds after which a silent client must answer a ping. A client may send one every 5 seconds."""

_Context = grpc.aio.ServicerContext[bytes, bytes]


@asynccontextmanager
async def serving_grpc(
    server: Server, host: str, port: int, *, tls: tuple[Path, Path] | None = None
) -> AsyncGenerator[int]:
    """Serve the operations over gRPC while the block runs, and then until its accepted calls are answered.

    When the server's ``stopping`` is set, it accepts no new call and ends the streams.

    Args:
        server: The server of ``create_app``.
        host: The address to listen on.
        port: The port, or 0 for a free one. It is the value of the block.
        tls: The files of the certificate and its private key. Default: no TLS.

    Raises:
        OSError: The certificate or the key cannot be read.
        StoreUnavailable: The port cannot be opened.
    """
    limits = server.gate.limits
    grpc_server = grpc.aio.server(
        handlers=[_Methods(server.gate, server.metrics)],
        options=_options(limits),
        maximum_concurrent_rpcs=limits.requests + limits.streams,
    )
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound = _bind(grpc_server, address, tls)
    except RuntimeError as error:
        raise StoreUnavailable(f"cannot listen on {host} port {port} for gRPC: choose a free port") from error
    await grpc_server.start()

    async def stop() -> None:
        await server.stopping.wait()
        await grpc_server.stop(limits.stop_seconds)

    stopping = asyncio.ensure_future(stop())
    try:
        yield bound
    finally:
        server.stopping.set()
        await stopping


def _bind(grpc_server: grpc.aio.Server, address: str, tls: tuple[Path, Path] | None) -> int:
    if tls is None:
        return grpc_server.add_insecure_port(address)
    certificate, key = (path.read_bytes() for path in tls)
    return grpc_server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))


def _options(limits: Limits) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.body_bytes + _FRAME),
        ("grpc.max_send_message_length", -1),  # pages and answers have limits of their own
        ("grpc.max_metadata_size", limits.header_bytes),
        ("grpc.absolute_max_metadata_size", limits.header_bytes),
        ("grpc.max_concurrent_streams", limits.requests + limits.streams),
        ("grpc.max_connection_idle_ms", 1_000 * limits.idle_seconds),
        ("grpc.keepalive_time_ms", 1_000 * _PING_SECONDS),
        ("grpc.keepalive_timeout_ms", 1_000 * _PING_SECONDS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        # A small compressed message could become a far larger one.
        ("grpc.per_message_decompression", 0),
    ]


class _Methods(grpc.GenericRpcHandler):
    """The methods of the service.

    Args:
        gate: Admits the callers, and carries out their operations.
        metrics: Counts the answers.
    """

    def __init__(self, gate: Gate, metrics: Metrics) -> None:
        self._gate = gate
        self._metrics = metrics
        self._arriving = _Arriving(gate.limits, gate.held)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """Return the handler of a call, or None if there is no such method.

        On the network, a call with one message is the same as a stream with one message. As a stream, the handler
        begins before the message is read.
        """
        operation = PATHS.get(handler_call_details.method)
        if operation is None:
            return None
        return grpc.stream_stream_rpc_method_handler(partial(self._answer, operation))

    async def _answer(self, cls: type[Operation[Any]], messages: AsyncIterator[bytes], context: _Context) -> None:
        """Answer a call. An error ends it with a code, and with its problem document."""
        start = time.perf_counter()
        observation = Observation()
        observation.operation, observation.is_stream = NAMES[cls], cls.stream
        context.set_trailing_metadata(((REQUEST_ID, observation.id),))
        try:
            await self._carry_out(cls, messages, context, observation)
            observation.status = 200
        except Interrupted:
            await _abort(context, observation, StoreUnavailable("the server stops: ask again"))
        except AgentMemoryLogError as error:
            await _abort(context, observation, error)
        except Exception as error:  # noqa: BLE001  # as for HTTP
            await _abort(context, observation, observation.unexpected(error))
        finally:
            observation.record(self._metrics, time.perf_counter() - start)

    async def _carry_out(
        self, cls: type[Operation[Any]], messages: AsyncIterator[bytes], context: _Context, observation: Observation
    ) -> None:
        gate = self._gate
        credentials = _credentials(context)
        async with gate.admitted(credentials, observation, is_stream=cls.stream) as grant:
            async with self._arriving.counted(observation.caller):
                message = await _first(messages, gate.limits.body_seconds)
            with gate.held.of(len(message)):
                operation = decode_operation(cls, decoded(unpack(message), "message"))
                if not cls.stream:
                    answer = await gate.answer_to(operation, grant, observation)
                    # A write that was carried out is not refused.
                    with gate.held.of(0 if operation.writes else len(answer)):
                        await _write(context, answer, gate.limits.request_seconds)
                    return
            async with aclosing(gate.items_of(operation, grant, credentials, observation)) as items:
                await context.send_initial_metadata(())  # shows the client that the stream is open
                async for item in items:
                    if item is not None:  # gRPC has signs of life of its own
                        await _write(context, item, gate.limits.write_seconds)


class _Arriving:
    """Counts messages while they arrive. gRPC does not tell their sizes, so each counts as the largest one.

    Messages that would take more than half of the bytes that the server may hold wait for others. One caller may take
    half of these places.

    Args:
        limits: The limits of one message, and of all bytes.
        counter: Counts the bytes of all messages.
    """

    def __init__(self, limits: Limits, counter: HeldBytes) -> None:
        self._places = max(1, limits.held_bytes // (2 * limits.body_bytes))
        self._all = asyncio.Semaphore(self._places)
        self._of_callers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._bytes = limits.body_bytes
        self._seconds = limits.body_seconds
        self._counter = counter

    @asynccontextmanager
    async def counted(self, caller: str) -> AsyncGenerator[None]:
        """Count a message while the block reads it. Raises ``TooManyRequests`` if there is no place in time."""
        own = self._of_callers.setdefault(caller, asyncio.Semaphore(max(1, self._places // 2)))
        async with AsyncExitStack() as places:
            try:
                async with asyncio.timeout(self._seconds):
                    await places.enter_async_context(own)
                    await places.enter_async_context(self._all)
            except TimeoutError as error:
                raise TooManyRequests("too many messages arrive at the same time", retry_after=1) from error
            with self._counter.of(self._bytes):
                yield


def _credentials(context: _Context) -> Credentials:
    """Return the credentials of a call. Raises ``InvalidArgument`` if it has several of a kind."""
    values: dict[str, str | bytes] = {}
    for key, value in context.invocation_metadata() or ():
        if key in (AUTHORIZATION, PRINCIPAL):
            if key in values:
                raise InvalidArgument(f"the call has several metadata {key}")
            values[key] = value
    authorization, principal = values.get(AUTHORIZATION), values.get(PRINCIPAL)
    return Credentials(
        authorization if authorization is None else str(authorization),
        principal.encode() if isinstance(principal, str) else principal,
    )


async def _first(messages: AsyncIterator[bytes], seconds: float) -> bytes:
    """Return the message of a call."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(messages)
    except StopAsyncIteration:
        raise InvalidArgument("the call has no message") from None
    except TimeoutError as error:
        raise StoreUnavailable(f"the message did not arrive within {seconds:g} seconds: send it again") from error


async def _write(context: _Context, answer: bytes, seconds: float) -> None:
    """Send a message. Raises ``StoreUnavailable`` if the client does not read it in time."""
    try:
        async with asyncio.timeout(seconds):
            await context.write(pack(answer))
    except TimeoutError as error:
        raise StoreUnavailable(f"the client did not read the answer within {seconds:g} seconds") from error


async def _abort(context: _Context, observation: Observation, error: AgentMemoryLogError) -> None:
    observation.status = status_of(error)
    code, detail, problem = failure_of(error)
    await context.abort(code, detail, ((REQUEST_ID, observation.id), problem))
