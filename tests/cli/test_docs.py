"""The command line's reference is what the commands say, and none of them is left out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_memory_log.cli.app import COMMANDS
from agent_memory_log.cli.main import main
from tests.amlog import PATIENCE

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "generate_cli.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_is_in_the_reference_and_has_help() -> None:
    page = (DOCS / "cli.md").read_text("utf-8")
    sections = re.findall(r"^## `amlog (\w+)[^`]*`\n\n(.+)$", page, re.MULTILINE)
    assert {name for name, _ in sections} == set(COMMANDS)
    assert all(text.endswith(".") for _, text in sections)


def test_every_option_says_what_it_does() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", (DOCS / "cli.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 40
    assert [name for name, text in rows if not text.strip()] == []


def test_help_off_a_terminal_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: amlog show ")
