"""The rows of the table that compare sessions of Google's ADK with its own service for databases, on SQLite."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from pathlib import Path

from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

from agent_memory_log.integrations.google_adk import MemoryLogSessionService
from benchmarks.measure import Progress, Ratio, compare, timed
from benchmarks.scratch import scratch
from benchmarks.table import Figure, Row

_TURNS = 50
_LONG = 250
_NEWEST = 20
_AGAINST = "its DatabaseSessionService"

Service = MemoryLogSessionService | DatabaseSessionService
Open = Callable[[Path], Service]


def rows(fast: Path) -> list[Row]:
    """Return every comparison."""
    name = "Google ADK"
    return [
        Row(f"{name}, append the 4 events of a turn", _AGAINST, None, lambda n, p: append_turns(fast, n, p)),
        Row(f"{name}, get a session of 1,000 events", _AGAINST, None, lambda n, p: get_session(fast, None, n, p)),
        Row(f"{name}, get 20 of 1,000 events", _AGAINST, None, lambda n, p: get_session(fast, _NEWEST, n, p)),
    ]


def figures(disk: Path) -> list[Figure]:
    """Return every plain number."""
    return [
        Figure("Google ADK, bytes on disk", f"of {_AGAINST}", 1.0, lambda: bytes_on_disk(disk)),
        Figure("Google ADK, 2 processes on a session", "events lost", 0, lambda: lost(disk)),
    ]


def turn(number: int) -> list[Event]:
    """Return the events of a turn with one call, which changes the user's state."""
    call_id = f"adk-{number:032d}"
    call = types.FunctionCall(id=call_id, name="find_order", args={"order": number, "fields": ["status", "carrier"]})
    response = types.FunctionResponse(id=call_id, name="find_order", response={"order": number, "status": "sent"})
    text = f"Your order {number} left the warehouse this morning and arrives on Friday. Can I do anything else for you?"
    return [
        _event("user", "user", types.Part(text=f"Where is my order {number}?")),
        _event("clerk", "model", types.Part(function_call=call)),
        _event("clerk", "user", types.Part(function_response=response), {"user:last_order": number}),
        _event("clerk", "model", types.Part(text=text)),
    ]


def _event(author: str, role: str, part: types.Part, delta: dict[str, object] | None = None) -> Event:
    content = types.Content(role=role, parts=[part])
    actions = EventActions(state_delta=delta or {})
    return Event(
        invocation_id="e-00000000-0000-0000-0000-000000000000", author=author, content=content, actions=actions
    )


def _of_library(folder: Path) -> Service:
    return MemoryLogSessionService(f"sqlite:///{folder / 'ours.db'}")


def _of_adk(folder: Path) -> Service:
    return DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'theirs.db'}")


def append_turns(parent: Path, rounds: int, progress: Progress) -> Ratio:
    """Append turns event by event, as ADK's runner does."""

    def side(opened: Open) -> float:
        with scratch(parent) as folder, asyncio.Runner() as runner:
            service = opened(folder)
            session = runner.run(_create(service))
            turns = [turn(number) for number in range(_TURNS)]
            seconds = timed(lambda: runner.run(_append(service, session, turns)), _TURNS)
            runner.run(service.close())
            return seconds

    return compare(lambda: side(_of_library), lambda: side(_of_adk), rounds, progress)


def get_session(parent: Path, newest: int | None, rounds: int, progress: Progress) -> Ratio:
    """Read a long session, or its newest events."""
    turns = [turn(number) for number in range(_LONG)]
    with scratch(parent) as folder, asyncio.Runner() as runner:
        services = [_of_library(folder), _of_adk(folder)]
        config = GetSessionConfig(num_recent_events=newest)

        def get(service: Service) -> Session:
            session = runner.run(service.get_session(app_name="shop", user_id="42", session_id="s1", config=config))
            assert session is not None
            return session

        for service in services:
            session = runner.run(_create(service))
            runner.run(_append(service, session, turns))
            assert get(service).events == session.events[-(newest or 0) :]
        library, adk = services
        ratio = compare(lambda: timed(lambda: get(library), 1), lambda: timed(lambda: get(adk), 1), rounds, progress)
        for service in services:
            runner.run(service.close())
        return ratio


async def _create(service: Service) -> Session:
    return await service.create_session(app_name="shop", user_id="42", session_id="s1")


async def _append(service: Service, session: Session, turns: list[list[Event]]) -> None:
    for events in turns:
        for event in events:
            await service.append_event(session, event.model_copy(deep=True))


def bytes_on_disk(parent: Path) -> float:
    """Return the size of our file with a session of 1,000 events, as a part of the size of ADK's file."""
    sizes: list[int] = []
    for opened in (_of_library, _of_adk):
        with scratch(parent) as folder, asyncio.Runner() as runner:
            service = opened(folder)
            session = runner.run(_create(service))
            runner.run(_append(service, session, [turn(number) for number in range(_LONG)]))
            runner.run(service.close())
            sizes.append(sum(path.stat().st_size for path in folder.iterdir()))
    return sizes[0] / sizes[1]


def _append_in_process(folder: Path, name: str) -> None:
    async def append(service: Service) -> None:
        config = GetSessionConfig(num_recent_events=1)
        for number in range(_TURNS):
            for event in turn(number):
                event.id = f"{name}-{event.id}"
                while True:
                    session = await service.get_session(app_name="shop", user_id="42", session_id="s1", config=config)
                    assert session is not None
                    try:
                        await service.append_event(session, event)
                    except StaleSessionError:
                        continue
                    break

    with asyncio.Runner() as runner:
        service = _of_library(folder)
        runner.run(append(service))
        runner.run(service.close())


def lost(disk: Path) -> float:
    """Return how many events two processes lose that append to one session."""
    with scratch(disk) as folder, asyncio.Runner() as runner:
        service = _of_library(folder)
        runner.run(_create(service))
        spawn = multiprocessing.get_context("spawn")
        processes = [spawn.Process(target=_append_in_process, args=(folder, name)) for name in "ab"]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        session = runner.run(service.get_session(app_name="shop", user_id="42", session_id="s1"))
        assert session is not None
        runner.run(service.close())
        return len(processes) * _TURNS * 4 - len({event.id for event in session.events})
