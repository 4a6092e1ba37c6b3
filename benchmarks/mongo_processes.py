"""Several processes that append to one run at once, kept ready from round to round."""

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
"""Seconds after which processes that wait for each other give up."""


class Lap(msgspec.Struct, frozen=True):
    """The appends of one process: times on a clock that all processes share, durations, and events."""

    start: float
    end: float
    latencies: list[float]
    event_ids: list[str]


AtOnce = Callable[[str, int], list[Lap]]
"""Lets each process append so many single events to one run of the database with this URI."""


@contextmanager
def processes(count: int) -> Generator[AtOnce]:
    """Yield ``count`` processes."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(count, timeout=_PATIENCE)
    with ProcessPoolExecutor(count, mp_context=context, initializer=_wait_at, initargs=(start,)) as pool:

        def at_once(uri: str, each: int) -> list[Lap]:
            # A process that waits for the others takes no second task.
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
