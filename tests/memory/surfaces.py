"""The surfaces on which memory operations are carried out, for the test that compares them.

To add a surface, write a function like ``served`` and add it to ``SURFACES``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, cast

import msgspec

from agent_memory_log import Store, SyncStore, open_store, open_sync_store
from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.memory import Memory, MemoryClient, Principal, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.calls import MemoryCalls
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.sync import SyncMemoryCalls
from agent_memory_log.recall import Embeddings
from agent_memory_log.service.callers import OneCaller
from agent_memory_log.service.grants import RIGHTS, Grant, check_access, visible_result
from agent_memory_log.service.problems import error_of, problem_of
from agent_memory_log.service.table import NAMES, OPERATIONS
from agent_memory_log.service.wire import decode_operation, decode_result, encode_operation, encode_result
from tests.memory.stores import SaidPreferences, SetClock
from tests.service.serving import serving

PRINCIPAL = Principal("acme", {"user": "1", "workspace": "ops"})

GRANT = Grant("user", frozenset(RIGHTS), PRINCIPAL, ("*",))
"""The rights of the caller of a served surface."""

Surface = Callable[[str], AbstractAsyncContextManager[MemoryCalls | SyncMemoryCalls]]
"""Opens the memory of ``PRINCIPAL`` in the store at a URL. See ``hooks`` for the other arguments of its client."""


class FailingEmbedder:
    """A model that cannot be reached, so that results have notes."""

    model = "failing"
    dimension = 3

    def embed(self, texts: Sequence[str], kind: str) -> Embeddings:
        raise ConnectionError(f"no vectors for {len(texts)} texts of the kind {kind}")


def hooks() -> dict[str, Any]:
    """Return the arguments of the client that carries out the operations, on a server or not."""
    return {"clock": SetClock(), "extractor": SaidPreferences(), "embedder": FailingEmbedder()}


def over_the_wire(value: object) -> Any:
    """Return a JSON value after it was written and read."""
    return msgspec.json.decode(msgspec.json.encode(value))


@contextmanager
def problems() -> Generator[None]:
    """Raise an error as a caller reads it from its problem document."""
    try:
        yield
    except AgentMemoryLogError as error:
        problem = error_of(over_the_wire(problem_of(error)))
        assert problem is not None
        raise problem from None


def received(operation: Operation[Any], grant: Grant, principal: Principal | None) -> tuple[Operation[Any], Principal]:
    """Return an operation and the principal as a server reads them, after the check of the grant."""
    narrowed = grant if principal is None else grant.narrowed(principal)
    decoded = decode_operation(OPERATIONS[NAMES[type(operation)]], over_the_wire(encode_operation(operation)))
    check_access(narrowed, decoded)
    assert narrowed.principal is not None
    return decoded, narrowed.principal


def sent_back(operation: Operation[Any], grant: Grant, result: object) -> Any:
    """Return a result as a caller reads it."""
    visible = visible_result(grant, result)
    return decode_result(type(operation), over_the_wire(encode_result(type(operation), visible)))


class ServedStore:
    """A store that carries out memory operations as a server does, without a socket.

    Each operation and each result passes as JSON.
    """

    def __init__(self, client: MemoryClient, grant: Grant = GRANT) -> None:
        self._client = client
        self._grant = grant

    async def execute_memory(self, operation: Operation[Any], principal: Principal | None, /) -> Any:
        with problems():
            decoded, own = received(operation, self._grant, principal)
            return sent_back(operation, self._grant, await self._client.of(own).execute(decoded))


class SyncServedStore:
    """``ServedStore`` without ``await``."""

    def __init__(self, client: SyncMemoryClient, grant: Grant = GRANT) -> None:
        self._client = client
        self._grant = grant

    def execute_memory(self, operation: Operation[Any], principal: Principal | None, /) -> Any:
        with problems():
            decoded, own = received(operation, self._grant, principal)
            return sent_back(operation, self._grant, self._client.of(own).execute(decoded))


def sync_client_of(store: SyncServedStore, **hooks_of_client: Any) -> SyncMemoryClient:
    """Return a client of a served store. It has only the method that a client of memory calls."""
    return SyncMemoryClient(cast("SyncStore", store), **hooks_of_client)


@asynccontextmanager
async def embedded(url: str) -> AsyncGenerator[Memory]:
    async with open_store(url) as store:
        yield MemoryClient(store, **hooks()).of(PRINCIPAL)


@asynccontextmanager
async def embedded_sync(url: str) -> AsyncGenerator[SyncMemory]:
    with open_sync_store(url) as store:
        yield SyncMemoryClient(store, **hooks()).of(PRINCIPAL)


@asynccontextmanager
async def served(url: str) -> AsyncGenerator[Memory]:
    async with open_store(url) as store:
        served_store = ServedStore(MemoryClient(store, **hooks()))
        yield MemoryClient(cast("Store", served_store)).of(PRINCIPAL)


@asynccontextmanager
async def served_sync(url: str) -> AsyncGenerator[SyncMemory]:
    with open_sync_store(url) as store:
        yield sync_client_of(SyncServedStore(SyncMemoryClient(store, **hooks()))).of(PRINCIPAL)


@asynccontextmanager
async def http(url: str) -> AsyncGenerator[MemoryClient]:
    with serving(lambda: open_store(url), callers=OneCaller(PRINCIPAL), memory=server_memory) as server:
        async with MemoryClient(config={"mode": "remote", "base_url": server.url}) as client:
            yield client


@asynccontextmanager
async def http_sync(url: str) -> AsyncGenerator[SyncMemoryClient]:
    with (
        serving(lambda: open_store(url), callers=OneCaller(PRINCIPAL), memory=server_memory) as server,
        SyncMemoryClient(config={"mode": "remote", "base_url": server.url}) as client,
    ):
        yield client


@contextmanager
def grpc_config(url: str) -> Generator[dict[str, object]]:
    """Serve a store, and give the block the configuration of a client that reaches it over gRPC alone."""
    with serving(lambda: open_store(url), callers=OneCaller(PRINCIPAL), memory=server_memory, grpc=True) as server:
        nowhere = "http://127.0.0.1:1"
        yield {"mode": "remote", "base_url": nowhere, "prefer_grpc": True, "grpc_target": server.grpc_target}


@asynccontextmanager
async def grpc(url: str) -> AsyncGenerator[MemoryClient]:
    with grpc_config(url) as config:
        async with MemoryClient(config=config) as client:
            yield client


@asynccontextmanager
async def grpc_sync(url: str) -> AsyncGenerator[SyncMemoryClient]:
    with grpc_config(url) as config, SyncMemoryClient(config=config) as client:
        yield client


def server_memory(store: Store) -> MemoryClient:
    """Return the client with which a server carries out the operations."""
    return MemoryClient(store, **hooks())


SURFACES: dict[str, Surface] = {
    "embedded": embedded,
    "embedded sync": embedded_sync,
    "served": served,
    "served sync": served_sync,
    "http": http,
    "http sync": http_sync,
    "grpc": grpc,
    "grpc sync": grpc_sync,
}
