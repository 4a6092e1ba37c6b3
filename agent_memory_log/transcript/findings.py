"""Defines the reports about a transcript: findings, changes, losses, and the paths they refer to."""

from __future__ import annotations

from typing import Any

import msgspec

WireMessage = dict[str, Any]
"""One message in the provider's format. For OpenAI Responses, one item of ``input``."""

Path = tuple[int | str, ...]
"""A position in a transcript: the message's index, then keys and indexes, for example ``(3, "content", 0)``."""


class Finding(msgspec.Struct, frozen=True):
    """A provider's rule that a transcript breaks.

    Attributes:
        rule: The stable name of the rule, for example ``unanswered_call``.
        message: The problem and, where useful, the way to fix it.
        path: The position in the transcript, for example ``(3, "content", 0)``.
        seq: The seq of the event that the message was built from. None if it is unknown: the transcript is a plain
            list, or no store has assigned a seq yet.
    """

    rule: str
    message: str
    path: Path = ()
    seq: int | None = None


class Change(msgspec.Struct, frozen=True):
    """One change that ``repair`` made.

    Attributes:
        change: The stable name of the change, for example ``answered_call``.
        message: The reason for the change.
        path: The position in the original transcript.
        seq: The seq of the event, as in ``Finding``.
    """

    change: str
    message: str
    path: Path = ()
    seq: int | None = None


class Loss(msgspec.Struct, frozen=True):
    """A part of a run that the transcript leaves out or changes.

    Attributes:
        reason: A stable name:

            - ``unknown_type``: no builder handles the event's type.
            - ``media``: this provider does not accept an image, document, audio or video.
            - ``other_provider``: only another provider accepts the content.
            - ``reasoning``: this provider does not accept the reasoning.
            - ``redacted``: the event was erased from the log.
            - ``size_limit``: a result is larger than the limit; see ``max_result_bytes`` of ``build``.
            - ``failure``: the provider has no place for the error message or the hint of the result.
            - ``arguments``: the arguments of a call are not a JSON object.
            - ``partial``: the stream of the answer was cut off or failed.
            - ``window``: ``window`` removed the messages.
        message: A description of the lost content.
        seq: The seq of the event; None if no store has assigned one.
        type: The type of the event.
    """

    reason: str
    message: str
    seq: int | None = None
    type: str = ""


def path_order(reported: Finding | Change) -> list[tuple[bool, int, str]]:
    """Return a sort key that puts findings and changes in the order of the transcript."""
    return [(isinstance(step, str), step if isinstance(step, int) else 0, str(step)) for step in reported.path]
