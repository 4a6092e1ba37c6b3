"""Runs the programs and commands of a document, in the order in which a reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from tests.amlog import environment
from tests.processes import PATIENCE, ROOT

Block = tuple[str, str]
"""The language and the text of a block of code."""

_RUN_EACH = """
import sys, types
for code in sys.argv[1:]:
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(code, vars(main))
"""
"""Runs each argument as a program of its own, in one process, because most of the time goes to imports."""


def blocks_of(document: str) -> list[Block]:
    """Return the blocks of code of a document, such as ``docs/memory.md``."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


def run_blocks(blocks: Iterable[Block], folder: Path, **changes: str) -> list[str]:
    """Run the blocks in a folder, which is also the home. Warnings are errors.

    Args:
        blocks: The blocks. Of a block for a console, only ``amlog`` commands and its own variables count.
        folder: The working directory.
        changes: More environment variables.

    Returns:
        The output of each command.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    variables = environment(PATH=path, PYTHONWARNINGS="error", **home, **changes)
    outputs: list[str] = []
    for language, group in groupby(blocks, key=itemgetter(0)):
        texts = [text for _, text in group]
        if language == "python":
            _run([sys.executable, "-c", _RUN_EACH, *texts], folder, variables)
        elif language == "console":
            for line in "".join(texts).splitlines():
                if line.startswith("$ export AMLOG_"):
                    name, _, value = line.removeprefix("$ export ").partition("=")
                    variables[name] = value
                elif line.startswith("$ amlog "):
                    outputs.append(_run(line.removeprefix("$ ").split(), folder, variables))
    return outputs


def _run(command: list[str], folder: Path, variables: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=variables, check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout
