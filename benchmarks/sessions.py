"""The rows of the table that compare sessions of the OpenAI Agents SDK with its own class for SQLite."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from agents import SQLiteSession

from agent_memory_log.integrations.openai_agents import MemoryLogSession
from benchmarks.measure import Progress, Ratio, compare, timed
from benchmarks.scratch import scratch
from benchmarks.table import Figure, Row

_TURNS = 100
_LONG = 250
_FILE = 1_000
_NEWEST = 20
_PROCESSES = 2

Item = Any
Session = MemoryLogSession | SQLiteSession
Open = Callable[[Path], Session]


def rows(fast: Path) -> list[Row]:
    """Return every comparison."""
    name = "OpenAI Agents"
    return [
        Row(f"{name}, add the 4 items of a turn", "its SQLiteSession", None, lambda n, p: add_turns(fast, n, p)),
        Row(f"{name}, get 1,000 items", "its SQLiteSession", None, lambda n, p: get_items(fast, None, n, p)),
        Row(f"{name}, get 20 of 1,000 items", "its SQLiteSession", None, lambda n, p: get_items(fast, _NEWEST, n, p)),
        Row(f"{name}, two processes at once", "its SQLiteSession", None, lambda n, p: two_processes(fast, n, p)),
    ]


def figures(disk: Path) -> list[Figure]:
    """Return every plain number."""
    return [Figure("OpenAI Agents, bytes on disk", "of its SQLiteSession", 1.0, lambda: bytes_on_disk(disk))]


def turn(number: int) -> list[Item]:
    """Return the items of a turn with one call, as the SDK stores them."""
    text = f"Your order {number} left the warehouse this morning and arrives on Friday. Can I do anything else for you?"
    part: Item = {"annotations": [], "text": text, "type": "output_text", "logprobs": []}
    arguments = f'{{"order":{number},"fields":["status","carrier"]}}'
    call_id = f"call_{number:024d}"
    return [
        {"content": f"Where is my order {number}?", "role": "user"},
        {
            "arguments": arguments,
            "call_id": call_id,
            "name": "find_order",
            "type": "function_call",
            "id": f"fc_{number:048d}",
            "status": "completed",
        },
        {"call_id": call_id, "output": f'{{"order":{number},"status":"sent"}}', "type": "function_call_output"},
        {
            "id": f"msg_{number:048d}",
            "content": [part],
            "role": "assistant",
            "status": "completed",
            "type": "message",
            "phase": "final_answer",
        },
    ]


def _log_session(folder: Path) -> Session:
    return MemoryLogSession("conversation_123", f"sqlite:///{folder / 'ours.db'}")


def _sdk_session(folder: Path) -> Session:
    return SQLiteSession("conversation_123", folder / "theirs.db")


def add_turns(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Add turns one by one."""

    def side(opened: Open) -> float:
        with scratch(parent) as folder, asyncio.Runner() as runner:
            session = opened(folder)
            items = [turn(number) for number in range(_TURNS)]
            seconds = timed(lambda: runner.run(_add(session, items)), _TURNS)
            session.close()
            return seconds

    return compare(lambda: side(_log_session), lambda: side(_sdk_session), rounds, progress)


def get_items(parent: Path, limit: int | None, rounds: int, progress: Progress) -> Ratio:
    """Read items of a long session."""
    items = [turn(number) for number in range(_LONG)]
    expected = [item for turn_items in items for item in turn_items][-(limit or 0) :]
    with scratch(parent) as folder, asyncio.Runner() as runner:
        log_session, sdk_session = _log_session(folder), _sdk_session(folder)
        for session in (log_session, sdk_session):
            runner.run(_add(session, items))
            assert runner.run(session.get_items(limit)) == expected

        def side(session: Session) -> float:
            return timed(lambda: runner.run(session.get_items(limit)), 1)

        ratio = compare(lambda: side(log_session), lambda: side(sdk_session), rounds, progress)
        log_session.close()
        sdk_session.close()
        return ratio


async def _add(session: Session, turns: list[list[Item]]) -> None:
    for items in turns:
        await session.add_items(items)


def two_processes(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Add turns to one session in two processes at once, and check that none is lost."""

    def side(opened: Open) -> float:
        context = multiprocessing.get_context("spawn")
        start = context.Barrier(_PROCESSES + 1)
        with scratch(parent) as folder:
            opened(folder).close()
            workers = [
                context.Process(target=_add_in_process, args=(opened, folder, start, number * _TURNS))
                for number in range(_PROCESSES)
            ]
            for worker in workers:
                worker.start()

            def work() -> None:
                start.wait()
                for worker in workers:
                    worker.join()

            seconds = timed(work, _PROCESSES * _TURNS)
            session = opened(folder)
            items: list[Item] = list(asyncio.run(session.get_items()))
            session.close()
            calls = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
            assert len(calls) == _PROCESSES * _TURNS, "a turn is lost"
            return seconds

    return compare(lambda: side(_log_session), lambda: side(_sdk_session), rounds, progress)


def _add_in_process(opened: Open, folder: Path, start: Barrier, first: int) -> None:
    session = opened(folder)
    start.wait()
    asyncio.run(_add(session, [turn(first + number) for number in range(_TURNS)]))
    session.close()


def bytes_on_disk(parent: Path) -> float:
    """Return the size of our file with 4,000 items, as a part of the size of the SDK's file."""
    sizes: list[int] = []
    for opened in (_log_session, _sdk_session):
        with scratch(parent) as folder:
            session = opened(folder)
            asyncio.run(_add(session, [turn(number) for number in range(_FILE)]))
            session.close()
            sizes.append(sum(path.stat().st_size for path in folder.iterdir()))
    return sizes[0] / sizes[1]
