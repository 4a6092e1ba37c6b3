"""What a command raises to end with one line and a status of its own; ``__init__`` turns every error into those."""

from __future__ import annotations

FAILED = 1
"""The status of a command that could not do what was asked."""

WRONG_USE = 2
"""The status of a command that was called wrongly."""


class CommandFailed(Exception):
    """The command could not do what was asked; the message is the line to print."""

    status = FAILED


class UsageProblem(CommandFailed):
    """What was asked makes no sense, whatever the store holds."""

    status = WRONG_USE


class OutputClosed(Exception):
    """Whoever read the output has gone; there is nothing to say and nobody to say it to."""
