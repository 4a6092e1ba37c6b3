"""Helpers for tests of runs that expire.

A follower of the run shows when the run expires. If a store is so slow that the run expires before it is filled, the
helper fills it again with a later end, until the test's ``patience`` is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from agent_memory_log.conformance.checks import take
from agent_memory_log.conformance.samples import AGENT, RUN, user_message
from agent_memory_log.errors import RunExpired
from agent_memory_log.events.event import Event, format_timestamp
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import Store

FAR_ENDS = (
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999999+14:00",
    "9000-01-01t00:00:00.5z",
    "9000-01-01T00:00:00-23:59",
)
"""Ends in the far future, in different spellings."""

PAST_ENDS = ("0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2021-03-04T14:00:00.123456789+02:00")
"""Ends in the past."""

_SHORTEST_SECONDS = 0.02


class ExpiredRun(msgspec.Struct, frozen=True):
    """The events of an expired run, and its end."""

    events: list[Event]
    end: datetime

    @property
    def version(self) -> int:
        """The run's version."""
        return self.events[-1].seq


async def with_an_end(
    store: Store, fill: Callable[[dict[str, JsonValue]], Awaitable[None]], *, agent: str = AGENT, run: str = RUN
) -> datetime:
    """Call ``fill(meta)`` with an end in the near future, and return that end.

    ``fill`` creates the run and does everything that must happen before the end. If ``fill`` raises ``RunExpired``,
    this function deletes the run and calls ``fill`` again with a later end.
    """
    seconds = _SHORTEST_SECONDS
    while True:
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        try:
            await fill({"expires_at": format_timestamp(end)})
        except RunExpired:
            await store.delete_run(agent, run)
            seconds *= 2
        else:
            return end


async def until_expired(store: Store, agent: str = AGENT, run: str = RUN) -> None:
    """Wait until the run has expired."""
    async with aclosing(store.follow(agent, run)) as events:
        with pytest.raises(RunExpired):
            await take(events, 1_000_000)


async def expired_run(*handles: Store, agent: str = AGENT, run: str = RUN) -> ExpiredRun:
    """Create a run with one event from each handle, in order, and wait until it has expired."""
    stored: list[Event] = []

    async def fill(meta: dict[str, JsonValue]) -> None:
        stored.clear()
        for handle in handles:
            stored.extend(
                (await handle.append_events(agent, run, user_message("one"), meta=meta, reserved=True)).events
            )

    end = await with_an_end(handles[0], fill, agent=agent, run=run)
    await until_expired(handles[0], agent, run)
    return ExpiredRun(stored, end)
