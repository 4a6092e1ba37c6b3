"""What is reported about a transcript: findings, changes and losses, and the places in it that they name."""

from __future__ import annotations

from typing import Any

import msgspec

WireMessage = dict[str, Any]
"""One message of a transcript as the provider takes it, or one item where it takes a list of items."""

Path = tuple[int | str, ...]
"""A place in a transcript: the message's index, then keys and indexes, as in ``(3, "content", 0)``."""


class Finding(msgspec.Struct, frozen=True):
    """A rule of the provider's that a transcript breaks.

    - ``rule``: the rule's stable name, as ``unanswered_call``.
    - ``message``: what was found, where, and what to do.
    - ``where``: the place in the transcript, as ``(3, "content", 0)``.
    - ``seq``: the event it comes from, None where that is not known: in a plain list, or before a store gave it one.
    """

    rule: str
    message: str
    path: Path = ()
    seq: int | None = None


class Change(msgspec.Struct, frozen=True):
    """Something ``repair`` changed.

    - ``change``: what was done, a stable name, as ``answered_call``.
    - ``message``: what was done to what, and why.
    - ``where``: the place in the transcript that was given.
    - ``seq``: as for ``Finding``.
    """

    change: str
    message: str
    path: Path = ()
    seq: int | None = None


class Loss(msgspec.Struct, frozen=True):
    """Something of a run that a transcript does not carry, or not as it was.

    - ``reason``: a stable name: ``unknown_type``, no builder knows the event's type; ``other_provider``, only another
      provider can be sent it; ``reasoning``, reasoning this provider cannot be sent; ``redacted``, erased from the log;
      ``size_limit``, a result over ``max_result_bytes``; ``arguments``, a call's arguments are not a JSON object;
      ``window``, cut off by ``window``.
    - ``message``: what it is.
    - ``seq``, ``type``: the event; ``seq`` is None where no store gave it one.
    """

    reason: str
    message: str
    seq: int | None = None
    type: str = ""


def path_order(reported: Finding | Change) -> list[tuple[bool, int, str]]:
    """Sorts findings and changes in the order of the transcript."""
    return [(isinstance(step, str), step if isinstance(step, int) else 0, str(step)) for step in reported.path]
