"""The rows of the table that measure the SQLite backend."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from agent_memory_log import PlannerNote, Snapshot, SyncStore, new_event, open_store, open_sync_store
from benchmarks import floor, workload
from benchmarks.measure import Progress, Ratio, compare, timed
from benchmarks.scratch import scratch
from benchmarks.table import Figure, Row

_EVENTS = 2_000
_TASKS = 100


def rows(fast: Path, disk: Path) -> list[Row]:
    """Return every comparison."""
    return [
        Row("SQLite, one event an append", "raw sqlite3", 2.0, lambda n, p: append_one(fast, n, p)),
        Row("SQLite, 100 events an append", "raw sqlite3", 1.8, lambda n, p: append_hundred(fast, n, p)),
        Row("SQLite, load 1,000 events", "raw sqlite3 into structs", 1.4, lambda n, p: load(fast, 1_000, n, p)),
        Row("SQLite, load 5,000 events", "raw sqlite3 into structs", 1.4, lambda n, p: load(fast, 5_000, n, p)),
        Row(
            "SQLite, 10 planner notes of 10,000 events",
            "an indexed select of 10",
            3.0,
            lambda n, p: load_types(fast, "planner_note", n, p),
        ),
        Row(
            "SQLite, 10 tool results of 10,000 events",
            "an indexed select of 10",
            None,
            lambda n, p: load_types(fast, "tool_result", n, p),
        ),
        Row("SQLite, async, one task", "our sync append", 3.5, lambda n, p: append_async(fast, n, p)),
        Row("SQLite, append at 10,000 events", "at 100 events", 1.1, lambda n, p: append_to_long(fast, n, p)),
        Row("SQLite, a planner's turn at 10,000", "at 100 events", 1.2, lambda n, p: planner_turn(fast, n, p)),
        Row("SQLite, one event an append, on disk", "raw sqlite3", None, lambda n, p: append_one(disk, n, p)),
    ]


def figures(disk: Path) -> list[Figure]:
    """Return every plain number."""
    return [
        Figure("SQLite, bytes on disk", "bytes an event", 700, lambda: bytes_per_event(disk)),
        Figure("SQLite, async, 100 tasks, on disk", "fsyncs an event", 0.05, lambda: fsyncs_per_event(disk)),
    ]


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'ours.db'}"


def append_one(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Append single events, against committing single rows."""

    def measured() -> float:
        events = workload.events(_EVENTS)
        with scratch(parent) as folder, open_sync_store(_url(folder)) as store:
            append = store.append_events

            def work() -> None:
                for event in events:
                    append("agent", "run", event)

            return timed(work, _EVENTS)

    return compare(measured, lambda: _floor_append(parent, 1), rounds, progress)


