"""Runs the example ``anthropic_memory_chat`` as a program, with a local server as its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.example_programs.chats import run_chat
from tests.models.model_server import ModelServer, Reply, Request


def respond(request: Request) -> Reply:
    """Answer as Anthropic's Messages API: keep a note or view it, and say the result of the tool."""
    last = request.body["messages"][-1]["content"]
    path = "/memories/home.md"
    block: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "memory"}
    if isinstance(last, list):
        block = {"type": "text", "text": last[-1]["content"]}
    elif last == "Where do I live?":
        block |= {"input": {"command": "view", "path": path}}
    else:
        block |= {"input": {"command": "create", "path": path, "file_text": last}}
    reason = "end_turn" if block["type"] == "text" else "tool_use"
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [block]}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return Reply(body=json.dumps({**message, "stop_reason": reason, "stop_sequence": None, "usage": usage}).encode())


def test_second_process_remembers_and_forgets(tmp_path: Path) -> None:
    with ModelServer(respond) as server:
        environment = {"ANTHROPIC_BASE_URL": server.url.removesuffix("/v1"), "ANTHROPIC_API_KEY": "sk-test"}

        def run(*arguments: str) -> str:
            return run_chat("anthropic_memory_chat.py", tmp_path, environment, *arguments)

        assert run("I live in Berlin.").splitlines()[0] == "File created successfully at: /memories/home.md"
        assert "     1\tI live in Berlin." in run("Where do I live?")
        assert "home.md" not in run("--user", "kai")
        assert "events erased" in run("--forget", "/memories")
        assert "home.md" not in run()
