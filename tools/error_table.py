"""Writes ``docs/errors.md``, the table of all errors, from the classes in ``agent_memory_log.errors``.

``python -m tools.error_table`` writes the page; ``--check`` only compares. The docstring of a class is the text of its
row.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

from agent_memory_log.errors import AgentMemoryLogError
from tools.generated import ROOT, write_or_check

INTRODUCTION = """\
# Errors

<!-- Written by tools/error_table.py from agent_memory_log/errors.py: change that, and run `make generate`. -->

Every error that the library raises on purpose is an `AgentMemoryLogError`. Match on the class in Python, or on `code`
in logs and across processes: codes never change. A driver's own exception is always chained as `__cause__`. All errors
can be pickled.

On the command line, an error is one line on standard error. The exit status is 1, or 2 for wrong usage.

| code | class | meaning and what to do | attributes |
|---|---|---|---|
"""


def classes(parent: type[AgentMemoryLogError], depth: int = 0) -> Iterator[tuple[type[AgentMemoryLogError], int]]:
    """Yield the error classes in the order of the module, each with its depth in the tree."""
    yield parent, depth
    for child in parent.__subclasses__():
        if child.__module__ == parent.__module__:
            yield from classes(child, depth + 1)


def row(error: type[AgentMemoryLogError], depth: int) -> str:
    """Return the row of an error class."""
    text = inspect.cleandoc(error.__doc__ or "")
    text, _, _ = text.partition("\nAttributes:")
    meaning = re.sub(r"\s+", " ", text).strip().replace("``", "`").replace("|", "\\|")
    init = error.__dict__.get("__init__")
    parameters = inspect.signature(init).parameters.values() if init else ()
    attributes = ", ".join(f"`{each.name}`" for each in parameters if each.kind is each.KEYWORD_ONLY)
    return f"| `{error.code}` | {'↳ ' * max(depth - 1, 0)}`{error.__name__}` | {meaning} | {attributes} |"


if __name__ == "__main__":
    table = "\n".join(row(error, depth) for error, depth in classes(AgentMemoryLogError))
    sys.exit(write_or_check({ROOT / "docs" / "errors.md": INTRODUCTION + table + "\n"}))
