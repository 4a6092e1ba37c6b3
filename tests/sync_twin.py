"""Makes the twins without ``await`` of the memory clients: ``python -m tests.sync_twin``.

A twin differs from its source in ``await`` and in names, and in nothing else; what does the work is shared.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_FOLDER = Path(__file__).parent.parent / "agent_memory_log" / "memory"
TWINS = {_FOLDER / "client.py": _FOLDER / "sync.py", _FOLDER / "calls.py": _FOLDER / "sync_calls.py"}
"""The file that is made from each source."""

_DOCSTRING = '''"""What ``{source}`` holds, without ``await``, for a ``SyncStore``; any number of threads may use it.

Made by ``python -m tests.sync_twin``: change ``{source}``, and make this file again.
"""
'''
_CHANGES = (
    (r"async def ", "def "),
    (r"await (?=self\.|run_async)", ""),
    (r"await me\.", "me."),
    (r"\brun_async\b", "run_sync"),
    (r"memory\.calls import", "memory.sync_calls import"),
    (r"\bMemoryClient\b", "SyncMemoryClient"),
    (r"\bMemory\b(?=[:(`]|$)", "SyncMemory"),
    (r"\bStore\b(?!\.)", "SyncStore"),
)


def made(source: Path) -> str:
    """What the twin of a source must be."""
    twin, text = TWINS[source], source.read_text()
    docstring = _DOCSTRING.format(source=source.name)
    text = re.sub(r'^""".*?"""\n', lambda _: docstring, text, count=1, flags=re.DOTALL)
    for pattern, replacement in _CHANGES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    formatted = subprocess.run(
        [Path(sys.executable).parent / "ruff", "format", "--stdin-filename", twin, "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    sorted_imports = subprocess.run(
        [Path(sys.executable).parent / "ruff", "check", "--select", "I", "--fix", "-q", "--stdin-filename", twin, "-"],
        input=formatted.stdout,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted_imports.stdout


if __name__ == "__main__":
    for file, twin in TWINS.items():
        twin.write_text(made(file))
