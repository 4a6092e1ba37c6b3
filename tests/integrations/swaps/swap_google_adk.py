"""A plugin of pytest for the tests of ADK: our services take the places of its services, in memory and on SQLite."""

from __future__ import annotations

from google.adk.memory import in_memory_memory_service
from google.adk.sessions import database_session_service, in_memory_session_service, sqlite_session_service
from swapped_store import new_url

from agent_memory_log.integrations.google_adk import MemoryLogMemoryService, MemoryLogSessionService


class _InMemory(MemoryLogSessionService):
    def __init__(self) -> None:
        super().__init__(new_url("memory"))


class _OnSqlite(MemoryLogSessionService):
    """Takes the place of the service on SQLite, and of the service on any database. Each is a new store."""

    def __init__(self, path: str) -> None:  # noqa: ARG002  # the argument of ADK's class
        super().__init__(new_url("sqlite"))


class _Memory(MemoryLogMemoryService):
    def __init__(self) -> None:
        super().__init__(new_url("memory"))


for _module, _name, _class in (
    (in_memory_session_service, "InMemorySessionService", _InMemory),
    (sqlite_session_service, "SqliteSessionService", _OnSqlite),
    (database_session_service, "DatabaseSessionService", _OnSqlite),
    (in_memory_memory_service, "InMemoryMemoryService", _Memory),
):
    vars(_module)[_name] = _class
