"""What a command raises to end with one line and a status of its own; ``__init__`` turns every error into those."""

from __future__ import annotations


class CommandFailed(Exception):
    """The command could not do what was asked; the message is the line to print. Status 1."""

    status = 1


class UsageProblem(CommandFailed):
    """What was asked makes no sense, whatever the store holds. Status 2."""

    status = 2


class OutputClosed(Exception):
    """Whoever read the output has gone; there is nothing to say and nobody to say it to."""
