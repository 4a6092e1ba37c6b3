"""The numbers that ``/metrics`` shows: requests by operation and status, their durations, and open streams."""

from __future__ import annotations

from functools import lru_cache, partial

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agent_memory_log.service.limits import Slots

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The numbers of one server.

    Args:
        requests: Counts the requests that are carried out now.
        streams: Counts the open streams.
    """

    def __init__(self, requests: Slots, streams: Slots) -> None:
        self._registry = CollectorRegistry()
        labels = ("operation", "status")
        self._requests = Counter("amlog_requests", "Answered requests.", labels, registry=self._registry)
        self._seconds = Histogram(
            "amlog_request_seconds", "Seconds from request to answer.", ["operation"], registry=self._registry
        )
        for name, text, slots in (
            ("amlog_active_requests", "Requests that are carried out now.", requests),
            ("amlog_open_streams", "Open streams.", streams),
        ):
            Gauge(name, text, registry=self._registry).set_function(partial(getattr, slots, "count"))
        self._counter = lru_cache(maxsize=None)(self._requests.labels)  # the labels are few: the table's and statuses
        self._histogram = lru_cache(maxsize=None)(self._seconds.labels)

    def count(self, operation: str, status: int, seconds: float | None) -> None:
        """Count an answer and its duration. A stream has None, because its duration says nothing."""
        self._counter(operation, str(status)).inc()
        if seconds is not None:
            self._histogram(operation).observe(seconds)

    def text(self) -> bytes:
        """Return the numbers in the text format of Prometheus."""
        return generate_latest(self._registry)
