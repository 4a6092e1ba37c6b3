"""Starts processes that append to one run at the same time. They stay ready between the rounds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from time import perf_counter

import msgspec

from agent_memory_log import open_sync_store
from benchmarks import workload
from benchmarks.measure import no_collections

_PATIENCE = 120
"""The seconds that a process waits for the other processes."""


class Lap(msgspec.Struct, frozen=True):
    """The appends of one process in one round.

    Attributes:
        start: The time before the first append, in seconds on a clock that all processes share.
        end: The time after the last append, on the same clock.
        latencies: The duration of each append, in seconds.
        event_ids: The ids of all events, with that of the first event, which is not timed.
    """

    start: float
    end: float
    latencies: list[float]
    event_ids: list[str]


AtOnce = Callable[[str, int], list[Lap]]
"""A function of a database's URI and a number. Each process appends this number of single events to one run."""


@contextmanager
def processes(count: int) -> Generator[AtOnce]:
    """Start ``count`` processes, and yield the function that lets them append."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(count, timeout=_PATIENCE)
    with ProcessPoolExecutor(count, mp_context=context, initializer=_wait_at, initargs=(start,)) as pool:

        def at_once(uri: str, each: int) -> list[Lap]:
            # A process takes only one task, because it waits for the others before it appends.
            return [lap.result() for lap in [pool.submit(_append, uri, each) for _ in range(count)]]

        yield at_once


_start: list[Barrier] = []


def _wait_at(start: Barrier) -> None:
    _start.append(start)


def _append(uri: str, each: int) -> Lap:
    events = workload.events(each + 1)
    latencies: list[float] = []
    with open_sync_store(uri) as store:
        append = store.append_events
        append("agent", "run", events[0])
        with no_collections():
            _start[0].wait()
            start = before = perf_counter()
            for event in events[1:]:
                append("agent", "run", event)
                after = perf_counter()
                latencies.append(after - before)
                before = after
    return Lap(start, before, latencies, [event.event_id for event in events])
