"""Programs that tests run as separate processes: ``python -m tests.programs NAME ARGUMENTS``.

Each program prints the number of an append only after the store has confirmed it. A test then checks these events.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress

from agent_memory_log import Event, PlannerNote, Store, ToolResult, UserMessage, new_event, open_store, open_sync_store
from agent_memory_log.errors import CursorOutOfRange
from agent_memory_log.memory import SyncMemoryClient
from agent_memory_log_sqlite import SyncSqliteStore
from tests.memory.stores import TOGETHER, SaidPreferences, SetClock


def numbered(writer: str, number: int, size: int = 1) -> list[Event]:
    """Return a batch of events. Their ids and notes name the writer and the batch."""
    return [
        new_event(
            PlannerNote(note=f"{writer} {number} {part} {size} " + "x" * (37 * number % 400)),
            event_id=f"{writer}-{number}-{part}",
        )
        for part in range(size)
    ]


def acknowledge(text: str) -> None:
    """Write a line to standard output without a buffer."""
    os.write(1, f"{text}\n".encode())


def append_until_killed(url: str, first: str) -> None:
    """Append batches of one to seven events until the process is killed. Print the number of each batch."""
    with open_sync_store(url) as store:
        number = int(first)
        acknowledge("ready")
        while True:
            store.append_events("agent", "run", *numbered("w", number, number % 7 + 1))
            acknowledge(str(number))
            number += 1


def append_until_killed_async(url: str, first: str) -> None:
    """Append batches like ``append_until_killed``, but in ten tasks, so that a commit contains several appends."""

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


def search_until_killed(url: str, first: str) -> None:
    """Change messages and search them, until the process is killed. Searches with and without an embedder alternate."""
    from tests.memory.test_search_vectors import Meaning  # noqa: PLC0415  # numpy loads slowly

    number = int(first)
    with open_sync_store(url) as store:
        plain = SyncMemoryClient(store).of(TOGETHER)
        embedding = SyncMemoryClient(store, embedder=Meaning(tokens=True)).of(TOGETHER)
        acknowledge("ready")
        while True:
            run = f"run-{number % 3}"
            texts = [f"puppy secret{number}x{part} storm {'word ' * (number % 50)}" for part in range(5)]
            version = store.append_events("agent", run, *(new_event(UserMessage(text)) for text in texts)).version
            plain.link_run("agent", run)
            (embedding if number % 3 else plain).search(f"puppy secret{number}x1")
            if number % 5 == 1:
                store.delete_run("agent", run)
            else:
                with suppress(CursorOutOfRange):  # another process deleted the run
                    store.redact_events("agent", run, [version - 1, version])
            acknowledge(str(number))
            number += 1


def append_together(url: str, writer: str, runs: str, count: str) -> None:
    """Append ``count`` events in each of two threads and three tasks. The events go to ``runs`` runs in turn."""
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
    """Wait for a line on standard input, open the store, and append one event."""
    acknowledge("ready")
    sys.stdin.readline()
    with open_sync_store(url) as store:
        store.append_events("agent", "run", *numbered(writer, 0))


def append_counted(url: str, count: str) -> None:
    """Append events one by one and print a line after each, so that a test can count the system calls between."""
    with open_sync_store(url) as store:
        for number in range(int(count)):
            store.append_events("agent", "run", *numbered("w", number))
            acknowledge(f"stored {number}")


def append_counted_async(url: str, count: str) -> None:
    """Do the same on the asynchronous surface, with one task for each event."""

    async def main() -> None:
        async with open_store(url) as store:

            async def task(number: int) -> None:
                await store.append_events("agent", "run", *numbered("w", number))
                acknowledge(f"stored {number}")

            await asyncio.gather(*map(task, range(int(count))))

    asyncio.run(main())


def remember_together(url: str, writer: str, count: str) -> None:
    """Repeatedly remember values under own keys and a shared key, and derive memories from a run."""
    with open_sync_store(url) as store:
        me = SyncMemoryClient(store, extractor=SaidPreferences(), max_keyed=None).of(TOGETHER)
        for number in range(int(count)):
            me.remember(key=f"{writer} {number}", value="v")
            me.remember(key="shared", value=f"{writer} {number}")
            me.derive("agent", "run")
            me.rederive()


def forget_together(url: str) -> None:
    """Forget one of the memories that other processes derive."""
    with open_sync_store(url) as store:
        me = SyncMemoryClient(store, extractor=SaidPreferences(), max_keyed=None).of(TOGETHER)
        me.derive("agent", "run")
        acknowledge(str(me.forget(key="codeword").records))


def maintain_together(url: str, days: str) -> None:
    """Call ``maintain`` with a small limit until a round is complete. Print what remains after each call."""
    clock = SetClock()
    clock.move(days=float(days))
    with open_sync_store(url) as store:
        me = SyncMemoryClient(store, clock=clock).of(TOGETHER)
        acknowledge("ready")
        remaining = 1
        while remaining:
            remaining = me.maintain(limit=3).remaining
            acknowledge(str(remaining))


def fill_disk(url: str) -> None:
    """Append large events until the store raises. Print the error and the number of stored events."""
    stored = 0
    with open_sync_store(url) as store:
        try:
            while True:
                event = new_event(ToolResult("c", "t", result_json='"' + "x" * 200_000 + '"'), event_id=str(stored))
                store.append_events("agent", "run", event)
                stored += 1
        except Exception as error:
            acknowledge(f"{type(error).__name__} {stored} {error.__cause__!r}")


def _begin_child(work: Callable[[], object]) -> Callable[[], str]:
    """Fork and call ``work()`` in the child.

    Returns:
        A function that waits for the child. It returns the name of the error's class, or ``nothing``.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the tests fork a process with threads on purpose
        child = os.fork()
    if child == 0:
        try:
            work()
            os.write(writing, b"nothing")
        except BaseException as error:
            os.write(writing, type(error).__name__.encode())
        os._exit(0)
    os.close(writing)

    def wait() -> str:
        os.waitpid(child, 0)
        with os.fdopen(reading) as pipe:
            return pipe.read()

    return wait


def _in_child(work: Callable[[], object]) -> str:
    """Call ``work()`` in a forked child. Return the name of the error's class, or ``nothing``."""
    return _begin_child(work)()


def use_inherited(url: str) -> None:
    """Use a handle in a forked child, and then in the parent."""
    with open_sync_store(url) as store:
        store.append_events("agent", "run", *numbered("parent", 0))
        acknowledge(_in_child(lambda: store.append_events("agent", "run", *numbered("child", 0))))
        acknowledge(_in_child(lambda: store.load_run("agent", "run")))
        acknowledge(_in_child(store.close))
        store.append_events("agent", "run", *numbered("parent", 1))
        acknowledge(str(store.load_run("agent", "run").version))


def make_ids_in_a_child() -> None:
    """Print an event id of the parent, and a hundred event ids of a forked child."""
    acknowledge(new_event(PlannerNote(note="parent")).event_id)
    _in_child(lambda: acknowledge("\n".join(new_event(PlannerNote(note="child")).event_id for _ in range(100))))


def open_own_in_a_child(url: str) -> None:
    """Fork while an asynchronous handle is open, and open a new handle in the child."""

    def child() -> None:
        with open_sync_store(url) as own:
            own.append_events("agent", "run", *numbered("child", 0))

    async def main() -> None:
        async with open_store(url) as store:
            await store.append_events("agent", "run", *numbered("parent", 0))
            acknowledge(await asyncio.to_thread(_in_child, child))
            acknowledge(str((await store.load_run("agent", "run")).version))

    asyncio.run(main())


def outlive_the_parent(url: str) -> None:
    """Use a child's handle after the parent has closed its own handle and has appended with a new one."""
    (child_opened, tell_opened), (parent_closed, tell_closed) = os.pipe(), os.pipe()

    def child() -> None:
        with open_sync_store(url) as own:
            own.append_events("agent", "run", *numbered("child", 0))
            os.write(tell_opened, b"x")
            os.read(parent_closed, 1)
            for number in range(1, 6):
                own.append_events("agent", "run", *numbered("child", number))

    with open_sync_store(url) as store:
        store.append_events("agent", "run", *numbered("parent", 0))
        wait = _begin_child(child)
        os.close(tell_opened)  # so that os.read returns if the child ended early
        os.read(child_opened, 1)
    with open_sync_store(url) as new_handle:
        new_handle.append_events("agent", "run", *numbered("parent", 1))
    os.write(tell_closed, b"x")
    acknowledge(wait())


