"""Tests that the reference page of the command line is complete and up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_memory_log.cli.app import COMMANDS
from agent_memory_log.cli.main import main
from agent_memory_log.cli.memory.app import memory_app
from agent_memory_log.memory.operations import METHODS
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


def test_every_option_names_its_value() -> None:
    assert "None`" not in (DOCS / "cli.md").read_text("utf-8")


OTHER_COMMANDS = {
    "add": "remember",
    "add_from_draft": "import",
    "write": "import",
    "get": "show",
    "update": "remember",
    "forget_all": "forget",
    "link_run": "link",
    "link_runs": "link",
    "as_of": "list",
    "trace_graph": "neighbours",
    "rederive": "derive",
    "purge": "maintain",
    "ask_consent": "consent",
    "give_consent": "consent",
    "withdraw_consent": "consent",
    "audit_events": "audit",
    "evolution_events": "evolution",
    "export_graph": "graph",
    "export_jsonl": "export",
    "import_jsonl": "import",
}
"""The calls of memory whose commands have other names."""

ONLY_FOR_PROGRAMS = {"note_stop", "texts_to_embed", "store_vectors", "drop_vectors"}


def test_every_call_of_memory_is_a_command() -> None:
    names = {command.name for command in memory_app.registered_commands}
    assert {OTHER_COMMANDS.get(method, method) for method in METHODS if method not in ONLY_FOR_PROGRAMS} <= names


def test_help_in_a_pipe_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: amlog show ")
