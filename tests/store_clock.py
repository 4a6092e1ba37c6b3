"""The clock of the stores in this process, which a test can set forward. So no test waits until a run expires."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from agent_memory_log.events.event import format_timestamp
from agent_memory_log.events.jsonvalue import JsonValue

_HOUR = timedelta(hours=1)


class StoreClock:
    """The machine's clock until ``pass_the_end`` sets it forward. It replaces the module ``time`` of ``expiry``."""

    def __init__(self) -> None:
        self._forward = timedelta()

    def time_ns(self) -> int:
        """Return the time in nanoseconds since 1970."""
        return time.time_ns() + self._forward // timedelta(microseconds=1) * 1000

    def meta_with_an_end(self) -> dict[str, JsonValue]:
        """Return the meta of a run that expires in an hour."""
        return {"expires_at": format_timestamp(datetime.now(UTC) + self._forward + _HOUR)}

    def pass_the_end(self) -> None:
        """Set the clock forward by an hour, past the end of each run with an earlier ``meta_with_an_end``."""
        self._forward += _HOUR
