"""Converts an exception to the line that the user sees and an exit status."""

from __future__ import annotations

import typer

from agent_memory_log.cli.errors import FAILED, CommandFailed
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.errors import AgentMemoryLogError


def explain(error: Exception) -> tuple[str, int]:
    """Return the text for standard error and the exit status. An empty text means that nothing is written."""
    if isinstance(error, CommandFailed):
        return _line(str(error)), error.status
    if isinstance(error, typer.Abort):
        return _line("cancelled; nothing was changed"), FAILED
    if isinstance(error, typer.TyperException):
        return _usage_line(error), error.exit_code
    if isinstance(error, AgentMemoryLogError):
        origins: list[str] = getattr(error, "__notes__", [])
        return _line(": ".join([*origins, str(error)])), FAILED
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return _line(f"{error.filename}: {reason}" if error.filename else reason), FAILED
    return _line(f"this is a bug: {type(error).__name__}: {error} (--debug shows the traceback)"), FAILED


def _usage_line(error: typer.TyperException) -> str:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return message  # the message is the whole help
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    one_paragraph = " ".join(message.replace("Value error, ", "").split())  # the choices of an option are lines
    return _line(one_paragraph.rstrip(".") + hint)


def _line(message: str) -> str:
    return f"amlog: {one_line(message)}"
