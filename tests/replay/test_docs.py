"""What docs/replay.md shows runs: its programs, its commands on the store they leave behind, its test in a pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.processes import PATIENCE, ROOT

PAGE = (ROOT / "docs" / "replay.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

FRAGMENT = "async with recorder.tool_call("
"""How the one block begins that shows lines of a program, and is none itself."""

MY_AGENT = """
def answer(question, ask_model, run_tool):
    for asked in ask_model().tool_calls:
        run_tool(asked)
    return ask_model().text
"""


def _run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def _programs() -> list[str]:
    return [
        block
        for language, block in BLOCKS
        if language == "python" and not block.startswith((FRAGMENT, "# test_agent.py"))
    ]


def test_programs_and_commands_run(tmp_path: Path) -> None:
    programs = _programs()
    assert len(programs) >= 7
    for program in programs:
        _run([sys.executable, "-c", program], tmp_path, PYTHONWARNINGS="error")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "tests").mkdir()
    ran = 0
    for line in (line for language, block in BLOCKS if language == "console" for line in block.splitlines()):
        if line.startswith("$ amlog "):
            _run(line.removeprefix("$ ").split(), tmp_path, PATH=path, AMLOG_STORE="sqlite:///runs.db")
            ran += 1
    assert ran >= 6
    assert (tmp_path / "tests" / "run-42.jsonl").exists()


def test_the_regression_test_passes(tmp_path: Path) -> None:
    (shown,) = (block for language, block in BLOCKS if language == "python" and block.startswith("# test_agent.py"))
    (recording,) = (block for block in _programs() if "def agent(question" in block)
    (tmp_path / "test_agent.py").write_text(shown)
    (tmp_path / "my_agent.py").write_text(MY_AGENT)
    recording = recording.split("\n\ndef agent(question")[0].replace('"memory:"', '"sqlite:///runs.db"')
    _run([sys.executable, "-c", recording], tmp_path)
    amlog = [sys.executable, "-m", "agent_memory_log.cli", "export", "run-42", "-o", "run-42.jsonl"]
    _run(amlog, tmp_path, AMLOG_STORE="sqlite:///runs.db")
    out = _run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"], tmp_path)
    assert "1 passed" in out


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert target == "interchange.md" or (ROOT / "docs" / target).exists(), target
