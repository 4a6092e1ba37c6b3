"""A run's end: read from its meta, compared with the clock, and how long to wait for it; the same for every backend.

Instants are whole microseconds since 1970-01-01T00:00Z; a run without an end has None. ``now`` is by default what this
machine's clock says.
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
# A wait does not see that the clock was set forward meanwhile, or that the machine slept; nor can one last centuries.


def now_microseconds() -> int:
    """The instant it is now, by this machine's clock."""
    return time.time_ns() // 1_000


def expiry_of(meta: Mapping[str, JsonValue] | None) -> int | None:
    """The instant from which a run with this meta is refused; None without an ``expires_at``.

    A fraction is cut to the microsecond. Raises ``InvalidEvent`` naming ``meta.expires_at`` when it is not RFC 3339
    text with an offset, in the years 1 to 9999.
    """
    if not meta or _KEY not in meta:
        return None
    given = meta[_KEY]
    if not isinstance(given, str):
        raise InvalidEvent(
            f"meta.{_KEY} must be RFC 3339 text, as in 2026-11-21T09:30:00Z, found {describe(given)}",
            field=f"meta.{_KEY}",
        )
    try:
        return to_microseconds(parse_timestamp(given))
    except (ValueError, OverflowError) as error:
        raise InvalidEvent(f"meta.{_KEY} {describe(given)}: {error}", field=f"meta.{_KEY}") from error


def check_expiry(agent: str, run: str, expires_at: int | None, now: int | None = None) -> None:
    """Check that a run which ends at ``expires_at`` may be used at ``now``. Raises ``RunExpired`` from its end on."""
    if expires_at is not None and expires_at <= (now_microseconds() if now is None else now):
        raise RunExpired(
            f"{agent}/{run} expired at {format_timestamp(from_microseconds(expires_at))}: nothing is read from it or "
            "added to it any more; to begin it anew, delete it and give a later expires_at or none"
        )


def check_before(before: datetime | None, now: int | None = None) -> int:
    """The instant up to which ``expire_runs`` is to remove what has expired: ``before``, by default ``now``.

    Raises ``InvalidArgument`` for a time in the future, as those runs have not expired, and for one without a zone.
    """
    now = now_microseconds() if now is None else now
    if before is None:
        return now
    if not isinstance(before, datetime) or before.utcoffset() is None:
        raise InvalidArgument(f"before must be a timezone-aware datetime, found {describe(before)}")
    instant = to_microseconds(before)
    if instant > now:
        raise InvalidArgument(
            f"before must not be in the future, found {before.isoformat()}: runs that end until then have not expired"
        )
    return instant


def seconds_left(expires_at: int | None, now: int | None = None) -> float | None:
    """How long a follower may wait for news of its run before it looks at the clock again; None: for ever.

    At most a minute, however far the end: the clock may be set forward meanwhile.
    """
    if expires_at is None:
        return None
    left = expires_at - (now_microseconds() if now is None else now)
    return min(max(0.0, left / 1_000_000), _LONGEST_WAIT_SECONDS)
