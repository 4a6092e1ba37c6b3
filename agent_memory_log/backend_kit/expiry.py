"""Reads the expiry of a run from its meta and compares it with the clock, in the same way for every backend.

Times are integers, in microseconds since 1970-01-01T00:00Z. The expiry of a run that never expires is None. ``now`` is
by default the time of this machine's clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime

from agent_memory_log.errors import InvalidArgument, InvalidEvent, RunExpired
from agent_memory_log.events.event import format_timestamp, from_microseconds, parse_timestamp, to_microseconds
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue

_KEY = "expires_at"

_LONGEST_WAIT_SECONDS = 60.0
# A follower must notice that the clock was set forward or that the machine slept. Also, wait functions refuse very
# long timeouts.


def now_microseconds() -> int:
    """Return the time of this machine's clock in microseconds since 1970."""
    return time.time_ns() // 1_000


def expiry_of(meta: Mapping[str, JsonValue] | None) -> int | None:
    """Return the time at which a run with this meta expires, or None if the meta has no ``expires_at``.

    The fraction is cut to microseconds. Raises ``InvalidEvent`` with the field ``meta.expires_at`` if it is not RFC
    3339 text with an offset, or not in the years 1 to 9999 in UTC.
    """
    if not meta or _KEY not in meta:
        return None
    text = meta[_KEY]
    if not isinstance(text, str):
        raise InvalidEvent(
            f"meta.{_KEY} must be RFC 3339 text, as in 2026-11-21T09:30:00Z, got {describe(text)}",
            field=f"meta.{_KEY}",
        )
    try:
        return to_microseconds(parse_timestamp(text))
    except (ValueError, OverflowError) as error:
        raise InvalidEvent(f"meta.{_KEY} {describe(text)}: {error}", field=f"meta.{_KEY}") from error


def check_expiry(agent: str, run: str, expires_at: int | None, now: int | None = None) -> None:
    """Raise ``RunExpired`` if ``expires_at`` is ``now`` or earlier."""
    if expires_at is not None and expires_at <= (now_microseconds() if now is None else now):
        raise RunExpired(
            f"{agent}/{run} expired at {format_timestamp(from_microseconds(expires_at))}: it can no longer be read or "
            "extended. To use its name again, delete the run, then append with a later expires_at or without one"
        )


def check_before(before: datetime | None, now: int | None = None) -> int:
    """Return the time up to which ``expire_runs`` removes expired runs: ``before``, or ``now`` if it is None.

    Raises ``InvalidArgument`` if ``before`` has no time zone, or is in the future.
    """
    now = now_microseconds() if now is None else now
    if before is None:
        return now
    if not isinstance(before, datetime) or before.utcoffset() is None:
        raise InvalidArgument(f"before must be a timezone-aware datetime, got {describe(before)}")
    microseconds = to_microseconds(before)
    if microseconds > now:
        raise InvalidArgument(
            f"before must not be in the future, got {before.isoformat()}: such runs have not expired yet"
        )
    return microseconds


def seconds_left(expires_at: int | None, now: int | None = None) -> float | None:
    """Return how many seconds a follower may wait before it compares the clock with ``expires_at`` again.

    It is None, which means no limit, if the run never expires. Otherwise it is at most 60 seconds, because the clock
    may be set forward during the wait.
    """
    if expires_at is None:
        return None
    left = expires_at - (now_microseconds() if now is None else now)
    return min(max(0.0, left / 1_000_000), _LONGEST_WAIT_SECONDS)