def outlive_the_parent_async(url: str) -> None:
    """Do the same on the asynchronous surface."""
    (child_opened, tell_opened), (parent_closed, tell_closed) = os.pipe(), os.pipe()

    async def child() -> None:
        async with open_store(url) as own:
            await own.append_events("agent", "run", *numbered("child", 0))
            os.write(tell_opened, b"x")
            await asyncio.to_thread(os.read, parent_closed, 1)
            for number in range(1, 6):
                await own.append_events("agent", "run", *numbered("child", number))

    async def main() -> None:
        async with open_store(url) as store:
            await store.append_events("agent", "run", *numbered("parent", 0))
            wait = await asyncio.to_thread(_begin_child, lambda: asyncio.run(child()))
            os.close(tell_opened)  # so that os.read returns if the child ended early
            await asyncio.to_thread(os.read, child_opened, 1)
        async with open_store(url) as new_handle:
            await new_handle.append_events("agent", "run", *numbered("parent", 1))
        os.write(tell_closed, b"x")
        acknowledge(await asyncio.to_thread(wait))

    asyncio.run(main())


def be_interrupted(url: str, size: str) -> None:
    """Raise in a signal handler while an append waits for the lock. Then append with this and another handle."""

    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGALRM, interrupt)
    holder = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    transaction_begun = threading.Event()

    def begin(sql: str) -> None:
        if sql.startswith(("BEGIN", "INSERT")):
            transaction_begun.set()

    def interrupt_and_release() -> None:
        transaction_begun.wait()
        time.sleep(0.1)  # there is no event for SQLite's wait; an earlier signal would test less
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        holder.execute("ROLLBACK")

    with open_sync_store(url) as store:
        assert isinstance(store, SyncSqliteStore)
        store.append_events("agent", "run", *numbered("before", 0))
        holder.execute("BEGIN IMMEDIATE")
        thread = threading.Thread(target=interrupt_and_release)
        thread.start()
        store._write_connection.set_trace_callback(begin)
        try:
            store.append_events("agent", "run", *numbered("interrupted", 0, int(size)))
        except Interrupted:
            acknowledge("Interrupted")
        store._write_connection.set_trace_callback(None)
        thread.join()
        acknowledge(str(store.append_events("agent", "run", *numbered("after", 0)).version))
        with open_sync_store(f"{url}?busy_timeout_ms=100") as other:
            acknowledge(str(other.append_events("agent", "run", *numbered("other", 0)).version))


def end_the_loop_first(url: str) -> None:
    """Close an event loop while it has an open handle and an unfinished append."""

    left_behind: list[object] = []

    async def leave_open() -> Store:
        store = await open_store(url)
        left_behind.append(asyncio.create_task(store.append_events("agent", "run", *numbered("w", 0, 5000))))
        await asyncio.sleep(0)
        return store

    loop = asyncio.new_event_loop()
    left_behind.append(loop.run_until_complete(leave_open()))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    with open_sync_store(url) as new_handle:
        while not new_handle.load_run("agent", "run", limit=1).version:
            time.sleep(0.001)  # until the cancelled append is stored
    acknowledge("ended")


def upgrade_until_killed(path: str) -> None:
    """Open an older file, and be killed when the upgrade converts the first event id."""

    def die(_: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    schema = importlib.import_module("agent_memory_log_sqlite.schema")
    setattr(schema, "id_to_store", die)  # noqa: B010  # the type of a module has no such attribute
    open_sync_store(f"sqlite:///{path}").close()


def append_as_nobody(url: str) -> None:
    """Change to an unprivileged user and try to append."""
    importlib.import_module("agent_memory_log_sqlite")  # the new user may have no access to Python's files
    os.setgid(65534)
    os.setuid(65534)
    try:
        with open_sync_store(url) as store:
            store.append_events("agent", "run", *numbered("nobody", 0))
    except Exception as error:
        acknowledge(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
