"""A plugin of pytest for the tests of LangGraph's stores: MemoryLogStore takes the place of their classes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import langgraph.store.memory
import langgraph.store.sqlite
import langgraph.store.sqlite.aio
from swapped_store import new_url

from agent_memory_log.integrations.langgraph import MemoryLogStore


class _InMemory(MemoryLogStore):
    """The class in the place of InMemoryStore, with the same arguments."""

    def __init__(self, *, index: Any = None) -> None:
        super().__init__(new_url("memory"), index=index)


class _OnFile(MemoryLogStore):
    """The class in the place of SqliteStore, which has a method to create its tables."""

    def setup(self) -> None:
        """Do nothing."""


class _OnFileAsync(MemoryLogStore):
    """The class in the place of AsyncSqliteStore."""

    async def setup(self) -> None:
        """Do nothing."""


@contextmanager
def _opened(_: str, *, index: Any = None, ttl: Any = None, kind: Any = _OnFile) -> Generator[Any]:
    # SqliteStore has another name for the fields.
    index = None if index is None else {**index, "fields": index.get("fields") or index.get("text_fields")}
    with kind(new_url("sqlite"), index=index, ttl=ttl) as store:
        yield store


@asynccontextmanager
async def _opened_async(_: str, *, index: Any = None, ttl: Any = None) -> AsyncGenerator[Any]:
    with _opened("", index=index, ttl=ttl, kind=_OnFileAsync) as store:
        yield store


vars(langgraph.store.memory).update(InMemoryStore=_InMemory)
vars(langgraph.store.sqlite).update(SqliteStore=type("SqliteStore", (), {"from_conn_string": staticmethod(_opened)}))
langgraph.store.sqlite.aio.AsyncSqliteStore.from_conn_string = staticmethod(_opened_async)  # type: ignore[assignment,method-assign]  # its place
