"""The process: signals are handled before anything slow is imported, so that Ctrl-C never shows a traceback."""

from __future__ import annotations

from agent_memory_log.cli import stopping


def main() -> int:
    """Run the command line with the process's own arguments; the exit status."""
    stopping.install()
    from agent_memory_log.cli.main import main as run  # noqa: PLC0415  # see above

    status = run()
    return stopping.received_status() or status
