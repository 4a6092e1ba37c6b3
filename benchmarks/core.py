"""The rows of the table that need no disk: the in-memory store and the codec."""

from __future__ import annotations

from agent_memory_log import open_sync_store
from agent_memory_log.backend_kit import prepare
from agent_memory_log.events.event import new_event
from agent_memory_log.events.jsonvalue import encode_json
from benchmarks import workload
from benchmarks.measure import Progress, Ratio, compare, timed
from benchmarks.table import Row

_EVENTS = 5_000


def rows() -> list[Row]:
    """Return every comparison."""
    return [
        Row("In memory, append a ready event", "msgspec encode", 2.5, append_in_memory, microseconds=True),
        Row("Make, check and encode an event", "msgspec encode", None, make_and_check),
    ]


def append_in_memory(rounds: int, progress: Progress) -> Ratio:
    """Append a ready event to the in-memory store, against encoding its payload with msgspec alone."""

    def measured() -> float:
        events = workload.events(_EVENTS)
        with open_sync_store("memory:") as store:
            append = store.append_events

            def work() -> None:
                for event in events:
                    append("agent", "run", event)

            return timed(work, _EVENTS)

    return compare(measured, _msgspec_alone, rounds, progress)


def make_and_check(rounds: int, progress: Progress) -> Ratio:
    """Make an event of a payload, check and encode it, against encoding the payload with msgspec alone."""

    def measured() -> float:
        payloads = workload.payloads() * (_EVENTS // 5)

        def work() -> None:
            for payload in payloads:
                prepare(new_event(payload))

        return timed(work, _EVENTS)

    return compare(measured, _msgspec_alone, rounds, progress)


def _msgspec_alone() -> float:
    payloads = workload.payloads() * (_EVENTS // 5)

    def work() -> None:
        for payload in payloads:
            encode_json(payload)

    return timed(work, _EVENTS)
