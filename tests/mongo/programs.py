"""Programs that tests of the MongoDB store run as processes of their own: ``python -m tests.mongo.programs NAME ...``.

Each says that it is ready and begins when it is given a line, so that all of a test begin at once. What it was told it
prints as JSON in the end.
"""

from __future__ import annotations

import asyncio
import json
import sys

from agent_memory_log import open_store, open_sync_store
from tests.mongo.operations import notes

TASKS = 4


def sizes(count: int) -> list[int]:
    """How many events each of ``count`` appends of a task holds."""
    return [1 + number % 3 for number in range(count)]


def run_of(name: str, runs: int, writer: int, task: int, number: int) -> str:
    """The run of a phase that a task appends its batch of that number to; every second writer begins half way."""
    return f"{name}-{(number * TASKS + task + writer * runs // 2) % runs}"


def _begin() -> None:
    _say("ready")
    sys.stdin.readline()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def append(url: str, writer: str, *phases: str) -> None:
    """Append from four tasks, for each ``name:runs:count`` in turn ``count`` batches a task to that many runs in turn.

    Prints run, seq and id of each event.
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
    """Follow some runs, each given as ``name=last seq``; print seq and id of each event, by run."""

    async def main() -> dict[str, list[tuple[int, str]]]:
        async with open_store(url) as store:

            async def follow_one(run: str, last: int) -> list[tuple[int, str]]:
                events: list[tuple[int, str]] = []
                async for event in store.follow("agent", run):
                    events.append((event.seq, event.event_id))
                    if event.seq == last:
                        break
                return events

            named = [(run, int(last)) for run, _, last in (text.partition("=") for text in runs)]
            _begin()
            seen = await asyncio.gather(*(follow_one(run, last) for run, last in named))
            return {run: events for (run, _), events in zip(named, seen, strict=True)}

    _say(json.dumps(asyncio.run(main())))


def follow_sync(url: str, run: str) -> None:
    """The same with a synchronous handle, and one run."""
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
