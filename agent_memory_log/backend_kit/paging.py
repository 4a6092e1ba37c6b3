"""Encodes and decodes the cursor of ``list_runs``: the position of a page's last run, as opaque text."""

from __future__ import annotations

import base64
import binascii

import msgspec

from agent_memory_log.errors import CursorOutOfRange
from agent_memory_log.events.fields import Int64

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(tuple[Int64, Int64]).decode


def encode_cursor(created: int, tie: int) -> str:
    """Return the cursor for the runs after a given run.

    ``created`` is the creation time of that run in microseconds. ``tie`` orders runs with the same creation time.
    """
    return base64.urlsafe_b64encode(_encode((created, tie))).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[int, int]:
    """Return the two numbers of a cursor. Raises ``CursorOutOfRange`` if ``encode_cursor`` did not create it."""
    try:
        return _decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, msgspec.MsgspecError, ValueError, TypeError, AttributeError) as error:
        raise CursorOutOfRange(f"{cursor!r} is not a cursor that list_runs returned") from error
