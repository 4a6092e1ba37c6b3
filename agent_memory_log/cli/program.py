"""Starts the process. It installs the signal handlers before any slow import, so Ctrl-C never shows a traceback."""

from __future__ import annotations

from agent_memory_log.cli import stopping


def main() -> int:
    """Run the command line with the arguments of the process and return the exit status."""
    stopping.install()
    from agent_memory_log.cli.main import main as run  # noqa: PLC0415  # slow, so the handlers come first

    status = run()
    return stopping.received_status() or status
