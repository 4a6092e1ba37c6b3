"""Makes the twins without ``await``: ``python -m tools.sync_twin``; ``--check`` only says whether they are as made.

A twin differs from its source in ``await`` and in names, and in nothing else; what does the work is shared.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_MEMORY = "agent_memory_log/memory"
TWINS = {f"{_MEMORY}/client.py": f"{_MEMORY}/sync.py", f"{_MEMORY}/calls.py": f"{_MEMORY}/sync_calls.py"}
"""The file that is made from each source."""

_DOCSTRING = '''"""Made from ``{source}`` by ``python -m tools.sync_twin``: the same without ``await``.

It works on a ``SyncStore``, and any number of threads may use it.
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


def made(source: str) -> str:
    """What the twin of a source must be."""
    path = _ROOT / source
    docstring = _DOCSTRING.format(source=path.name)
    text = re.sub(r'^""".*?"""\n', lambda _: docstring, path.read_text(), count=1, flags=re.DOTALL)
    for pattern, replacement in _CHANGES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return _ruff(_ruff(text, source, "format"), source, "check", "--select", "I", "--fix", "-q")


def _ruff(text: str, name: str, *command: str) -> str:
    program = [str(Path(sys.executable).parent / "ruff"), *command, "--stdin-filename", name, "-"]
    return subprocess.run(program, input=text, capture_output=True, text=True, check=True, cwd=_ROOT).stdout


def main() -> int:
    """Make the twins, or check them."""
    stale = [twin for source, twin in TWINS.items() if (_ROOT / twin).read_text() != made(source)]
    if "--check" in sys.argv[1:]:
        for twin in stale:
            sys.stderr.write(f"{twin} is not what its source makes: run python -m tools.sync_twin\n")
        return len(stale)
    for source, twin in TWINS.items():
        (_ROOT / twin).write_text(made(source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
