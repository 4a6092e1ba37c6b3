"""Runs the example ``agent_loop`` as a program: it compacts, is killed, and knows its decision."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agent_memory_log import Reader, ToolCall, decode_event, open_sync_store
from tests.amlog import environment
from tests.processes import PATIENCE, ROOT


def test_killed_loop_knows_its_decision(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, ROOT / "examples" / "agent_loop.py", tmp_path / "runs.db"],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert completed.returncode == 0, completed.stderr
    died, lived = completed.stdout.split("process lives\n")
    assert "compacted" in died
    assert "Done" not in died
    assert "decided: I'll use SQLite for the cache" in lived
    assert "finished the call that was open" in lived
    assert "The cache has 12 parts, and uses SQLite, as I decided." in lived
    with open_sync_store(f"sqlite:///{tmp_path}/runs.db") as store:
        reader = Reader(store.load_run("coder", "task-7"))
        assert reader.open_tool_calls() == ()
        paths = [f'"part_{number}.py"' for number in range(1, 13)]
        calls = [decode_event(event, ToolCall).payload_json for event in reader.tool_calls()]
        assert [path for path in paths for call in calls if path in call] == paths
