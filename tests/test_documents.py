"""Tests of the README and the general pages: examples run, and names, links and commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_memory_log import Event, Reader, Snapshot, Store, ToolCall, ToolResult
from agent_memory_log.capabilities import BacksUp, Compacts
from agent_memory_log.memory import Memory
from agent_memory_log.recording import RunRecorder
from tests.documents import blocks_of, run_blocks
from tests.integrations.frameworks import needs
from tests.processes import ROOT

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


@pytest.mark.parametrize("document", EXAMPLES)
def test_examples_run_twice_in_the_same_folder(document: str, tmp_path: Path) -> None:
    blocks = [
        (language, text)
        for language, text in blocks_of(document)
        if (language == "python" and "import pytest" not in text) or (language == "console" and document == "README.md")
    ]
    assert blocks
    run_blocks(2 * blocks, tmp_path)


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
