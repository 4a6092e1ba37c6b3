"""Runs one command. Turns its outcome into an exit status, and every error into one line of text."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence

from agent_memory_log.cli.errors import FAILED, WRONG_USE, OutputClosed

INTERRUPTED = 130
PIPE_CLOSED = 141

_NEEDS_EXTRA = "the command line needs typer and rich: pip install 'agent-memory-log[cli]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    An error is written as one line to standard error. ``--debug`` or AMLOG_DEBUG=1 also shows its traceback.

    Args:
        arguments: The command and its options. Defaults to the arguments of the process.
    """
    _ensure_streams()
    rest, debug = _debug_first(list(sys.argv[1:] if arguments is None else arguments))
    try:
        status = _run(rest)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BrokenPipeError, OutputClosed):
        _give_up_output()
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001  # users see one line for any error, not a traceback
        return _report(error, debug=debug)
    return status


def _run(arguments: list[str]) -> int:
    try:
        import rich  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]  # only checks that rich is installed
        import typer  # noqa: PLC0415  # the extra ``cli`` may not be installed
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        print(f"amlog: {_NEEDS_EXTRA}", file=sys.stderr)  # noqa: T201  # output.py needs the missing packages
        return FAILED
    from agent_memory_log.cli.app import build_app  # noqa: PLC0415  # imports typer

    command = typer.main.get_command(build_app(rich_help=sys.stdout.isatty()))
    outcome: object = command.main(args=arguments, prog_name="amlog", standalone_mode=False)
    return outcome if isinstance(outcome, int) else 0


def _debug_first(arguments: list[str]) -> tuple[list[str], bool]:
    """Move ``--debug`` before the command's name, and return whether to show tracebacks."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--debug" in arguments[:end]:
        return ["--debug", *(argument for argument in arguments[:end] if argument != "--debug"), *arguments[end:]], True
    return arguments, os.environ.get("AMLOG_DEBUG", "") not in ("", "0", "false", "no")


def _report(error: Exception, *, debug: bool) -> int:
    from agent_memory_log.cli.failures import explain  # noqa: PLC0415  # only errors need it
    from agent_memory_log.cli.output import write_anything  # noqa: PLC0415  # as above
    from agent_memory_log.cli.terminal_text import safe  # noqa: PLC0415  # as above

    try:
        sys.stdout.flush()
    except OSError:
        _give_up_output()
    message, status = explain(error)
    with contextlib.suppress(BrokenPipeError):
        write_anything(sys.stderr)
        if debug and status != WRONG_USE:  # wrong usage needs no traceback
            sys.stderr.write(safe("".join(traceback.format_exception(error))))
        if message:
            print(message, file=sys.stderr)  # noqa: T201  # the only place that writes errors
    return status


def _ensure_streams() -> None:
    """Open the null device for each missing standard stream, such as after ``>&-`` in a shell."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  # for the whole process


def _give_up_output() -> None:
    """Discard unwritten output, so that the interpreter does not report a broken pipe when it exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
