"""Runs the example ``google_adk_sessions`` as a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.amlog import environment
from tests.processes import PATIENCE, ROOT


def test_program_shows_log_state_and_memory(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, ROOT / "examples" / "google_adk_sessions.py", tmp_path / "runs.db"],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert completed.returncode == 0, completed.stderr
    assert "log: 4 tool_result" in completed.stdout
    assert "state of a new session: {'user:note': 'I live in Berlin.'}" in completed.stdout
    assert "memory: ['I live in Berlin.']" in completed.stdout
