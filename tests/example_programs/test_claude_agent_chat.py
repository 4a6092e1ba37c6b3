"""Runs the chat of the Claude Agent SDK as processes, with a local server as its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.example_programs.chats import remembered, run_chat
from tests.models.model_server import ModelServer, Reply, Request


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
