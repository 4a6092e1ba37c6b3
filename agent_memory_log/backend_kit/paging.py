"""The cursor of ``list_runs``: the place of the last run of a page, as text that callers pass back unread."""

from __future__ import annotations

import base64
import binascii

import msgspec

from agent_memory_log.errors import CursorOutOfRange
from agent_memory_log.events.fields import Int64

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(tuple[Int64, Int64]).decode


def encode_cursor(created: int, tie: int) -> str:
    """The cursor after a run created at ``created`` microseconds; ``tie`` orders runs created at the same one."""
    return base64.urlsafe_b64encode(_encode((created, tie))).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[int, int]:
    """The two numbers of ``encode_cursor``. Raises ``CursorOutOfRange``."""
    try:
        return _decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, msgspec.MsgspecError, ValueError, TypeError, AttributeError) as error:
        raise CursorOutOfRange(f"{cursor!r} is not a cursor that list_runs returned") from error
