"""What the README shows runs: its Python blocks as programs, its amlog commands on the store those left behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import PATIENCE, ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"


def test_every_block_runs(tmp_path: Path) -> None:
    commands = Path(sys.executable).parent
    environment = {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "PYTHONWARNINGS": "error"}
    ran = 0
    for language, block in BLOCKS:
        if language == "python":
            _run([sys.executable, "-c", block], tmp_path, environment)
            ran += 1
        if language == "console":
            for line in block.splitlines():
                assert line.startswith("$ ")
                if line.startswith("$ export "):
                    name, value = line.removeprefix("$ export ").split("=", 1)
                    environment[name] = value
                elif line.startswith("$ amlog "):
                    _run(line.removeprefix("$ ").split(), tmp_path, environment)
                    ran += 1
    assert ran >= 7


def test_the_make_commands_it_names_are_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^\$ make (\w+)", README, re.MULTILINE))
    assert named
    assert named <= targets


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / document).read_text()):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
