"""Runs the example ``pydantic_ai_chat`` as a program, in two processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.amlog import environment
from tests.processes import PATIENCE, ROOT


def chat(folder: Path, *texts: str) -> str:
    completed = subprocess.run(
        [sys.executable, ROOT / "examples" / "pydantic_ai_chat.py", folder / "runs.db", *texts],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_second_process_remembers(tmp_path: Path) -> None:
    assert "agent: Hello." in chat(tmp_path, "I live in Berlin.")
    output = chat(tmp_path, "Hm.", "Where is Berlin?")
    assert "memories: ['home: Berlin']" in output
    assert "agent: I remember: " in output
    assert "Berlin" in output.partition("agent: I remember: ")[2].splitlines()[0]
