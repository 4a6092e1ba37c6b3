"""Runs the programs and the amlog commands of docs/memory.md, in order, on the store that they create."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from agent_memory_log.memory import ClientSettings
from tests.amlog import environment
from tests.processes import PATIENCE, ROOT

PAGE = (ROOT / "docs" / "memory.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def _run(command: list[str], folder: Path, **changes: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment(**changes), check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


def test_programs_and_commands_run(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    programs = commands = 0
    for language, block in BLOCKS:
        if language == "python":
            own = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}  # for the client without a store
            _run([sys.executable, "-c", block], tmp_path, PYTHONWARNINGS="error", **own)
            programs += 1
        for line in block.splitlines() if language == "console" else ():
            if line.startswith("$ amlog "):
                command = line.removeprefix("$ ").split()
                assert _run(command, tmp_path, PATH=path, AMLOG_STORE="sqlite:///runs.db"), line
                commands += 1
    assert programs == 11
    assert commands == 8


def test_the_program_about_upkeep_runs(tmp_path: Path) -> None:
    (program,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "upkeep.md").read_text(), re.MULTILINE | re.DOTALL
    )
    _run([sys.executable, "-c", program], tmp_path, PYTHONWARNINGS="error")


def test_every_key_of_the_configuration_is_described() -> None:
    for key in ClientSettings.__struct_fields__:
        assert f"`{key}`" in PAGE
        assert f"`AMLOG_{key.upper()}`" in PAGE


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
