"""``python -m benchmarks.instructions`` fails if an operation takes over 5 % more instructions than the stored count.

It counts with callgrind, a tool of valgrind. The count of one interpreter hardly varies, unlike a time: the order of
sets and the threads of OpenBLAS, which spin while they wait, are fixed. After a change
that is worth its instructions, ``--update`` stores the new counts.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.instructions import workloads
from benchmarks.instructions.workloads import WORKLOADS

_STORED = Path(__file__).with_name("counts.json")
_LIMIT = 1.05
_COLLECTED = re.compile(r"Collected : (\d+)")


class Counts(msgspec.Struct, frozen=True):
    """Instructions of one operation each, by its name, with the version of the interpreter that took them."""

    python: str
    instructions: dict[str, int]


def _collected(name: str, times: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*command, sys.executable, "-m", workloads.__name__, name, str(times)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
    )
    return int(_COLLECTED.findall(done.stderr)[-1])


def _count() -> Counts:
    """Count every operation: the difference of a run with few operations and a run with more."""
    with ThreadPoolExecutor(2) as pool:
        runs = {
            name: [pool.submit(_collected, name, times) for times in (most // 5, most)]
            for name, (_, most) in WORKLOADS.items()
        }
    return Counts(
        f"{sys.version_info.major}.{sys.version_info.minor}",
        {
            name: (runs[name][1].result() - runs[name][0].result()) // (most - most // 5)
            for name, (_, most) in WORKLOADS.items()
        },
    )


def more_than_stored(counts: dict[str, int], stored: dict[str, int]) -> list[str]:
    """Return the names of the operations that take over 5 % more instructions than stored."""
    return [name for name, count in counts.items() if name in stored and count > stored[name] * _LIMIT]


def main() -> int:
    """Count, print the table, and return 1 if an operation takes too many instructions."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--update", action="store_true", help="store the new counts")
    options = parser.parse_args()
    console = Console()
    if shutil.which("valgrind") is None:
        console.print("valgrind is not installed: instructions are not counted")
        return 0
    stored = msgspec.json.decode(_STORED.read_bytes(), type=Counts) if _STORED.exists() else None
    counts = _count()
    before = {} if stored is None or stored.python != counts.python else stored.instructions
    table = Table("operation", "instructions", "times the stored count", title=f"Python {counts.python}")
    worse = more_than_stored(counts.instructions, before)
    for name, count in counts.instructions.items():
        ratio = f"{count / before[name]:.3f}" if name in before else ""
        table.add_row(name, f"{count:,}", ratio, style="red" if name in worse else "green")
    console.print(table)
    if not before:
        console.print(f"no counts are stored for Python {counts.python}")
    if options.update:
        _STORED.write_bytes(msgspec.json.format(msgspec.json.encode(counts), indent=2) + b"\n")
    return 0 if options.update or not worse else 1


if __name__ == "__main__":
    sys.exit(main())
