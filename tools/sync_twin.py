"""Makes the twins without ``await``: ``python -m tools.sync_twin``; ``--check`` only compares.

A twin differs from its sources in ``await`` and in names, and in nothing else; what does the work is shared.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from tools.generated import ROOT, formatted, write_or_check

_MEMORY = ROOT / "agent_memory_log/memory"
TWINS = {_MEMORY / "sync.py": (_MEMORY / "client.py", _MEMORY / "calls.py")}
"""Each file that is made, and its sources, the one that uses the others first."""

_DOCSTRING = '''"""Made from {sources} by ``python -m tools.sync_twin``: without ``await``, on a ``SyncStore``.

Any number of threads may use it.
"""
'''
_CHANGES = (
    (r"async def ", "def "),
    (r"await (?=self\.|run_async)", ""),
    (r"\brun_async\b", "run_sync"),
    (r"\bMemoryClient\b", "SyncMemoryClient"),
    (r"await me\.", "me."),
    (r"\bMemory\b(?=[:(`]|$)", "SyncMemory"),
    (r"\bStore\b(?!\.)", "SyncStore"),
)


def made(sources: tuple[Path, ...], twin: Path) -> str:
    """What a twin must be: the imports of its sources, but for those of each other, then what they hold."""
    own = {".".join(source.relative_to(ROOT).with_suffix("").parts) for source in sources}
    imports: list[str] = []
    bodies: list[str] = []
    for source in sources:
        text = source.read_text()
        statements = ast.parse(text).body[1:]  # without the docstring
        lines = text.splitlines(keepends=True)
        last = max(node.end_lineno or 0 for node in statements if isinstance(node, (ast.Import, ast.ImportFrom)))
        imports += [
            ast.unparse(node)
            for node in statements
            if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module not in own)
        ]
        bodies.append("".join(lines[last:]))
    text = "\n".join([*dict.fromkeys(imports), *bodies])
    for pattern, replacement in _CHANGES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    docstring = _DOCSTRING.format(sources=" and ".join(f"``{source.name}``" for source in sources))
    return formatted(docstring + text, twin)


if __name__ == "__main__":
    sys.exit(write_or_check({twin: made(sources, twin) for twin, sources in TWINS.items()}))
