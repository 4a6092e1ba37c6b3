"""The numbers of a processor: for monitors as Prometheus text, and as the data flow of a component."""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST


class DataFlow(msgspec.Struct, frozen=True):
    """The flow of messages through a processor since its start.

    Attributes:
        messages_per_second: The mean number of messages that arrived in a second.
        bytes_per_second: The mean number of their bytes in a second.
        error_rate: The share of them that were refused, buried or sent back.
        last_activity: The time of the latest message, or None.
    """

    messages_per_second: float
    bytes_per_second: float
    error_rate: float
    last_activity: datetime | None


class Metrics:
    """The numbers of one processor. Its counters are atomic, so any thread may read and count."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._messages = self._counter("messages", "Messages that arrived, by their outcome.", "port", "outcome")
        self._bytes = self._counter("bytes", "Bytes of the messages that arrived.")
        self._published = self._counter("published", "Messages that NATS has stored.", "port")
        self._failures = self._counter("failures", "Work that failed and is repeated or noted.", "work")
        self._started = monotonic()
        self._last_activity: datetime | None = None

    def arrived(self, size: int) -> None:
        """Count the bytes of a message."""
        self._bytes.inc(size)
        self._last_activity = datetime.now(UTC)

    def settled(self, port: str, outcome: str) -> None:
        """Count a message with what became of it."""
        self._messages.labels(port, outcome).inc()

    def published(self, port: str) -> None:
        """Count a published message."""
        self._published.labels(port).inc()

    def failed(self, work: str) -> None:
        """Count a failure of some work, such as ``publish`` or ``extraction``."""
        self._failures.labels(work).inc()

    def text(self) -> bytes:
        """Return the numbers in the text format of Prometheus."""
        return generate_latest(self.registry)

    def data_flow(self) -> DataFlow:
        """Return the flow of messages."""
        seconds = max(monotonic() - self._started, 1e-9)
        counts: dict[str, float] = {}
        for metric in self._messages.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    outcome = sample.labels["outcome"]
                    counts[outcome] = counts.get(outcome, 0) + sample.value
        total = sum(counts.values())
        return DataFlow(
            total / seconds,
            sum(sample.value for metric in self._bytes.collect() for sample in metric.samples[:1]) / seconds,
            sum(counts.get(outcome, 0) for outcome in (REFUSED, BURIED, RETRIED)) / total if total else 0.0,
            self._last_activity,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"amlog_processor_{name}", text, labels, registry=self.registry)


HANDLED = "handled"
"""The outcome of a message whose effect is in the log."""

REPEATED = "repeated"
"""The outcome of a message that had been handled before."""

REFUSED = "refused"
"""The outcome of a message for a loop that the configuration does not map."""

BURIED = "buried"
"""The outcome of a message that cannot be handled."""

POSTPONED = "postponed"
"""The outcome of a message that comes again because an earlier one of its loop is not settled."""

RETRIED = "retried"
"""The outcome of a message that NATS delivers again later."""
