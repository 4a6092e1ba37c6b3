"""Runs the chats among the examples as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agent_memory_log import open_sync_store
from agent_memory_log.memory import Principal, SyncMemoryClient
from tests.processes import PATIENCE, ROOT


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
