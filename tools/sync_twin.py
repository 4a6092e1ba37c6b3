"""Generates the synchronous modules: ``python -m tools.sync_twin``. ``--check`` only compares them.

A twin is the synchronous version of its sources. It differs from them only in ``await`` and in names. Both call
the same functions.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from tools.generated import ROOT, formatted, write_or_check

_MEMORY = ROOT / "agent_memory_log/memory"
_PROCESSOR = ROOT / "agent_memory_log/processor"
_MONGO = ROOT / "backends/agent_memory_log_mongo"
_CLIENT = ROOT / "agent_memory_log/service/client"
_GRPC = ROOT / "agent_memory_log/service/grpc"
TWINS = {
    _MEMORY / "sync.py": (_MEMORY / "calls.py", _MEMORY / "client.py"),
    _PROCESSOR / "sync.py": (_PROCESSOR / "loop_memory.py",),
    _MONGO / "sync.py": (_MONGO / "store.py",),
    _CLIENT / "sync.py": (_CLIENT / "http.py", _CLIENT / "connection.py", _CLIENT / "store.py"),
    _GRPC / "sync_client.py": (_GRPC / "client.py",),
}
"""Each generated file with its sources. A source comes after the sources that it uses."""

_DOCSTRING = '''"""Made from {sources} by ``python -m tools.sync_twin``, without ``await``.

Any number of threads may use it.
"""
'''
_CHANGES = (
    (r"async (?=def |for |with )", ""),
    (r"await (?=self\.|memory\.|method|store\.|run_async|open_store|anext)", ""),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\basyncio\b", "threading"),
    (r"\brun_async\b", "run_sync"),
    (r"\brequire_store\b", "require_sync_store"),
    (r"\b(Memory(?:Client|Calls)|L(?:azyStore|oopMemory))\b", r"Sync\1"),
    (r"await me\.", "me."),
    (r"\bMemory\b(?=[:(`]|$)", "SyncMemory"),
    (r"\bStore\b(?!\.| the )", "SyncStore"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\bMongoStore\b", "SyncMongoStore"),
    (r"\btask_handle\b", "thread_handle"),
    (r"\bopen_store\b", "open_sync_store"),
    (r"\bRemoteStore\b", "SyncRemoteStore"),
    (r"\bAsyncHandle\b", "SyncHandle"),
    (r"\bAsyncClient\b", "Client"),
    (r"\bAsyncPauses\b", "SyncPauses"),
    (r"^ *self\._check_loop\(\)\n", ""),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"^import grpc\.aio\n", ""),
    (r"\bgrpc\.aio\.", "grpc."),
    (r"\bgrpc\.client\b", "grpc.sync_client"),
    (r"\bwait_async\b", "wait"),
    (r"\ba(?=(?:close|closing|iter_raw|next)\b)", ""),
    (r" A cancelled call may or may not have stored its events: append them again\.", ""),
)


def generated_twin(sources: tuple[Path, ...], twin: Path) -> str:
    """Return the text of a twin: the imports of its sources, then their code.

    Imports of one source from another are left out.
    """
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
    names = " and ".join(f"``{source.name}``" for source in sources)
    docstring = _DOCSTRING.format(sources=names.replace(" and ", ", ", len(sources) - 2))
    return formatted(docstring + text, twin)


if __name__ == "__main__":
    sys.exit(write_or_check({twin: generated_twin(sources, twin) for twin, sources in TWINS.items()}))
