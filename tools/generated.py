"""Helpers of the programs that generate files: they format Python code, and write or check files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def formatted(text: str, path: Path) -> str:
    """Return Python code in the format of this project, without unused imports."""
    for command in (("check", "--select", "I,F401", "--fix", "-q"), ("format",)):
        program = [str(Path(sys.executable).parent / "ruff"), *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(program, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def write_or_check(files: Mapping[Path, str]) -> int:
    """Write the files and return 0. With ``--check`` in the program's arguments, only report the files that differ.

    Returns:
        The number of files that differ, as the exit status.
    """
    if "--check" not in sys.argv[1:]:
        for path, text in files.items():
            path.write_text(text)
        return 0
    stale = [path for path, text in files.items() if path.read_text() != text]
    for path in stale:
        sys.stderr.write(f"{path.relative_to(ROOT)} differs from its source: run make generate\n")
    return len(stale)
