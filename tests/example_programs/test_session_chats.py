"""Runs the chats of the agent SDKs as processes, with a local server as their model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_memory_log import open_sync_store
from agent_memory_log.memory import Principal, SyncMemoryClient
from tests.models.model_server import ModelServer, Reply, Request
from tests.processes import PATIENCE, ROOT

Respond = Callable[[dict[str, Any]], list[dict[str, Any]]]


def run_chat(program: str, folder: Path, environment: dict[str, str], *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / program), *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def remembered(folder: Path) -> list[str]:
    with open_sync_store(f"sqlite:///{folder}/chat.db") as store:
        memory = SyncMemoryClient(store).of(Principal(tenant="example", scopes={"user": "kim"}))
        return [record.key for record in memory.list()]


def responses(request: Request) -> Reply:
    """Answer as OpenAI's Responses API: call the tool if the user asks for a name, and say the name in its result."""
    items = request.body["input"]
    last = items[-1]
    if last.get("type") == "function_call_output":
        text = "Kim" if "Kim" in last["output"] else "unknown"
    else:
        text = f"{len(items)} items"
    message: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
    output: dict[str, Any] = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [message],
    }
    if last.get("content") == "What is my name?":
        arguments = json.dumps({"query": "name of the user"})
        output = {"type": "function_call", "id": "f", "call_id": "c", "name": "search_memory", "arguments": arguments}
    body = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [output]}
    rest: dict[str, Any] = {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    return Reply(body=json.dumps({**body, **rest}).encode())


def test_chat_with_openai_agents_keeps_history_and_memory(tmp_path: Path) -> None:
    with ModelServer(responses) as server:
        environment = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-test", "OPENAI_AGENTS_DISABLE_TRACING": "1"}

        def say(session: str, text: str) -> str:
            return run_chat("openai_agents_chat.py", tmp_path, environment, "--session", session, text)

        assert say("monday", "Call me Kim.") == "1 items\n"
        assert say("monday", "Where is my order?") == "3 items\n"
        assert remembered(tmp_path) == ["preferred_name"]
        assert say("tuesday", "What is my name?") == "Kim\n"


def messages(request: Request) -> Reply:
    """Answer as Anthropic's Messages API, as a stream: name the prompts of the user that the request has."""
    prompts: list[str] = [
        part["text"] if isinstance(part, dict) else part
        for message in request.body["messages"]
        if message["role"] == "user"
        for part in ([message["content"]] if isinstance(message["content"], str) else message["content"])
    ]
    text = " | ".join(prompt for prompt in prompts if prompt in ("Call me Kim.", "Where is my order?"))
    start: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    usage = {"input_tokens": 1, "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**start, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Reply(body=body.encode(), headers={"Content-Type": "text/event-stream"})


def test_chat_with_claude_resumes_from_the_store(tmp_path: Path) -> None:
    with ModelServer(messages) as server:
        environment = {
            "ANTHROPIC_BASE_URL": server.url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": "sk-test",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "HOME": str(tmp_path),
        }
        first = run_chat("claude_agent_chat.py", tmp_path, environment, "Call me Kim.")
        answer, session_line = first.splitlines()
        assert answer == "Call me Kim."
        session_id = session_line.removeprefix("[session ").removesuffix("]")
        # The second machine has only the store.
        environment["CLAUDE_CONFIG_DIR"] = str(tmp_path / "another")
        second = run_chat("claude_agent_chat.py", tmp_path, environment, "--resume", session_id, "Where is my order?")
        assert second.splitlines()[0] == "Call me Kim. | Where is my order?"
    assert remembered(tmp_path) == ["preferred_name"]
