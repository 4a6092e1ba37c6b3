"""Runs a program on a terminal, in a process that has the imports of the program already."""

from __future__ import annotations

import fcntl
import os
import runpy
import sys
import termios
import warnings


def run_on_terminal(program: str, *options: str, terminal: str, folder: str, variables: dict[str, str]) -> None:
    """Run a program in this process, in a folder and with more environment variables. Warnings are errors.

    The terminal becomes its own, so that Ctrl-C on it sends a signal.
    """
    os.setsid()
    descriptor = os.open(terminal, os.O_RDWR)
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)
    for number in (0, 1, 2):
        os.dup2(descriptor, number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    os.chdir(folder)
    os.environ.update(variables)
    sys.path[:0] = filter(None, [variables.get("PYTHONPATH")])
    sys.argv = [program, *options]
    warnings.simplefilter("error")
    runpy.run_path(program, run_name="__main__")
