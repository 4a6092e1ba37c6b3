"""No tool, resource or prompt shows a token the memory or the runs of others."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from agent_memory_log.memory.records.principals import conversations_of
from agent_memory_log.service.mcp.resources import memory_uri, run_uri
from agent_memory_log.service.mcp.tools import TOOLS
from tests.service.access.world import FOREIGN, MINE, NEIGHBOUR, STRANGER, World, world
from tests.service.mcp.sessions import over_http, text_of

CONVERSATIONS_OF_OTHERS = [conversations_of(principal.subject("user")) for principal in (NEIGHBOUR, STRANGER)]
AGENTS = ("billing", "@support-1", "@access", "@memory/acme/user/43", *CONVERSATIONS_OF_OTHERS)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world")) as each:
        yield each


async def outcome(answer: Awaitable[Any]) -> str:
    """Return an answer or an error as text, with everything that a client can read of it."""
    try:
        return str(await answer)
    except MCPError as error:
        return f"{error} {error.error}"


def calls_on(agents: Sequence[str], records: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return calls of each tool that ask for runs and records of other callers. The last ones write."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory_search", {"query": FOREIGN, "top_k": 100}),
        ("memory_context", {"query": FOREIGN}),
        ("memory_health", {}),
        ("memory_audit", {}),
        ("memory_export", {}),
        ("runs_list", {"limit": 1_000}),
        ("run_search", {"query": FOREIGN, "top_k": 100}),
        ("memory_maintain", {}),
        ("memory_set", {"key": "drink", "value": "tea", "scope": "workspace"}),
        ("memory_ingest_conversation", {"turns": [{"role": "user", "text": "hello"}], "source_id": "r2"}),
    ]
    for agent in agents:
        calls += [("runs_list", {"agent": agent}), ("run_read", {"agent": agent, "run": "r"})]
    for record in records:
        calls += [
            ("memory_trace", {"id": record}),
            ("memory_evolution", {"id": record}),
            ("memory_update", {"id": record, "importance": 1}),
            ("memory_delete", {"id": record}),
            ("memory_restore", {"id": record}),
            ("memory_forget", {"id": record, "evidence": True, "sweep": True}),
            ("memory_store", {"content": "He drinks", "supersedes_id": record}),
            ("memory_store", {"content": "She drinks", "causal_parent_id": record}),
        ]
    return calls


@pytest.mark.parametrize("name", ["mine", "memory-only", "reader", "writer"])
async def test_a_token_does_not_reach_others(served: World, name: str) -> None:
    other_records = [served.post(owner, "memory/get", {"key": "drink"}).json for owner in ("neighbour", "stranger")]
    records = [record["id"] for record in other_records]
    calls = calls_on(AGENTS, records)
    assert {tool for tool, _ in calls} == TOOLS.keys()
    async with over_http(f"{served.server.url}/mcp", **served.headers(name)) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        for tool, arguments in calls:
            answer = await outcome(client.call_tool(tool, arguments))
            assert FOREIGN not in answer
            assert ("there is no tool" in answer) == (tool not in tools)
        for uri in (*(run_uri(agent, "r") for agent in AGENTS), *map(memory_uri, records)):
            assert FOREIGN not in await outcome(client.read_resource(uri))
        assert FOREIGN not in await outcome(client.get_prompt("recall", {"question": "Who drinks?"}))
        assert FOREIGN not in await outcome(client.list_resources())
    after = [served.post(owner, "memory/get", {"key": "drink"}).json for owner in ("neighbour", "stranger")]
    assert after == other_records


async def test_a_token_reads_the_own_memory_and_runs(served: World) -> None:
    async with over_http(f"{served.server.url}/mcp", **served.headers("mine")) as client:
        assert "tea" in text_of(await client.call_tool("memory_search", {"query": "drink"}))
        assert "kettle" in text_of(await client.call_tool("run_read", {"agent": "support-1", "run": "r"}))
    async with over_http(f"{served.server.url}/mcp", **served.headers("every-agent")) as client:
        own = conversations_of(MINE.subject("user"))
        assert "I drink tea" in text_of(await client.call_tool("run_read", {"agent": own, "run": "r"}))
        assert FOREIGN in text_of(await client.call_tool("run_read", {"agent": "billing", "run": "r"}))
        for agent in ("@support-1", "@access", *CONVERSATIONS_OF_OTHERS):
            assert (await client.call_tool("run_read", {"agent": agent, "run": "r"})).is_error
