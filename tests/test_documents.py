"""Tests of the README and the general pages: examples run, and names, links and commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest

from agent_memory_log import Event, Reader, Snapshot, Store, ToolCall, ToolResult
from agent_memory_log.capabilities import BacksUp, Compacts
from agent_memory_log.memory import Memory
from agent_memory_log.recording import RunRecorder
from tests.integrations.frameworks import needs
from tests.processes import PATIENCE, ROOT

INTEGRATIONS = sorted((ROOT / "docs" / "integrations").glob("*.md"))
README = (ROOT / "README.md").read_text()
EXAMPLES = [
    "README.md",
    "docs/backends.md",
    "docs/graph.md",
    "docs/conflicts.md",
    "docs/processor.md",
    *(pytest.param(f"docs/integrations/{path.name}", marks=needs(path.stem)) for path in INTEGRATIONS),
]
PAGES = [path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))]
MOST_WORDS = 900

CHEAT_SHEET = {
    "store": (Store, Compacts, BacksUp),
    "snapshot": (Snapshot,),
    "event": (Event,),
    "call": (ToolCall,),
    "result": (ToolResult,),
    "recorder": (RunRecorder,),
    "memory": (Memory,),
    "reader": (Reader,),
}


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    process = subprocess.run(
        command, cwd=folder, env=os.environ | environment, check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert process.returncode == 0, f"{command}: {process.stderr}"


_RUN_EACH = """
import sys, types
for code in sys.argv[1:]:
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(code, vars(main))
"""
"""Runs each argument as a program of its own, in one process, because most of the time goes to imports."""


@pytest.mark.parametrize("document", EXAMPLES)
def test_examples_run_twice_in_the_same_folder(document: str, tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONWARNINGS": "error",
        "XDG_DATA_HOME": str(tmp_path),  # for a client without a store, as is the next one on macOS
        "HOME": str(tmp_path),
    }
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    programs_or_lines: list[tuple[str, str]] = []
    for language, block in 2 * blocks:
        if language == "python" and "import pytest" not in block:
            programs_or_lines.append((language, block))
        elif language == "console" and document == "README.md":
            programs_or_lines += [(language, line) for line in block.splitlines()]
    assert len(programs_or_lines) >= 2
    for language, group in groupby(programs_or_lines, key=itemgetter(0)):
        texts = [text for _, text in group]
        if language == "python":
            _run([sys.executable, "-c", _RUN_EACH, *texts], tmp_path, environment)
            continue
        for line in texts:
            assert line.startswith("$ ")
            if line.startswith("$ export "):
                name, value = line.removeprefix("$ export ").split("=", 1)
                environment[name] = value
            elif line.startswith("$ amlog "):
                _run(line.removeprefix("$ ").split(), tmp_path, environment)


def test_readme_is_short() -> None:
    prose = re.sub(r"^```.*?^```$|^\|.*?$|^ *<[^>]*>.*?$", "", README, flags=re.MULTILINE | re.DOTALL)
    assert len(prose.split()) <= MOST_WORDS


def test_make_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    mentioned = set(re.findall(r"`make ([\w-]+)`", README))
    assert mentioned >= {"demo", "test", "site"}
    assert mentioned <= targets


@pytest.mark.parametrize("document", PAGES)
def test_linked_files_exist(document: str) -> None:
    folder = (ROOT / document).parent
    text = re.sub(r"^```.*?^```$", "", (ROOT / document).read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r'\]\(([^)#\s]+)|(?:src|srcset)="([^"]+)"', text):
        path = target[0] or target[1]
        if not path.startswith("http"):
            assert (folder / path).exists(), path


def test_names_of_the_cheat_sheet_exist() -> None:
    names = set(re.findall(r"\b([a-z]+)\.([a-z_]+)\b", _answers("cheat-sheet.md") + _answers("from-go.md")))
    checked = [(name, attribute) for name, attribute in names if name in CHEAT_SHEET]
    assert len(checked) > 30
    for name, attribute in checked:
        assert any(hasattr(owner, attribute) for owner in CHEAT_SHEET[name]), f"{name}.{attribute}"


def _answers(page: str) -> str:
    """Return the last column of a page's tables."""
    rows = re.findall(r"^\|.*\|([^|]+)\|$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return "\n".join(rows)
