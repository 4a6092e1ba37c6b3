"""Tests that run the tutorials: they save the files, run the commands, and compare the output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import PATIENCE, ROOT

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r'^```(python|console)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def commands_in(block: str) -> list[tuple[str, str]]:
    """Return each command of a console block with its output."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts[1:])]


def matches(output: str, expected: str) -> bool:
    """Return whether the output is the expected one. An ellipsis (…) matches any text."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("…"))
    return re.fullmatch(pattern, output.strip(), re.DOTALL) is not None


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_runs_as_written(tutorial: Path, tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONWARNINGS": "error",
        "PYTHONUNBUFFERED": "1",
        "PYTEST_ADDOPTS": "-p no:asyncio -p no:cacheprovider -p no:schemathesis",
        "TZ": "UTC",
    }
    commands = 0
    for language, title, text in BLOCK.findall(tutorial.read_text()):
        if language == "python":
            (tmp_path / title).write_text(text)
            continue
        for command, expected in commands_in(text):
            if command.startswith("pip install"):
                continue
            shell = ["bash", "-c", f"{command}\nexit $?"]  # a separate shell reports a killed command
            process = subprocess.run(
                shell, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=PATIENCE
            )
            output = re.sub(
                r"^bash: line \d+: +\d+ Killed.*$", "Killed", process.stdout + process.stderr, flags=re.MULTILINE
            )
            assert matches(output, expected), f"$ {command}\n{output}"
            commands += 1
    assert commands >= 4


def test_different_output_does_not_match() -> None:
    assert matches("one\ntwo 17 ms\n", "one\ntwo … ms")
    assert not matches("one\ntwo\nthree\n", "one\ntwo")
    assert commands_in("$ a\nx\ny\n$ b\n") == [("a", "x\ny\n"), ("b", "")]
