"""A served store with several tenants, their tokens, and content that only its owner may see."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec

from agent_memory_log import Store, UserMessage, new_event, open_store
from agent_memory_log.memory import MemoryClient, Principal
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.memory.records.principals import conversations_of
from agent_memory_log.service.access.token_callers import TokenCallers
from agent_memory_log.service.access.tokens import create_token
from agent_memory_log.service.grants import ALL_AGENTS, RIGHTS, Grant
from agent_memory_log.service.grpc.messages import pack, path_of, unpack
from agent_memory_log.service.server import Limits
from agent_memory_log.service.table import OPERATIONS
from tests.processes import PATIENCE
from tests.service.serving import Answer, Serving, serving

FOREIGN = "zanzibar"
"""A word of every text that the caller of an attack must not see."""

ALL = frozenset(RIGHTS)
MINE = Principal("acme", {"user": "42"})
NEIGHBOUR = Principal("acme", {"user": "43"})
STRANGER = Principal("umbrella", {"user": "42"})

GRANTS = (
    Grant("mine", ALL, MINE, ("support-*",)),
    Grant("memory-only", ALL, MINE),
    Grant("reader", frozenset({"read"}), MINE, ("support-*",)),
    Grant("writer", frozenset({"write"}), MINE, ("support-*",)),
    Grant("neighbour", ALL, NEIGHBOUR, ("billing",)),
    Grant("stranger", ALL, STRANGER, ("*",)),
    Grant("composed", ALL, Principal("acme", {"user": "jos\u00e9"})),
    Grant("decomposed", ALL, Principal("acme", {"user": "jose\u0301"})),
    Grant("every-agent", ALL, MINE, ("*", "conversations/*", "@memory/*")),
    Grant("every-agent-without-memory", ALL, None, ("*", "conversations/acme/*")),
    Grant("operator", ALL, None, ALL_AGENTS),
    Grant("operator-of-mine", ALL, MINE, ALL_AGENTS),
    Grant("brackets", ALL, None, ("a[1]", "[!x]", "b?", "@c*")),
)


class World:
    """The server, the tokens by name, and the store, which belongs to the server's event loop."""

    def __init__(self, server: Serving, tokens: Mapping[str, str]) -> None:
        self.server = server
        self.tokens = tokens

    def headers(self, name: str) -> dict[str, str]:
        """Return the header with a token."""
        return {"authorization": f"Bearer {self.tokens[name]}"}

    def post(self, name: str, operation: str, body: Any, **headers: str) -> Answer:
        """Send an operation with a token."""
        return self.send(operation, body, **self.headers(name), **headers)

    def send(self, operation: str, body: Any, **headers: str) -> Answer:
        """Send an operation. An underscore in the name of a header stands for a dash."""
        return self.server.post(operation, body, **headers)


class GrpcWorld(World):
    """Sends operations over gRPC. An answer has the status of HTTP in its problem document, or 200."""

    def send(self, operation: str, body: Any, **headers: str) -> Answer:
        """Send an operation, and return its result or the first item of its stream."""
        metadata = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        with grpc.insecure_channel(self.server.grpc_target) as channel:
            method: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path_of(OPERATIONS[operation]))
            call = method(pack(msgspec.json.encode(body)), timeout=PATIENCE, metadata=metadata)
            try:
                return Answer(200, {}, unpack(next(call)))
            except grpc.RpcError as error:
                status: Any = error
                problem = dict(status.trailing_metadata()).get("amlog-problem", "{}")
                return Answer(msgspec.json.decode(problem).get("status", 0), {}, problem.encode())


@contextmanager
def world(path: Path, limits: Limits | None = None, kind: type[World] = World) -> Generator[World]:
    """Serve a new store, over HTTP and gRPC."""
    late = _Late()
    tokens: dict[str, str] = {}

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Store]:
        async with open_store(f"sqlite:///{path}/runs.db") as store:
            await _fill(store)
            for grant in GRANTS:
                tokens[grant.name], _ = await create_token(store, grant, days=1)
            late.callers = TokenCallers(store)
            yield store

    with serving(opened, limits=limits, callers=late, memory=_learning, local=False, grpc=True) as server:
        yield kind(server, tokens)


def _learning(store: Store) -> MemoryClient:
    return MemoryClient(store, extractor=RuleExtractor())


class _Late:
    """Callers that are known only when the store is open."""

    callers: TokenCallers

    async def grant_of(self, authorization: str | None) -> Grant:
        return await self.callers.grant_of(authorization)


async def _fill(store: Store) -> None:
    client = MemoryClient(store)
    for principal, value in ((MINE, "tea"), (NEIGHBOUR, f"{FOREIGN} coffee"), (STRANGER, f"{FOREIGN} milk")):
        await client.of(principal).remember(key="drink", value=value)
    await store.append_events(
        "support-1", "r", new_event(UserMessage(message="I live in Graz and want a refund for my kettle"))
    )
    await store.append_events("billing", "r", new_event(UserMessage(message=f"{FOREIGN} is my word"), event_id="e1"))
    await store.append_events("@support-1", "r", new_event(UserMessage(message=FOREIGN)), reserved=True)
    for agent in ("a[1]", "a1", "y", "b1", "@c1", "@x"):
        await store.append_events(agent, "r", new_event(UserMessage(message=f"{FOREIGN} {agent}")), reserved=True)
    for principal, text in ((MINE, "I drink tea"), (NEIGHBOUR, f"I drink {FOREIGN}"), (STRANGER, f"It is {FOREIGN}")):
        agent = conversations_of(principal.subject("user"))
        await store.append_events(agent, "r", new_event(UserMessage(message=text), event_id="e1"))
    await client.of(MINE).link_run("support-1", "r")
    await client.of(NEIGHBOUR).link_run("billing", "r")
