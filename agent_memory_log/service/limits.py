"""The limits of a server, and the counters that enforce them for each caller."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from agent_memory_log.errors import TooManyRequests

MIB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True):
    """The limits of a server. Sizes are in bytes and times in seconds.

    Attributes:
        body_bytes: The largest body of a request.
        held_bytes: The largest sum of all bodies and answers that the server holds at the same time.
        body_seconds: The time in which a body must arrive.
        linger_seconds: The time for which a refused body is still read, so that its client can read the answer.
        header_bytes: The largest head of a request: its line and headers.
        header_seconds: The time in which a head must arrive.
        idle_seconds: The time after which an unused connection is closed.
        write_seconds: The time after which a client that reads nothing of its answer loses the connection.
        request_seconds: The time for an operation.
        connections: The most open connections.
        requests: The most requests at the same time.
        requests_of_caller: The most requests of one caller at the same time.
        rate: The most requests a second of one caller, in the long run.
        burst: The most requests of one caller at once.
        streams: The most open streams.
        streams_of_caller: The most open streams of one caller.
        heartbeat_seconds: The time between two signs of life in a stream.
        page_events: The most events, runs or entries in an answer.
        page_bytes: An answer ends after the event or run with which it reaches this size.
        answer_bytes: The largest answer of an operation that only reads memory.
        stop_seconds: The time for accepted requests after the server was told to stop.
    """

    body_bytes: int = 16 * MIB
    held_bytes: int = 256 * MIB
    body_seconds: float = 30
    linger_seconds: float = 1
    header_bytes: int = 64 * 1024
    header_seconds: float = 10
    idle_seconds: int = 60
    write_seconds: float = 30
    request_seconds: float = 60
    connections: int = 900
    requests: int = 256
    requests_of_caller: int = 128
    rate: float = 1_000
    burst: int = 2_000
    streams: int = 256
    streams_of_caller: int = 64
    heartbeat_seconds: float = 15
    page_events: int = 1_000
    page_bytes: int = 8 * MIB
    answer_bytes: int = 64 * MIB
    stop_seconds: int = 20


class Slots:
    """A limited number of places, in all and for each caller.

    Args:
        name: The name of the things that take a place, in the plural.
        most: The number of places in all.
        most_of_caller: The number of places for one caller.
    """

    def __init__(self, name: str, most: int, most_of_caller: int) -> None:
        self._name = name
        self._most = most
        self._most_of_caller = most_of_caller
        self._taken: dict[str, int] = {}
        self.count = 0
        """The number of taken places."""
        self.empty = asyncio.Event()
        """Set while no place is taken."""
        self.empty.set()

    @contextmanager
    def taken_by(self, caller: str) -> Generator[None]:
        """Hold a place while the block runs. Raises ``TooManyRequests`` if none is free."""
        count_of_caller = self._taken.get(caller, 0)
        if count_of_caller >= self._most_of_caller:
            raise TooManyRequests(
                f"the caller has {self._most_of_caller:,} open {self._name}, and may have no more", retry_after=1
            )
        if self.count >= self._most:
            raise TooManyRequests(f"the server has {self._most:,} open {self._name}, and takes no more", retry_after=1)
        self._taken[caller] = count_of_caller + 1
        self.count += 1
        self.empty.clear()
        try:
            yield
        finally:
            self.count -= 1
            if not self.count:
                self.empty.set()
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


_MOST_CALLERS = 10_000
"""The most callers whose rate is known. A caller that was quiet for the longest time is forgotten first."""


class Rates:
    """Limits the requests a second of each caller, with a token bucket.

    Args:
        rate: The tokens that a caller gets in a second. A request takes one.
        burst: The most tokens that a caller can have, which is also what a new caller has.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Take a token. Raises ``TooManyRequests`` if the caller has none."""
        now = time.monotonic()
        tokens, since = self._buckets.pop(caller, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        self._buckets[caller] = (max(tokens - 1, 0.0) if tokens >= 1 else tokens, now)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if tokens < 1:
            raise TooManyRequests(
                f"the caller sent more than {self._rate:g} requests a second", retry_after=(1 - tokens) / self._rate
            )
