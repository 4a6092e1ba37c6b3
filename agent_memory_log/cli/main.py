"""Running a command: whatever happens becomes an exit status, and every error one line."""

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
    """Run the command line with ``arguments``, by default the process's own; the exit status.

    Every error is one line on standard error; its traceback is shown with ``--debug`` or AMLOG_DEBUG=1.
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
    except Exception as error:  # noqa: BLE001  # the last resort: a person sees a line, never a traceback
        return _report(error, debug=debug)
    return status


def _run(arguments: list[str]) -> int:
    try:
        import rich  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]  # only to know that it is there
        import typer  # noqa: PLC0415  # the extra may not be installed
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        print(f"amlog: {_NEEDS_EXTRA}", file=sys.stderr)  # noqa: T201  # output.py needs what is missing
        return FAILED
    from agent_memory_log.cli.app import build_app  # noqa: PLC0415  # imports typer

    command = typer.main.get_command(build_app(rich_help=sys.stdout.isatty()))
    outcome: object = command.main(args=arguments, prog_name="amlog", standalone_mode=False)
    return outcome if isinstance(outcome, int) else 0


def _debug_first(arguments: list[str]) -> tuple[list[str], bool]:
    """``--debug`` is welcome after the command's name too."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--debug" in arguments[:end]:
        return ["--debug", *(argument for argument in arguments[:end] if argument != "--debug"), *arguments[end:]], True
    return arguments, os.environ.get("AMLOG_DEBUG", "") not in ("", "0", "false", "no")


def _report(error: Exception, *, debug: bool) -> int:
    from agent_memory_log.cli.failures import explain  # noqa: PLC0415  # not needed when all goes well
    from agent_memory_log.cli.output import write_anything  # noqa: PLC0415  # as above
    from agent_memory_log.cli.terminal_text import safe  # noqa: PLC0415  # as above

    try:
        sys.stdout.flush()
    except OSError:
        _give_up_output()
    message, status = explain(error)
    with contextlib.suppress(BrokenPipeError):
        write_anything(sys.stderr)
        if debug and status != WRONG_USE:  # it has no traceback worth reading
            sys.stderr.write(safe("".join(traceback.format_exception(error))))
        if message:
            print(message, file=sys.stderr)  # noqa: T201  # the one place where errors are written
    return status


def _ensure_streams() -> None:
    """Python has no standard stream where the process was started without one, as by ``>&-``."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  # open until the end


def _give_up_output() -> None:
    """Keep the interpreter from complaining, when it exits, about what it can no longer write."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
