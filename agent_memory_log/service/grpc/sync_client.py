"""Made from ``client.py`` by ``python -m tools.sync_twin``, without ``await``.

Any number of threads may use it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import grpc

from agent_memory_log.service.client.address import Address
from agent_memory_log.service.client.answers import Answer, failure_in
from agent_memory_log.service.client.attempts import Attempts, broken_stream
from agent_memory_log.service.client.requests import Request
from agent_memory_log.service.grpc.failures import (
    Cancellable,
    Cancelled,
    answer_of,
    channel_options,
    credentials_of,
    problem_answer,
)
from agent_memory_log.service.grpc.messages import metadata_of, pack, path_of


class GrpcTransport:
    """Sends requests to the gRPC target of an address."""

    def __init__(self, address: Address) -> None:
        options = channel_options(address)
        self._headers = address.headers
        self._channel = (
            grpc.secure_channel(address.grpc_target, credentials_of(address), options)
            if address.is_encrypted
            else grpc.insecure_channel(address.grpc_target, options)
        )
        self._lock = threading.Lock()
        self._calls: set[Cancellable] = set()
        """The calls of the open streams."""
        self._has_ended = False

    def answer(self, request: Request, attempts: Attempts) -> Answer:
        """Send a request once and read the whole answer. Raises ``Failure``."""
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(path_of(request.operation))
        metadata = metadata_of(self._headers, request.headers)
        try:
            message = method(pack(request.body), timeout=attempts.wait_seconds(), metadata=metadata)
        except grpc.RpcError as error:
            return problem_answer(error, request)
        return answer_of(message, request)

    def items(self, request: Request, attempts: Attempts) -> Generator[bytes]:
        """Send the request for a stream once, and yield its items as JSON.

        Raises:
            Failure: The stream may be opened again.
            AgentMemoryLogError: The error that the server reports.
        """
        attempts.check_time()
        method: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(path_of(request.operation))
        call = method(pack(request.body), metadata=metadata_of(self._headers, request.headers))
        with self._can_be_ended(call):
            try:
                for message in call:
                    yield answer_of(message, request).body
            except Cancelled:
                if not self._has_ended:
                    raise
                raise broken_stream() from None
            except grpc.RpcError as error:
                raise failure_in(problem_answer(error, request)) from error

    def end_streams(self) -> None:
        """End the open streams, and each that is opened later."""
        with self._lock:
            self._has_ended = True
            calls = tuple(self._calls)
        for call in calls:
            call.cancel()

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()

    @contextmanager
    def _can_be_ended(self, call: Cancellable) -> Generator[None]:
        """Let ``end_streams`` end the block's wait for data. The call ends with the block."""
        try:
            with self._lock:
                if self._has_ended:
                    raise broken_stream()
                self._calls.add(call)
            yield
        finally:
            call.cancel()
            with self._lock:
                self._calls.discard(call)
