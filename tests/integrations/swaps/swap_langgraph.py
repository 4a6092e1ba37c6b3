"""A plugin of pytest for LangGraph's tests: MemoryLogSaver is what the fixtures of SqliteSaver and the tests that name
InMemorySaver get.

A model has the versions of LangChain's packages in its metadata. LangGraph's tests expect those of an environment
without the package ``langchain``, which others of our extras install.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import MagicMock

import langgraph.checkpoint.memory
import langgraph.checkpoint.sqlite
import langgraph.checkpoint.sqlite.aio
from langchain_core.language_models import base as models
from swapped_store import new_url

from agent_memory_log.integrations.langgraph import MemoryLogSaver

# The fixtures for PostgreSQL are imported, but no test that runs here uses them.
for _name in ("langgraph.checkpoint.postgres", "langgraph.checkpoint.postgres.aio", "langgraph.store.postgres"):
    sys.modules[_name] = MagicMock(name=_name)
for _name in ("psycopg", "psycopg_pool"):
    sys.modules[_name] = MagicMock(name=_name)


class _InMemory(MemoryLogSaver):
    """The class in the place of InMemorySaver, with the same arguments."""

    def __init__(self, *, serde: Any = None, factory: Any = None) -> None:  # noqa: ARG002
        super().__init__(new_url("memory"), serde=serde)
        self.stack = ExitStack()


@contextmanager
def _opened(_: str) -> Generator[MemoryLogSaver]:
    with MemoryLogSaver(new_url("sqlite")) as saver:
        yield saver


@asynccontextmanager
async def _opened_async(_: str) -> AsyncGenerator[MemoryLogSaver]:
    with _opened("") as saver:
        yield saver


vars(models)["_get_langchain_version"] = lambda: None
vars(langgraph.checkpoint.memory).update(InMemorySaver=_InMemory, MemorySaver=_InMemory)
langgraph.checkpoint.sqlite.SqliteSaver.from_conn_string = staticmethod(_opened)  # type: ignore[assignment,method-assign]  # its place
langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver.from_conn_string = staticmethod(_opened_async)  # type: ignore[assignment,method-assign]  # its place
