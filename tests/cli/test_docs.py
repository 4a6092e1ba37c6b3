"""Tests that the reference page of the command line is complete and up to date."""

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


def test_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.cli_page", "--check"],
        cwd=DOCS.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_reference_has_every_command_with_its_help() -> None:
    page = (DOCS / "cli.md").read_text("utf-8")
    sections = re.findall(r"^## `amlog (\w+)[^`]*`\n\n(.+)$", page, re.MULTILINE)
    assert {name for name, _ in sections} == set(COMMANDS)
    assert all(text.endswith(".") for _, text in sections)


def test_every_option_has_help() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", (DOCS / "cli.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 40
    assert [name for name, text in rows if not text.strip()] == []


def test_help_in_a_pipe_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: amlog show ")
