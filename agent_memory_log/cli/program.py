"""Starts the process. It installs the signal handlers before any slow import, so Ctrl-C never shows a traceback."""

from __future__ import annotations

import os
import sys

from agent_memory_log.cli import stopping


def main() -> int:
    """Run the command line with the arguments of the process and return the exit status."""
    stopping.install()
    from agent_memory_log.cli.main import main as run  # noqa: PLC0415  # slow, so the handlers come first

    status = run()
    ended_by_signal = stopping.received_status()
    if ended_by_signal:
        try:  # noqa: SIM105  # contextlib is slow to import
            sys.stdout.flush()
        except OSError:
            pass
        os._exit(ended_by_signal)  # Python would wait for its threads, and one may wait for the answer of a model
    return status
