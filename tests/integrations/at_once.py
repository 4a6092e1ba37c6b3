"""Runs a function in two processes at the same time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier

from tests.processes import PATIENCE

NAMES = ("left", "right")
"""The names of the two processes."""

Work = Callable[[str, str], None]
"""A function of a module, with the URL of a store and the name of its process."""


def at_once(work: Work, url: str) -> None:
    """Call a function in two processes that begin together, and wait for both."""
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(len(NAMES))
    processes = [spawn.Process(target=_begin, args=(together, work, url, name)) for name in NAMES]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
    assert [process.exitcode for process in processes] == [0, 0]


def _begin(together: Barrier, work: Work, url: str, name: str) -> None:
    together.wait(PATIENCE)
    work(url, name)
