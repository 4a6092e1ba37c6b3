"""Tests that an acknowledgement follows an fsync. strace counts them, because a killed process needs no fsync."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes

STRACE = shutil.which("strace")
needs_strace = pytest.mark.skipif(STRACE is None, reason="strace counts the system calls, and is not installed")

COUNT = 40


def _calls(tmp_path: Path, program: str, durability: str) -> list[str]:
    """Return a program's fsyncs (``sync``) and acknowledgements (``stored``), in the kernel's order."""
    assert STRACE is not None
    report = tmp_path / "calls"
    url = f"sqlite:///{tmp_path / 'runs.db'}?durability={durability}"
    command = [sys.executable, "-m", "tests.programs", program, url, str(COUNT)]
    subprocess.run(
        [STRACE, "-f", "-qq", "-e", "trace=fsync,fdatasync,write", "-o", str(report), *command],
        cwd=processes.ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=processes.PATIENCE,
    )
    calls: list[str] = []
    for line in report.read_text(errors="replace").splitlines():
        if re.search(r"\bf(data)?sync\(", line):
            calls.append("sync")
        elif 'write(1, "stored' in line:
            calls.append("stored")
    assert calls.count("stored") == COUNT
    return calls


@needs_strace
def test_each_acknowledgement_follows_its_own_fsync(tmp_path: Path) -> None:
    previous = ""
    for call in _calls(tmp_path, "append_counted", "full"):
        assert call == "sync" or previous == "sync", "acknowledged without an fsync since the last acknowledgement"
        previous = call


@needs_strace
def test_waiting_tasks_share_an_fsync(tmp_path: Path) -> None:
    calls = _calls(tmp_path, "append_counted_async", "full")
    assert "sync" in calls[: calls.index("stored")], "the first acknowledgement came before any fsync"
    first, last = calls.index("stored"), len(calls) - calls[::-1].index("stored")
    assert calls[first:last].count("sync") < COUNT / 2


@needs_strace
def test_durability_os_makes_no_fsync(tmp_path: Path) -> None:
    calls = _calls(tmp_path, "append_counted", "os")
    first, last = calls.index("stored"), len(calls) - calls[::-1].index("stored")
    assert "sync" not in calls[first:last]
