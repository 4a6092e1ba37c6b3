"""Makes the twins without ``await``: ``python -m tools.sync_twin``; ``--check`` only compares.

A twin differs from its source in ``await`` and in names, and in nothing else; what does the work is shared.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.generated import ROOT, formatted, write_or_check

_MEMORY = ROOT / "agent_memory_log/memory"
TWINS = {_MEMORY / "client.py": _MEMORY / "sync.py", _MEMORY / "calls.py": _MEMORY / "sync_calls.py"}
"""The file that is made from each source."""

_DOCSTRING = '''"""Made from ``{source}`` by ``python -m tools.sync_twin``: without ``await``, on a ``SyncStore``.

Any number of threads may use it.
"""
'''
_CHANGES = (
    (r"async def ", "def "),
    (r"await (?=self\.|run_async)", ""),
    (r"\brun_async\b", "run_sync"),
    (r"memory\.calls import", "memory.sync_calls import"),
    (r"\bMemoryClient\b", "SyncMemoryClient"),
    (r"await me\.", "me."),
    (r"\bMemory\b(?=[:(`]|$)", "SyncMemory"),
    (r"\bStore\b(?!\.)", "SyncStore"),
)


def made(source: Path) -> str:
    """What the twin of a source must be."""
    docstring = _DOCSTRING.format(source=source.name)
    text = re.sub(r'^""".*?"""\n', lambda _: docstring, source.read_text(), count=1, flags=re.DOTALL)
    for pattern, replacement in _CHANGES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return formatted(text, TWINS[source])


if __name__ == "__main__":
    sys.exit(write_or_check({twin: made(source) for source, twin in TWINS.items()}))
