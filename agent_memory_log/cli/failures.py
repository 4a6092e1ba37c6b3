"""What an error means to the person at the command line: one line, and a status."""

from __future__ import annotations

import typer

from agent_memory_log.cli.errors import FAILED, CommandFailed
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.errors import AgentMemoryLogError


def explain(error: Exception) -> tuple[str, int]:
    """The text for standard error (``""``: nothing to say) and the exit status."""
    if isinstance(error, CommandFailed):
        return _line(str(error)), error.status
    if isinstance(error, typer.Abort):
        return _line("nothing was done"), FAILED
    if isinstance(error, typer.TyperException):
        return _usage_line(error), error.exit_code
    if isinstance(error, AgentMemoryLogError):
        where: list[str] = getattr(error, "__notes__", [])
        return _line(": ".join([*where, str(error)])), FAILED
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return _line(f"{error.filename}: {reason}" if error.filename else reason), FAILED
    return _line(f"this is a bug: {type(error).__name__}: {error} (--debug shows where)"), FAILED


def _usage_line(error: typer.TyperException) -> str:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return message  # the help itself, asked for by giving nothing
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    return _line(message.rstrip(".") + hint)


def _line(message: str) -> str:
    return f"amlog: {one_line(message)}"