def append_hundred(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Append a hundred events at once, against committing a hundred rows at once."""

    def measured() -> float:
        batches = list(workload.chunks(workload.events(_EVENTS * 2), 100))
        with scratch(parent) as folder, open_sync_store(_url(folder)) as store:

            def work() -> None:
                for batch in batches:
                    store.append_events("agent", "run", *batch)

            return timed(work, _EVENTS * 2)

    return compare(measured, lambda: _floor_append(parent, 100), rounds, progress)


def _floor_append(parent: Path, size: int) -> float:
    count = _EVENTS if size == 1 else _EVENTS * 2
    rows = floor.rows(workload.events(count))
    with scratch(parent) as folder:
        connection = floor.connect(folder / "floor.db")
        try:
            if size == 1:
                return timed(lambda: floor.append_each(connection, rows), count)
            return timed(lambda: floor.append_batches(connection, rows, size), count)
        finally:
            connection.close()


def load(parent: Path, count: int, rounds: int, progress: Progress) -> Ratio:
    """Load a run of ``count`` typed events, against loading the floor's rows and decoding them into structs."""
    events = workload.events(count)
    with scratch(parent) as folder, open_sync_store(_url(folder)) as store:
        store.append_events("agent", "run", *events)
        connection = floor.connect(folder / "floor.db")
        floor.append_batches(connection, floor.rows(events), count)
        repeat = max(1, 5_000 // count)

        def measured() -> float:
            return timed(lambda: [store.load_run("agent", "run") for _ in range(repeat)], repeat)

        def baseline() -> float:
            return timed(lambda: [floor.load(connection, count) for _ in range(repeat)], repeat)

        try:
            return compare(measured, baseline, rounds, progress)
        finally:
            connection.close()


def load_types(parent: Path, event_type: str, rounds: int, progress: Progress) -> Ratio:
    """Load the 10 events of a type among 10,000, against an indexed select of 10 rows."""
    events = [event for event in workload.events(12_500) if event.type != event_type][:9_990]
    samples = {"planner_note": new_event(PlannerNote(note="check the refund first"))}
    sample = samples.get(event_type) or next(event for event in workload.events(5) if event.type == event_type)
    for place in range(10):
        events.insert(place * 999, new_event(sample.data))
    with scratch(parent) as folder, open_sync_store(_url(folder)) as store:
        store.append_events("agent", "run", *events)
        connection = floor.connect(folder / "floor.db")
        floor.append_batches(connection, floor.rows(events), len(events))
        connection.execute("CREATE INDEX by_type ON events (type)")
        select = "SELECT seq, event_id, type, timestamp, data FROM events WHERE type = ? ORDER BY seq"

        def measured() -> float:
            return timed(lambda: [store.load_run("agent", "run", types=[event_type]) for _ in range(20)], 20)

        def baseline() -> float:
            return timed(lambda: [connection.execute(select, (event_type,)).fetchall() for _ in range(20)], 20)

        assert len(store.load_run("agent", "run", types=[event_type]).log) == 10
        try:
            return compare(measured, baseline, rounds, progress)
        finally:
            connection.close()


def append_async(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Append single events from one task, against the synchronous store."""

    async def append_all() -> float:
        events = workload.events(_EVENTS)
        with scratch(parent) as folder:
            async with open_store(_url(folder)) as store:
                await store.append_events("agent", "run", new_event(PlannerNote(note="warm")))
                start = asyncio.get_running_loop().time()
                for event in events:
                    await store.append_events("agent", "run", event)
                return (asyncio.get_running_loop().time() - start) / _EVENTS

    def synchronous() -> float:
        events = workload.events(_EVENTS)
        with scratch(parent) as folder, open_sync_store(_url(folder)) as store:

            def work() -> None:
                for event in events:
                    store.append_events("agent", "run", event)

            return timed(work, _EVENTS)

    return compare(lambda: asyncio.run(append_all()), synchronous, rounds, progress)


def append_to_long(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Append single events to a run of 10,000 events, against a run of 100."""
    return _long_against_short(parent, rounds, progress, _appends)


def planner_turn(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Measure a planner's turn in a run of 10,000 events, against one in a run of 100.

    A turn appends two events, loads them, and extends the snapshot.
    """
    return _long_against_short(parent, rounds, progress, _turns)


def _long_against_short(
    parent: Path, rounds: int, progress: Progress, work: Callable[[SyncStore, str], float]
) -> Ratio:
    numbers = itertools.count()
    with scratch(parent) as folder, open_sync_store(_url(folder)) as store:

        def run_of(length: int) -> str:
            run = f"run-{next(numbers)}"
            store.append_events("agent", run, *workload.events(length))
            return run

        return compare(lambda: work(store, run_of(10_000)), lambda: work(store, run_of(100)), rounds, progress)


def _appends(store: SyncStore, run: str) -> float:
    events = workload.events(200)

    def work() -> None:
        for event in events:
            store.append_events("agent", run, event)

    return timed(work, len(events))


def _turns(store: SyncStore, run: str) -> float:
    pairs = list(workload.chunks(workload.events(200), 2))
    latest: list[Snapshot] = [store.load_run("agent", run)]

    def work() -> None:
        snapshot = latest[0]
        for pair in pairs:
            store.append_events("agent", run, *pair)
            snapshot = snapshot.extend(store.load_run("agent", run, after=snapshot.last_seq))

    return timed(work, len(pairs))


def bytes_per_event(parent: Path) -> float:
    """Return the bytes on disk for each event, after 10,000 single appends and a close."""
    with scratch(parent) as folder:
        with open_sync_store(_url(folder)) as store:
            for event in workload.events(10_000):
                store.append_events("agent", "run", event)
        return sum(file.stat().st_size for file in folder.iterdir()) / 10_000


def fsyncs_per_event(parent: Path) -> float | None:
    """Return the fsyncs for each event while 100 tasks append at once, or None if ``strace`` is not installed."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with scratch(parent) as folder:
        report = folder / "calls"
        subprocess.run(
            [
                *(strace, "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(report)),
                *(sys.executable, "-m", "benchmarks.sqlite", str(folder / "ours.db")),
            ],
            check=True,
        )
        calls = sum("sync(" in line for line in report.read_text().splitlines())
    return calls / _EVENTS


async def _append_at_once(path: str) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        events = workload.events(_EVENTS)

        async def task(number: int) -> None:
            for event in events[number::_TASKS]:
                await store.append_events("agent", "run", event)

        await asyncio.gather(*map(task, range(_TASKS)))


if __name__ == "__main__":
    asyncio.run(_append_at_once(sys.argv[1]))
