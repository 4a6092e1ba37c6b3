"""The same operations have the same results embedded, over standard input and output, and over HTTP."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import msgspec
from mcp import Client

from agent_memory_log import AssistantMessage, Store, UserMessage, new_event, open_store
from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.memory import MemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.memory.operations import BuildContext
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.mcp.answers import _pruned
from agent_memory_log.service.mcp.tools import TOOLS, operation_of
from agent_memory_log.service.problems import problem_of
from agent_memory_log.service.store_operations import execute_on_store
from agent_memory_log.service.table import needs_principal
from agent_memory_log.service.wire import encode_result
from agent_memory_log.steps import run_async
from tests.service.mcp.sessions import ME, http_server, lines_of, over_http, over_stdio, text_of

TURNS = [
    {"role": "user", "text": "Please answer in German from now on."},
    {"role": "assistant", "text": "Gern."},
    {"role": "user", "text": "Thanks."},
    {"role": "assistant", "text": "Bitte."},
]
CALLS: dict[str, dict[str, Any]] = {
    "memory_search": {"query": "tea preference"},
    "memory_context": {"query": "tea"},
    "memory_trace": {"id": "DRINK", "depth": 2},
    "memory_export": {},
    "memory_health": {},
    "memory_audit": {"limit": 5},
    "memory_evolution": {"id": "DRINK"},
    "runs_list": {"limit": 1},
    "run_read": {"agent": "support-1", "run": "run", "after": 1},
    "run_search": {"query": "orders"},
    "memory_delete": {"id": "DRINK"},
    "memory_restore": {"id": "DRINK"},
    "memory_update": {"id": "SNACK", "value": "fruit"},
    "memory_store": {"content": "Ana Ruiz works at Acme.", "tags": ["work"]},
    "memory_set": {"key": "tone", "value": "short", "tags": ["style"]},
    "memory_ingest_conversation": {"turns": TURNS, "source_id": "chat"},
    "memory_forget": {"key": "drink"},
    "memory_maintain": {},
}
"""The arguments of a call of each tool, in the order of the calls. Words in capitals are ids of records."""


async def prepared(url: str) -> dict[str, str]:
    """Fill a store, and return the id of each record by its word in capitals."""
    async with open_store(url) as store:
        for run in ("run", "older"):
            await store.append_events(
                "support-1",
                run,
                new_event(UserMessage(message="Where are my orders?")),
                new_event(AssistantMessage(message="On their way.")),
                new_event(UserMessage(message="Thanks")),
            )
        me = MemoryClient(store).of(ME)
        for key, value in (("drink", "tea"), ("snack", "nuts")):
            await me.remember(key=key, value=value)
        await me.link_run("support-1", "run")
        return {record.key.upper(): record.id for record in await me.list()}


def arguments_of(name: str, records: dict[str, str]) -> dict[str, Any]:
    return {key: records.get(str(value), value) for key, value in CALLS[name].items()}


async def call_embedded(store: Store, name: str, arguments: dict[str, Any]) -> object:
    operation: Operation[Any] = operation_of(name, arguments)
    try:
        if needs_principal(type(operation)):
            result = await MemoryClient(store, extractor=RuleExtractor()).of(ME).execute(operation)
        else:
            result = await run_async(execute_on_store(operation), store)
    except AgentMemoryLogError as error:
        return problem_of(error)
    encoded: Any = encode_result(type(operation), result)
    field = TOOLS[name].items
    if TOOLS[name].struct is BuildContext:
        return encoded["text"]
    if field == "." and isinstance(encoded, str):
        return encoded.removesuffix("\n").split("\n")
    if field == ".":
        return [_pruned(item) for item in encoded]
    if not field:
        return [_pruned(encoded)]
    rows = [_pruned(item) for item in encoded.pop(field)]
    return [_pruned(encoded), *rows] if _pruned(encoded) else rows


async def call(client: Client, name: str, arguments: dict[str, Any]) -> object:
    result = await client.call_tool(name, arguments)
    if result.is_error:
        return result.structured_content
    return text_of(result) if TOOLS[name].struct is BuildContext else lines_of(result)


def without_ids(result: Any) -> Any:
    """Return a result without ids and times, which differ for the records that a call makes."""
    if isinstance(result, dict):
        different = ("id", "created", "updated", "valid_from", "event_id", "timestamp")
        fields = cast("dict[str, object]", result)
        return {key: without_ids(value) for key, value in fields.items() if key not in different}
    if isinstance(result, list):
        return [without_ids(item) for item in cast("list[object]", result)]
    if isinstance(result, str) and result.startswith("{"):
        return without_ids(msgspec.json.decode(result))
    return result


async def test_each_tool_has_the_same_result_everywhere(tmp_path: Path) -> None:
    (tmp_path / "prepared").mkdir()
    records = await prepared(f"sqlite:///{tmp_path / 'prepared'}/runs.db")

    def copy(surface: str) -> str:
        return f"sqlite:///{shutil.copytree(tmp_path / 'prepared', tmp_path / surface)}/runs.db?durability=os"

    async def results(client: Client) -> dict[str, object]:
        return {name: without_ids(await call(client, name, arguments_of(name, records))) for name in CALLS}

    async with open_store(copy("embedded")) as store:
        embedded = {name: without_ids(await call_embedded(store, name, arguments_of(name, records))) for name in CALLS}
    assert embedded.keys() == TOOLS.keys()
    assert not [result for result in embedded.values() if isinstance(result, dict)], "no call fails"
    async with over_stdio(copy("stdio"), "--agents", "*") as client:
        assert await results(client) == embedded
    with http_server(copy("http")) as address:
        async with over_http(address) as client:
            assert await results(client) == embedded
