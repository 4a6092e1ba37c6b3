"""Starts the programs of ``tests.programs`` and waits for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PATIENCE = 120
"""The number of seconds after which a process that still runs fails the test."""

PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    *(f"-pno:{name}" for name in ("cacheprovider", "asyncio", "schemathesis")),
)
"""The command that starts pytest without plugins that its tests do not need. Schemathesis alone takes a second."""


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start a program. The test reads its standard output."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.programs", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a program that must succeed. Return its standard output."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out


def run(*arguments: str) -> str:
    """Start a program and wait for it. Return its standard output."""
    return finish(start(*arguments))


def last_number_of(process: subprocess.Popen[str]) -> int:
    """Kill a program after twenty lines, and return the number in its last line."""
    with process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(20)]
        process.kill()
        return int([*lines, *process.stdout][-1])
