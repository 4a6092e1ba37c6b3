"""What the programs that generate code share: formatting, and writing or checking files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def formatted(text: str, path: Path) -> str:
    """Python code as this project formats it, without imports that nothing uses."""
    for command in (("check", "--select", "I,F401", "--fix", "-q"), ("format",)):
        program = [str(Path(sys.executable).parent / "ruff"), *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(program, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def write_or_check(files: Mapping[Path, str]) -> int:
    """Write the files; with ``--check`` among the program's arguments, name those that differ and return how many."""
    if "--check" not in sys.argv[1:]:
        for path, text in files.items():
            path.write_text(text)
        return 0
    stale = [path for path, text in files.items() if path.read_text() != text]
    for path in stale:
        sys.stderr.write(f"{path.relative_to(ROOT)} is not what its source makes: run make generate\n")
    return len(stale)
