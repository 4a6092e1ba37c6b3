"""Runs the programs of docs/replay.md, its commands on the store that they write, and its regression test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.documents import blocks_of, run_blocks
from tests.processes import PATIENCE, PYTEST

BLOCKS = blocks_of("docs/replay.md")
STORE = "sqlite:///runs.db"

FRAGMENT = "async with recorder.tool_call("
"""The beginning of the only block that is a part of a program and not a complete one."""

MY_AGENT = """
def answer(question, ask_model, run_tool):
    for call in ask_model().tool_calls:
        run_tool(call)
    return ask_model().text
"""


def _run(command: list[str], folder: Path, **environment: str) -> str:
    completed = subprocess.run(
        command, cwd=folder, env=os.environ | environment, check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert completed.returncode == 0, f"{command}: {completed.stdout}{completed.stderr}"
    return completed.stdout


def _programs() -> list[str]:
    return [
        block
        for language, block in BLOCKS
        if language == "python" and not block.startswith((FRAGMENT, "# test_agent.py"))
    ]


def test_programs_and_commands_of_the_page_succeed(tmp_path: Path) -> None:
    programs = _programs()
    assert len(programs) >= 7
    (tmp_path / "tests").mkdir()
    commands = [(language, block) for language, block in BLOCKS if language == "console"]
    outputs = run_blocks([*(("python", program) for program in programs), *commands], tmp_path, AMLOG_STORE=STORE)
    assert len(outputs) >= 6
    assert (tmp_path / "tests" / "run-42.jsonl").exists()


def test_regression_test_of_the_page_passes(tmp_path: Path) -> None:
    (regression_test,) = (
        block for language, block in BLOCKS if language == "python" and block.startswith("# test_agent.py")
    )
    (recording,) = (block for block in _programs() if "def agent(question" in block)
    (tmp_path / "test_agent.py").write_text(regression_test)
    (tmp_path / "my_agent.py").write_text(MY_AGENT)
    recording = recording.split("\n\ndef agent(question")[0].replace('"memory:"', '"sqlite:///runs.db"')
    _run([sys.executable, "-c", recording], tmp_path)
    amlog = [sys.executable, "-m", "agent_memory_log.cli", "export", "run-42", "-o", "run-42.jsonl"]
    _run(amlog, tmp_path, AMLOG_STORE=STORE)
    out = _run([*PYTEST], tmp_path)
    assert "1 passed" in out


def test_live_agent_of_the_page_is_recorded_and_replayed(tmp_path: Path) -> None:
    (block,) = (block for block in _programs() if block.startswith("# test_live_agent.py"))
    (tmp_path / "test_live_agent.py").write_text(block)
    assert "1 passed" in _run([*PYTEST, "--amlog-record=missing"], tmp_path)
    assert (tmp_path / "run-43.jsonl").exists()
    assert "1 passed" in _run([*PYTEST], tmp_path)
