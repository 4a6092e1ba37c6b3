"""The libraries that store in SQLite, and our own store beside them.

Each has its default settings. They leave ``synchronous`` at its default, FULL, so each commit calls fsync.
Google's ADK keeps SQLite's rollback journal; the others set the write-ahead log.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from agent_memory_log import Event
from benchmarks import floor
from benchmarks.peers.contract import AsyncLog, Log, Peer
from benchmarks.peers.logs import OpenAiLog, open_own, open_own_async
from benchmarks.peers.messages import adk_event, langchain_message


class _Floor:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._made = 0

    def messages(self, events: Sequence[Event]) -> list[floor.Row]:
        rows = [(row[0] + self._made, row[1], row[2], row[3], row[4]) for row in floor.rows(list(events))]
        self._made += len(rows)
        return rows

    def append_each(self, batches: Sequence[list[floor.Row]]) -> None:
        for batch in batches:
            if len(batch) == 1:
                floor.append_each(self._connection, batch)
            else:
                floor.append_batches(self._connection, batch, len(batch))

    def load(self) -> int:
        return len(floor.load(self._connection, self._made))


@contextmanager
def _open_floor(folder: Path) -> Generator[Log]:
    connection = floor.connect(folder / "floor.db")
    try:
        yield _Floor(connection)
    finally:
        connection.close()


@contextmanager
def _open_openai(folder: Path) -> Generator[Log]:
    session = import_module("agents").SQLiteSession("run", folder / "openai.db")
    with asyncio.Runner() as runner:
        try:
            yield OpenAiLog(runner, session)
        finally:
            session.close()


class _LangGraph:
    """A thread of LangGraph whose state is the list of messages. Each checkpoint has the whole state."""

    def __init__(self, saver: Any) -> None:  # noqa: ANN401  # it may not be installed
        self._saver = saver
        self._base = import_module("langgraph.checkpoint.base")
        self._config: Any = {"configurable": {"thread_id": "run", "checkpoint_ns": ""}}
        self._state: list[Any] = []

    def messages(self, events: Sequence[Event]) -> list[Any]:
        return [langchain_message(event) for event in events]

    def append_each(self, batches: Sequence[list[Any]]) -> None:
        for batch in batches:
            self._state = [*self._state, *batch]
            checkpoint = self._base.empty_checkpoint() | {"channel_values": {"messages": self._state}}
            metadata: dict[str, Any] = {"source": "loop", "step": len(self._state), "parents": {}}
            self._config = self._saver.put(self._config, checkpoint, metadata, {"messages": len(self._state)})

    def load(self) -> int:
        newest: Any = self._saver.get_tuple({"configurable": {"thread_id": "run"}})
        return len(newest.checkpoint["channel_values"]["messages"])


@contextmanager
def _open_langgraph(folder: Path) -> Generator[Log]:
    saver = import_module("langgraph.checkpoint.sqlite").SqliteSaver
    with saver.from_conn_string(str(folder / "langgraph.db")) as opened:
        opened.setup()
        yield _LangGraph(opened)


class _AdkLog(AsyncLog):
    def __init__(self, runner: asyncio.Runner, service: Any) -> None:  # noqa: ANN401  # it may not be installed
        super().__init__(runner)
        self._service = service
        self._key = {"app_name": "agent", "user_id": "user", "session_id": "run"}
        self._session = runner.run(service.create_session(**self._key))

    def messages(self, events: Sequence[Event]) -> list[Any]:
        return [adk_event(event) for event in events]

    async def append(self, batch: list[Any]) -> None:
        for event in batch:  # it has no call for several events
            await self._service.append_event(self._session, event)

    async def count(self) -> int:
        return len((await self._service.get_session(**self._key)).events)


@contextmanager
def _open_adk(folder: Path) -> Generator[Log]:
    service = import_module("google.adk.sessions").DatabaseSessionService
    with asyncio.Runner() as runner:
        opened = service(f"sqlite+aiosqlite:///{folder / 'adk.db'}")
        try:
            yield _AdkLog(runner, opened)
        finally:
            runner.run(opened.close())


@cache
def _run_classes() -> tuple[Any, Any]:
    """Return an aggregate and its event with the type and the data of one of our payloads."""
    domain = import_module("eventsourcing.domain")
    base: Any = domain.Aggregate
    run = type(base)("Run", (base,), {"__module__": __name__})
    fields = {"__module__": __name__, "__qualname__": "Appended", "__annotations__": {"kind": str, "data": dict}}
    appended = type(base.Event)("Appended", (base.Event,), fields)
    register = import_module("eventsourcing.utils").register_topic
    for topic, registered in (("Run", run), ("Run.Created", run.Created), ("Appended", appended)):
        register(f"{__name__}:{topic}", registered)
    return run, appended


class _EventSourcing:
    def __init__(self, folder: Path) -> None:
        run_class, self._appended = _run_classes()
        settings = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "eventsourcing.db")}
        self._application: Any = import_module("eventsourcing.application").Application(env=settings)
        self._run: Any = run_class()
        self._application.save(self._run)

    def messages(self, events: Sequence[Event]) -> list[Any]:
        return [(event.type, event.data.to_map()) for event in events]

    def append_each(self, batches: Sequence[list[Any]]) -> None:
        for batch in batches:
            for kind, data in batch:
                self._run.trigger_event(self._appended, kind=kind, data=data)
            self._application.save(self._run)

    def load(self) -> int:
        return len(list(self._application.events.get(self._run.id))) - 1

    def close(self) -> None:
        self._application.close()


@contextmanager
def _open_eventsourcing(folder: Path) -> Generator[Log]:
    log = _EventSourcing(folder)
    try:
        yield log
    finally:
        log.close()


PEERS: tuple[Peer, ...] = (
    Peer("raw sqlite3 (the floor)", (), "fsync a commit; encoded payloads, no checks, no index on ids", _open_floor),
    Peer(
        "agent-memory-log",
        (),
        "fsync a commit; typed, checked, idempotent, indexed by type",
        lambda folder: open_own(f"sqlite:///{folder / 'own.db'}"),
    ),
    Peer(
        "agent-memory-log, async",
        (),
        "the same",
        lambda folder: open_own_async(f"sqlite:///{folder / 'own.db'}"),
    ),
    Peer(
        "eventsourcing, Application",
        ("eventsourcing",),
        "fsync a commit (WAL); typed, with versions, but without ids of events or an index by type",
        _open_eventsourcing,
    ),
    Peer(
        "OpenAI Agents, SQLiteSession",
        ("agents",),
        "fsync a commit (WAL); plain dicts, no version, a retry stores twice",
        _open_openai,
    ),
    Peer(
        "LangGraph, SqliteSaver",
        ("langgraph.checkpoint.sqlite", "langchain_core"),
        "fsync a commit (WAL); each append writes the whole state again",
        _open_langgraph,
        fill=100,
    ),
    Peer(
        "Google ADK, DatabaseSessionService",
        ("google.adk", "aiosqlite", "greenlet"),
        "fsync a commit (rollback journal); typed, refuses a stale session, one event a call",
        _open_adk,
    ),
)
