"""The official conformance suite of MCP judges ``amlog serve``."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.integrations.mcp_conformance import NODE, PROGRAM
from tests.service.mcp.sessions import http_server
from tests.waiting import PATIENCE

PASSED = {
    "server-initialize": 1,
    "ping": 1,
    "tools-list": 1,
    "resources-list": 1,
    "prompts-list": 1,
    "dns-rebinding-protection": 2,
}
"""The scenarios for every server, with the number of their checks."""

OTHERS = re.compile(
    r"(tools-call|elicitation|resources-read|resources-templates|prompts-get|json-schema|server-sse)-.*"
    r"|logging-set-level|completion-complete|resources-(un)?subscribe"
)
"""The other scenarios, which need tools and resources with names of the suite, or parts of MCP that we do not offer."""


def conformance(*arguments: str) -> str:
    """Run the program of the suite, and return its output."""
    ran = subprocess.run(
        [NODE, PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE, cwd=PROGRAM.parent
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(autouse=True)
def installed() -> None:
    if "AMLOG_INTEGRATIONS" not in os.environ:
        pytest.skip("needs downloads: make integrations")
    if not PROGRAM.is_file():
        pytest.skip(f"{PROGRAM} is not there")


@pytest.mark.parametrize("scenario", PASSED)
def test_scenario(scenario: str, tmp_path: Path) -> None:
    with http_server(f"sqlite:///{tmp_path / 'runs.db'}") as address:
        output = conformance("server", "--url", address, "--scenario", scenario, "-o", str(tmp_path / "results"))
    assert re.search(rf"Passed: {PASSED[scenario]}/{PASSED[scenario]}, 0 failed", output), output


def test_every_other_scenario_is_known() -> None:
    names = re.findall(r"^  - ([\w-]+) \[", conformance("list").partition("Client scenarios")[0], re.MULTILINE)
    assert [name for name in names if name not in PASSED and not OTHERS.fullmatch(name)] == []
