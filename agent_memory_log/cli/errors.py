"""The exceptions with which a command ends early. ``main`` turns each into one line of text and an exit status."""

from __future__ import annotations

FAILED = 1
"""The exit status of a command that failed."""

WRONG_USE = 2
"""The exit status of a command with wrong arguments."""


class CommandFailed(Exception):
    """The command failed. The message is the line that the user sees."""

    status = FAILED


class UsageProblem(CommandFailed):
    """The arguments are wrong, independent of the content of the store."""

    status = WRONG_USE


class OutputClosed(Exception):
    """The reader of standard output closed the pipe. No message is written."""
