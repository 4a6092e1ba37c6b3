"""Makes ``agent_memory_log/memory/sync.py`` from ``client.py``: ``python -m tests.sync_twin``.

The two differ in ``await`` and in names, and in nothing else; what does the work is shared.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_FOLDER = Path(__file__).parent.parent / "agent_memory_log" / "memory"
SOURCE = _FOLDER / "client.py"
TWIN = _FOLDER / "sync.py"

_DOCSTRING = '''"""The clients without ``await``, for a ``SyncStore``; any number of threads may use one.

Made from ``client.py`` by ``python -m tests.sync_twin``: change that file, and make this one again.
"""
'''
_CHANGES = (
    (r"async def ", "def "),
    (r"await (?=self\.|run_async)", ""),
    (r"await me\.", "me."),
    (r"\brun_async\b", "run_sync"),
    (r"\bMemoryClient\b", "SyncMemoryClient"),
    (r"\bMemory\b(?=[:(]|$)", "SyncMemory"),
    (r"\bStore\b(?!\.)", "SyncStore"),
)


def made() -> str:
    """What the twin must be."""
    text = re.sub(r'^""".*?"""\n', lambda _: _DOCSTRING, SOURCE.read_text(), count=1, flags=re.DOTALL)
    for pattern, replacement in _CHANGES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    formatted = subprocess.run(
        [Path(sys.executable).parent / "ruff", "format", "--stdin-filename", TWIN, "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    sorted_imports = subprocess.run(
        [Path(sys.executable).parent / "ruff", "check", "--select", "I", "--fix", "-q", "--stdin-filename", TWIN, "-"],
        input=formatted.stdout,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted_imports.stdout


if __name__ == "__main__":
    TWIN.write_text(made())
