"""Programs that the tests of Anthropic's memory tool run as processes."""

from __future__ import annotations

import sys

from agent_memory_log.integrations.anthropic_memory import MemoryLogMemoryTool
from tests.programs import acknowledge


def insert_lines(url: str, name: str, count: str) -> None:
    """Insert lines at the beginning of a file, while another process does the same."""
    with MemoryLogMemoryTool(url, user="42") as tool:
        acknowledge("ready")
        sys.stdin.readline()
        for number in range(int(count)):
            text = f"{name} {number}"
            tool.call({"command": "insert", "path": "/memories/notes.txt", "insert_line": 0, "insert_text": text})


def rename_until_killed(url: str) -> None:
    """Rename a directory there and back. Print the number of each rename."""
    tool = MemoryLogMemoryTool(url, user="42")
    number = 0
    while True:
        old, new = ("/memories/left", "/memories/right")[:: -1 if number % 2 else 1]
        tool.call({"command": "rename", "old_path": old, "new_path": new})
        acknowledge(str(number))
        number += 1


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
