"""The rows of the table that measure the MongoDB backend, on a server in a process of its own for each side.

Both sides use the synchronous client, or the asynchronous client if tasks append. Both sides wait until a majority has
each write in its journal. The run exists before the first measured append, and so does the floor's collection.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from pymongo.errors import DocumentTooLarge

from agent_memory_log import Event, open_store, open_sync_store
from benchmarks import mongo_floor as floor
from benchmarks import workload
from benchmarks.measure import Progress, Ratio, Side, compare, no_collections, ratio_of, timed
from benchmarks.mongo_processes import AtOnce, Lap, processes
from benchmarks.mongo_server import new_server, servers
from benchmarks.table import Row

_SINGLE = 300
_FEW = 50
_TASKS = 32
_PROCESSES = 8
_SHORT = 100
_BATCH = 1_000


def rows(fast: Path, disk: Path) -> list[Row]:
    """Return every comparison."""
    return [
        Row(
            "MongoDB, one event an append",
            "raw pymongo insert_one",
            1.5,
            lambda n, p: append_one(fast, n, p, retryable=True),
        ),
        Row(
            "MongoDB, one event an append",
            "the same, not retryable",
            None,
            lambda n, p: append_one(fast, n, p, retryable=False),
        ),
        Row(
            "MongoDB, 100 events an append",
            "one document, one payload",
            1.5,
            lambda n, p: append_hundred(fast, n, p, apart=False),
        ),
        Row(
            "MongoDB, 100 events an append",
            "insert_many, 100 documents",
            None,
            lambda n, p: append_hundred(fast, n, p, apart=True),
        ),
        Row("MongoDB, load 1,000 events", "1,000 documents, sorted", 1.8, lambda n, p: load(fast, 1_000, n, p)),
        Row("MongoDB, load 5,000 events", "5,000 documents, sorted", 1.8, lambda n, p: load(fast, 5_000, n, p)),
        Row(
            "MongoDB, 8 processes on one run",
            "one process's throughput",
            0.4,
            lambda n, p: contention(fast, n, p),
            throughput=True,
        ),
        Row("MongoDB, their 99th percentile", "their median", 60, lambda n, p: contention_tail(fast, n, p)),
        Row(
            "MongoDB, 32 tasks on 32 runs, async",
            "one task's throughput",
            4.0,
            lambda n, p: tasks(fast, n, p, _append_in_tasks),
            throughput=True,
        ),
        Row(
            "MongoDB, raw pymongo, 32 tasks",
            "one task's throughput",
            None,
            lambda n, p: tasks(fast, n, p, _insert_in_tasks),
            throughput=True,
        ),
        Row(
            "MongoDB, raw pymongo, 32 threads",
            "one thread's throughput",
            None,
            lambda n, p: threads(fast, n, p),
            throughput=True,
        ),
        *(
            Row(
                f"MongoDB, append at {length:,} events",
                "at 100 events",
                1.1,
                partial(append_to_long, fast, length),
            )
            for length in (1_000, 10_000, 50_000)
        ),
        *(
            Row(
                f"MongoDB, growing document at {length:,}",
                "at 100 events",
                None,
                partial(append_to_growing, fast, length),
            )
            for length in (1_000, 10_000, 50_000)
        ),
        Row(
            "MongoDB, one event an append, on disk",
            "raw pymongo insert_one",
            None,
            lambda n, p: append_one(disk, n, p, retryable=True),
        ),
    ]


def append_one(parent: Path, rounds: int, progress: Progress, *, retryable: bool) -> Ratio:
    """Append single events, against inserting single documents. Each round has new servers (see ``mongo_floor``)."""

    def measured() -> float:
        with new_server(parent) as uri:
            return _appends(uri, _SINGLE, 1)

    def baseline() -> float:
        first, *documents = floor.documents(workload.events(1 + _SINGLE))
        with new_server(parent) as uri, floor.collection(uri, retryable=retryable) as collection:
            insert = collection.insert_one
            insert(first)

            def work() -> None:
                for document in documents:
                    insert(document)

            return timed(work, _SINGLE)

    return compare(measured, baseline, rounds, progress)


def append_hundred(parent: Path, rounds: int, progress: Progress, *, apart: bool) -> Ratio:
    """Append a hundred events at once, against one document of the same size or a hundred documents."""
    batches = 20

    def baseline(server: str) -> float:
        chunks = list(workload.chunks(workload.events(100 * (1 + batches)), 100))
        many = [floor.documents(chunk) for chunk in chunks]
        lumps = [floor.lump(chunk, place) for place, chunk in enumerate(chunks)]
        with floor.collection(server) as collection:

            def insert(number: int) -> None:
                if apart:
                    collection.insert_many(many[number])
                else:
                    collection.insert_one(lumps[number])

            def work() -> None:
                for number in range(1, 1 + batches):
                    insert(number)

            insert(0)
            return timed(work, 100 * batches)

    return _on_two_servers(parent, rounds, progress, lambda server: _appends(server, batches, 100), baseline)


def _appends(server: str, count: int, size: int) -> float:
    first, *batches = workload.chunks(workload.events((1 + count) * size), size)
    with floor.database(server) as uri, open_sync_store(uri) as store:
        append = store.append_events
        append("agent", "run", *first)

        def work() -> None:
            for batch in batches:
                append("agent", "run", *batch)

        return timed(work, count * size)


def load(parent: Path, count: int, rounds: int, progress: Progress) -> Ratio:
    """Load a run of ``count`` events, one in each document, against reading the floor's documents."""
    events = workload.events(count)
    repeat = max(1, 2_000 // count)
    with (
        servers(parent) as (first, second),
        floor.database(first) as uri,
        open_sync_store(uri) as store,
        floor.collection(second) as collection,
    ):
        for event in events:
            store.append_events("agent", "run", event)
        collection.insert_many(floor.documents(events))
        assert len(store.load_run("agent", "run").log) == len(floor.load(collection, count)) == count
        return compare(
            lambda: timed(lambda: [store.load_run("agent", "run") for _ in range(repeat)], repeat),
            lambda: timed(lambda: [floor.load(collection, count) for _ in range(repeat)], repeat),
            rounds,
            progress,
        )


def contention(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Compare the seconds for each append to one run: eight processes at the same time, against one process."""
    with servers(parent) as (first, second), processes(_PROCESSES) as eight, processes(1) as alone:
        return compare(
            lambda: _seconds_an_append(_laps(first, eight, 50)),
            lambda: _seconds_an_append(_laps(second, alone, 200)),
            rounds,
            progress,
        )


def contention_tail(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Compare the times of appends by eight processes to one run: the 99th percentile, against the median."""
    pairs: list[tuple[float, float]] = []
    with new_server(parent) as server, processes(_PROCESSES) as eight:
        for _ in range(rounds):
            latencies = sorted(seconds for lap in _laps(server, eight, 50) for seconds in lap.latencies)
            pairs.append((latencies[len(latencies) * 99 // 100], latencies[len(latencies) // 2]))
            progress()
    return ratio_of(pairs)


def _laps(server: str, at_once: AtOnce, each: int) -> list[Lap]:
    """Let processes append to one run, and check that each event is stored once."""
    with floor.database(server) as uri:
        laps = at_once(uri, each)
        with open_sync_store(uri) as store:
            log = store.load_run("agent", "run").log
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert sorted(event.event_id for event in log) == sorted(first for lap in laps for first in lap.event_ids)
    return laps


def _seconds_an_append(laps: Sequence[Lap]) -> float:
    lasted = max(lap.end for lap in laps) - min(lap.start for lap in laps)
    return lasted / sum(len(lap.latencies) for lap in laps)


def tasks(parent: Path, rounds: int, progress: Progress, work: Callable[[str, int, int], Side]) -> Ratio:
    """Compare the seconds for each write: many tasks, each with its own run, against one task."""
    with servers(parent) as (first, second):
        return compare(work(first, _TASKS, 16), work(second, 1, 200), rounds, progress)


def _append_in_tasks(server: str, count: int, each: int) -> Side:
    async def append_all() -> float:
        batches = [workload.events(1 + each) for _ in range(count)]
        with floor.database(server) as uri:
            async with open_store(uri) as store:

                async def append(run: str, events: Sequence[Event]) -> None:
                    for event in events:
                        await store.append_events("agent", run, event)

                return await _at_once(append, batches)

    return lambda: asyncio.run(append_all())


def _insert_in_tasks(server: str, count: int, each: int) -> Side:
    async def insert_all() -> float:
        batches = [floor.documents(workload.events(1 + each), b"%16d" % number) for number in range(count)]
        with floor.database(server) as uri:
            async with floor.connect_async(uri) as client:
                collection = floor.asynchronous(client)
                await collection.create_index([("k", 1), ("s", 1)])

                async def insert(_: str, documents: Sequence[floor.Document]) -> None:
                    for document in documents:
                        await collection.insert_one(document)

                return await _at_once(insert, batches)

    return lambda: asyncio.run(insert_all())


async def _at_once(work: Callable[[str, Sequence[Any]], Any], batches: Sequence[Sequence[Any]]) -> float:
    """Write the first event of each batch, so that runs and connections exist. Then time the other events."""
    await asyncio.gather(*[work(f"run-{number}", batch[:1]) for number, batch in enumerate(batches)])
    with no_collections():
        start = perf_counter()
        await asyncio.gather(*[work(f"run-{number}", batch[1:]) for number, batch in enumerate(batches)])
        return (perf_counter() - start) / sum(len(batch) - 1 for batch in batches)


def threads(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Compare the seconds for each insert through pymongo: many threads, against one thread."""

    def insert_all(server: str, count: int, each: int) -> float:
        batches = [floor.documents(workload.events(1 + each), b"%16d" % number) for number in range(count)]
        with floor.collection(server, retryable=False) as collection, ThreadPoolExecutor(count) as pool:

            def insert(documents: Sequence[floor.Document]) -> None:
                for document in documents:
                    collection.insert_one(document)

            list(pool.map(insert, [batch[:1] for batch in batches]))
            return timed(lambda: list(pool.map(insert, [batch[1:] for batch in batches])), count * each)

    return _on_two_servers(
        parent,
        rounds,
        progress,
        lambda server: insert_all(server, _TASKS, 16),
        lambda server: insert_all(server, 1, 200),
    )


def append_to_long(parent: Path, length: int, rounds: int, progress: Progress) -> Ratio:
    """Append single events to a run of ``length`` events, against a run of 100 in the same database."""
    numbers = itertools.count()
    with new_server(parent) as server, floor.database(server) as uri, open_sync_store(uri) as store:

        def run_of(events: int) -> str:
            run = f"run-{next(numbers)}"
            for batch in workload.chunks(workload.events(events), _BATCH):
                store.append_events("agent", run, *batch)
            return run

        def appends(run: str) -> float:
            events = workload.events(_FEW)

            def work() -> None:
                for event in events:
                    store.append_events("agent", run, event)

            return timed(work, len(events))

        long = run_of(length)
        return compare(lambda: appends(long), lambda: appends(run_of(_SHORT)), rounds, progress)


def append_to_growing(parent: Path, length: int, rounds: int, progress: Progress) -> Ratio | str:
    """Push single events to a document of ``length`` events, against one of 100.

    Return the reason as text if the document is too large for MongoDB.
    """
    numbers = itertools.count()
    with new_server(parent) as server, floor.collection(server) as collection:

        def pushes(size: int) -> float:
            events = [floor.pushed(event) for event in workload.events(3)]
            run = b"%16d" % next(numbers)
            collection.insert_one(floor.growing_document(run, workload.events(size)))

            def work() -> None:
                for event in events:
                    collection.update_one({"k": run}, {"$push": {"events": event}})

            return timed(work, len(events))

        try:
            return compare(lambda: pushes(length), lambda: pushes(_SHORT), rounds, progress)
        except DocumentTooLarge:
            return "impossible: over 16 MiB"


def _on_two_servers(
    parent: Path, rounds: int, progress: Progress, measured: Callable[[str], float], baseline: Callable[[str], float]
) -> Ratio:
    with servers(parent) as (first, second):
        return compare(lambda: measured(first), lambda: baseline(second), rounds, progress)
