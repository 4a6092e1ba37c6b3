"""Programs that tests run as processes of their own: ``python -m tests.programs NAME ARGUMENTS``.

Each prints what it has been told was stored, and only then, so that a test can hold the store to its word.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable

from agent_memory_log import Event, PlannerNote, ToolResult, new_event, open_store, open_sync_store


def numbered(writer: str, number: int, size: int = 1) -> list[Event]:
    """A batch whose events say who wrote them and which batch they belong to."""
    return [
        new_event(
            PlannerNote(note=f"{writer} {number} {part} {size} " + "x" * (37 * number % 400)),
            event_id=f"{writer}-{number}-{part}",
        )
        for part in range(size)
    ]


def acknowledge(text: str) -> None:
    """Print a line so that it is out before anything else happens."""
    os.write(1, f"{text}\n".encode())


def append_until_killed(url: str, first: str) -> None:
    """Append batches of one to seven events, on and on, acknowledging each by number."""
    with open_sync_store(url) as store:
        number = int(first)
        acknowledge("ready")
        while True:
            store.append_events("agent", "run", *numbered("w", number, number % 7 + 1))
            acknowledge(str(number))
            number += 1


def append_until_killed_async(url: str, first: str) -> None:
    """The same from ten tasks at once, so that commits hold several appends."""

    async def main() -> None:
        async with open_store(url) as store:
            acknowledge("ready")

            async def task(number: int) -> None:
                while True:
                    await store.append_events("agent", "run", *numbered("w", number, number % 7 + 1))
                    acknowledge(str(number))
                    number += 10

            await asyncio.gather(*(task(int(first) + number) for number in range(10)))

    asyncio.run(main())


def append_together(url: str, writer: str, runs: str, count: str) -> None:
    """Append ``count`` events from each of two threads and three tasks, to ``runs`` runs in turn."""
    finished: list[str] = []

    def run_of(number: int) -> str:
        return f"run-{number % int(runs)}"

    def in_thread(name: str) -> None:
        with open_sync_store(url) as store:
            for number in range(int(count)):
                store.append_events("agent", run_of(number), *numbered(f"{writer}.{name}", number))
            finished.append(name)

    async def in_tasks() -> None:
        async with open_store(url) as store:

            async def task(name: str) -> None:
                for number in range(int(count)):
                    await store.append_events("agent", run_of(number), *numbered(f"{writer}.{name}", number))

            await asyncio.gather(*(task(f"task{number}") for number in range(3)))

    threads = [threading.Thread(target=in_thread, args=(f"thread{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    asyncio.run(in_tasks())
    for thread in threads:
        thread.join()
    if len(finished) < len(threads):
        sys.exit(1)


def open_at_once(url: str, writer: str) -> None:
    """Wait for a line on standard input, then open the store and append one event."""
    acknowledge("ready")
    sys.stdin.readline()
    with open_sync_store(url) as store:
        store.append_events("agent", "run", *numbered(writer, 0))


def append_counted(url: str, count: str) -> None:
    """Append events one by one, acknowledging each; for counting the system calls in between."""
    with open_sync_store(url) as store:
        for number in range(int(count)):
            store.append_events("agent", "run", *numbered("w", number))
            acknowledge(f"stored {number}")


def append_counted_async(url: str, count: str) -> None:
    """The same through the asynchronous surface, from a hundred tasks at once."""

    async def main() -> None:
        async with open_store(url) as store:

            async def task(number: int) -> None:
                await store.append_events("agent", "run", *numbered("w", number))
                acknowledge(f"stored {number}")

            await asyncio.gather(*map(task, range(int(count))))

    asyncio.run(main())


def fill_disk(url: str) -> None:
    """Append large events until the store refuses, then say with what and how many were acknowledged."""
    stored = 0
    with open_sync_store(url) as store:
        try:
            while True:
                event = new_event(ToolResult("c", "t", result_json='"' + "x" * 200_000 + '"'), event_id=str(stored))
                store.append_events("agent", "run", event)
                stored += 1
        except Exception as error:
            acknowledge(f"{type(error).__name__} {stored} {error.__cause__!r}")


def _in_child(work: Callable[[], object]) -> str:
    """Fork; the class of what ``work()`` raised in the child, or ``nothing``."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what is tested
        child = os.fork()
    if child == 0:
        try:
            work()
            os.write(writing, b"nothing")
        except BaseException as error:
            os.write(writing, type(error).__name__.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as said:
        return said.read()


def use_inherited(url: str) -> None:
    """Use a handle in a forked child, and then here."""
    with open_sync_store(url) as store:
        store.append_events("agent", "run", *numbered("parent", 0))
        acknowledge(_in_child(lambda: store.append_events("agent", "run", *numbered("child", 0))))
        acknowledge(_in_child(lambda: store.load_run("agent", "run")))
        acknowledge(_in_child(store.close))
        store.append_events("agent", "run", *numbered("parent", 1))
        acknowledge(str(store.load_run("agent", "run").version))


def make_ids_in_a_child() -> None:
    """Print an event id made here, and a hundred made in a forked child."""
    acknowledge(new_event(PlannerNote(note="parent")).event_id)
    _in_child(lambda: acknowledge("\n".join(new_event(PlannerNote(note="child")).event_id for _ in range(100))))


def open_own_in_a_child(url: str) -> None:
    """Fork while an asynchronous handle is open, and open another one in the child."""

    def child() -> None:
        with open_sync_store(url) as own:
            own.append_events("agent", "run", *numbered("child", 0))

    async def main() -> None:
        async with open_store(url) as store:
            await store.append_events("agent", "run", *numbered("parent", 0))
            acknowledge(await asyncio.to_thread(_in_child, child))
            acknowledge(str((await store.load_run("agent", "run")).version))

    asyncio.run(main())


def append_as_nobody(url: str) -> None:
    """Drop root's rights and try to append."""
    importlib.import_module("agent_memory_log_sqlite")  # this user may not read where Python lies
    os.setgid(65534)
    os.setuid(65534)
    try:
        with open_sync_store(url) as store:
            store.append_events("agent", "run", *numbered("nobody", 0))
    except Exception as error:
        acknowledge(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
