"""Servers over standard input and output, each a process of its own."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from agent_memory_log import open_sync_store
from agent_memory_log.memory import SyncMemoryClient
from tests.amlog import environment, run
from tests.service.mcp.sessions import ME, OPTIONS, http_server, lines_of, over_http, over_stdio, text_of
from tests.waiting import PATIENCE


async def test_a_memory_stored_in_one_process_is_found_in_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    async with over_stdio(url) as client:
        (outcome,) = lines_of(await client.call_tool("memory_set", {"key": "language", "value": "english"}))
        assert outcome["action"] == "written"
    async with over_stdio(url) as client:
        _plan, *hits = lines_of(await client.call_tool("memory_search", {"query": "language"}))
        assert [hit["record"]["data"]["data"]["value"] for hit in hits] == ["english"]
    with open_sync_store(url) as store:
        record = SyncMemoryClient(store).of(ME).get(key="language")
    assert record is not None
    assert record.id == outcome["record"]["id"]


async def test_the_store_of_a_server_can_be_used(tmp_path: Path) -> None:
    with http_server(f"sqlite:///{tmp_path / 'memory.db'}") as address:
        async with over_stdio(address.removesuffix("/mcp"), "--agents", "*") as client:
            await client.call_tool("memory_set", {"key": "language", "value": "english"})
            turns = [{"role": "user", "text": "hello"}]
            (report,) = lines_of(
                await client.call_tool("memory_ingest_conversation", {"turns": turns, "source_id": "chat"})
            )
            _, event = lines_of(await client.call_tool("run_read", {"agent": report["agent"], "run": "chat"}))
            assert event["data"] == {"message": "hello"}
        async with over_http(address) as client:
            assert "english" in text_of(await client.call_tool("memory_context", {"query": "language"}))


async def test_several_servers_and_a_program_lose_nothing(tmp_path: Path) -> None:
    await write_together(f"sqlite:///{tmp_path / 'memory.db'}", servers=3, each=8)


async def write_together(url: str, *, servers: int, each: int) -> None:
    """Let several servers and this process write to one store at the same time. Check that nothing is lost.

    Each stores ``each`` turns and a third as many keys. A user has at most 1,000 keys.
    """
    with open_sync_store(url) as store:
        me = SyncMemoryClient(store).of(ME)

        async def write(number: int) -> None:
            async with over_stdio(url, "--agents", "conversations/*") as client:
                for place in range(each):
                    if place % 3 == 0:
                        arguments = {"key": f"key {number} {place}", "value": str(place)}
                        lines_of(await client.call_tool("memory_set", arguments))
                    turns = [{"role": "user", "text": f"turn {number} {place}"}]
                    arguments_of_chat = {"turns": turns, "source_id": "chat", "first_turn": number * each + place}
                    lines_of(await client.call_tool("memory_ingest_conversation", arguments_of_chat))

        def write_here() -> None:
            for place in range(0, each, 3):
                me.remember(key=f"key here {place}", value=str(place))

        await asyncio.gather(asyncio.to_thread(write_here), *map(write, range(servers)))
        expected = {f"key {number} {place}" for number in (*range(servers), "here") for place in range(0, each, 3)}
        assert {record.key for record in me.list(kinds=["preference"])} == expected
        turns = [
            str(event.data.to_map()["message"]) for event in store.load_run("conversations/acme/user/42", "chat").log
        ]
        assert sorted(turns) == sorted(f"turn {number} {place}" for number in range(servers) for place in range(each))


async def test_a_read_only_server_offers_no_tool_that_writes(tmp_path: Path) -> None:
    async with over_stdio(f"sqlite:///{tmp_path / 'memory.db'}", "--read-only") as client:
        tools = (await client.list_tools()).tools
        assert "memory_search" in {tool.name for tool in tools}
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)


def start(url: str) -> subprocess.Popen[bytes]:
    """Start a server whose streams the test uses itself."""
    return subprocess.Popen(
        [sys.executable, "-m", "agent_memory_log.cli", "mcp", "--store", url, *OPTIONS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )


def greet(process: subprocess.Popen[bytes]) -> bytes:
    """Send a first request, and return the answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    parameters = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters}
    process.stdin.write(msgspec.json.encode(request) + b"\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_a_server_ends_with_its_input_and_writes_only_answers(tmp_path: Path) -> None:
    with start(f"sqlite:///{tmp_path / 'memory.db'}") as process:
        assert msgspec.json.decode(greet(process))["result"]["serverInfo"]["name"] == "agent-memory-log"
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_a_signal_ends_a_server_that_waits(tmp_path: Path) -> None:
    with start(f"sqlite:///{tmp_path / 'memory.db'}") as process:
        greet(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_input_that_is_not_a_message_does_not_end_a_server(tmp_path: Path) -> None:
    with start(f"sqlite:///{tmp_path / 'memory.db'}") as process:
        assert process.stdin is not None
        process.stdin.write(b"not a message\n\xff\xfe\n[]\n")
        assert b'"result"' in greet(process) + greet(process)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_server_needs_a_principal() -> None:
    ran = run("mcp", "--store", "memory:", "--tenant", "acme")
    assert (ran.status, ran.out) == (2, "")
    assert "no user or scope" in ran.err


async def test_an_error_says_how_to_call_the_tool(tmp_path: Path) -> None:
    async with over_stdio(f"sqlite:///{tmp_path / 'memory.db'}") as client:
        result = await client.call_tool("memory_update", {"id": "unknown", "value": "x"})
        assert result.is_error
        assert result.structured_content["code"] == "invalid_argument"
        assert "Arguments of memory_update: {id: string, value?: string" in text_of(result)
