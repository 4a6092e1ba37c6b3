"""Runs the chat of the OpenAI Agents SDK as processes, with a local server as its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.example_programs.chats import remembered, run_chat
from tests.models.model_server import ModelServer, Reply, Request


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
