"""Programs that tests of the MongoDB store run as separate processes: ``python -m tests.mongo.programs NAME ...``.

Each program reports that it is ready, and begins when it reads a line, so that all programs of a test begin at once. At
the end it prints its results as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

from agent_memory_log import open_store, open_sync_store
from tests.mongo.operations import notes

TASKS = 4


def sizes(count: int) -> list[int]:
    """Return the number of events in each of the ``count`` appends of a task."""
    return [1 + number % 3 for number in range(count)]


def run_of(name: str, runs: int, writer: int, task: int, number: int) -> str:
    """Return the name of the run for one batch. Writers with an odd number begin in the middle of the runs."""
    return f"{name}-{(number * TASKS + task + writer * runs // 2) % runs}"


def _begin() -> None:
    _say("ready")
    sys.stdin.readline()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def append(url: str, writer: str, *phases: str) -> None:
    """Append events from ``TASKS`` tasks at once. Print the run, the seq and the id of each event.

    Args:
        url: The URL of the store.
        writer: The number of this process.
        phases: The phases in order, each written as ``name:runs:count``. In a phase, each task appends ``count``
            batches. It takes the ``runs`` runs of that phase in turn.
    """
    acknowledged: list[tuple[str, int, str]] = []

    async def main() -> None:
        async with open_store(url) as store:

            async def work(task: int) -> None:
                for name, runs, count in (phase.split(":") for phase in phases):
                    for number, size in enumerate(sizes(int(count))):
                        run = run_of(name, int(runs), int(writer), task, number)
                        events = notes(f"{name}.{writer}.{task}.{number}.", size)
                        result = await store.append_events("agent", run, *events)
                        assert result.inserted == size
                        acknowledged.extend((run, event.seq, event.event_id) for event in result.events)

            _begin()
            await asyncio.gather(*map(work, range(TASKS)))

    asyncio.run(main())
    _say(json.dumps(acknowledged))


def follow(url: str, *runs: str) -> None:
    """Follow runs up to a last seq, each written as ``run=seq``. Print the seq and id of each event, by run."""

    async def main() -> dict[str, list[tuple[int, str]]]:
        async with open_store(url) as store:

            async def follow_one(run: str, last: int) -> list[tuple[int, str]]:
                events: list[tuple[int, str]] = []
                async for event in store.follow("agent", run):
                    events.append((event.seq, event.event_id))
                    if event.seq == last:
                        break
                return events

            last_seqs = [(run, int(last)) for run, _, last in (text.partition("=") for text in runs)]
            _begin()
            seen = await asyncio.gather(*(follow_one(run, last) for run, last in last_seqs))
            return {run: events for (run, _), events in zip(last_seqs, seen, strict=True)}

    _say(json.dumps(asyncio.run(main())))


def follow_sync(url: str, run: str) -> None:
    """Follow one run, written as ``run=seq``, like ``follow`` but with a synchronous handle."""
    name, _, last = run.partition("=")
    events: list[tuple[int, str]] = []
    with open_sync_store(url) as store:
        _begin()
        for event in store.follow("agent", name):
            events.append((event.seq, event.event_id))
            if event.seq == int(last):
                break
    _say(json.dumps({name: events}))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
