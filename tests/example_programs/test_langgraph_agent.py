"""Tests that the LangGraph example continues a stopped agent and reads its log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_agent_stops_continues_and_is_read(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "examples" / "langgraph_agent.py", tmp_path / "runs.db"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [
        "the agent waits: Send the mail?",
        "the agent answers: Done: Ann has the report.",
        "typed events: ['tool_call', 'tool_result']",
        "transcript: ['user', 'assistant', 'user', 'assistant']",
        "memories: ['preferred_answer: preferred_answer: short answers']",
    ]
