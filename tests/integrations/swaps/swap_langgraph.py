"""A plugin of pytest for LangGraph's tests: MemoryLogSaver is what the fixtures of SqliteSaver and the tests that name
InMemorySaver get.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import MagicMock

import langgraph.checkpoint.memory
import langgraph.checkpoint.sqlite
import langgraph.checkpoint.sqlite.aio

from agent_memory_log.integrations.langgraph import MemoryLogSaver

# The fixtures for PostgreSQL are imported, but no test that runs here uses them.
for _name in ("langgraph.checkpoint.postgres", "langgraph.checkpoint.postgres.aio", "langgraph.store.postgres"):
    sys.modules[_name] = MagicMock(name=_name)
for _name in ("psycopg", "psycopg_pool"):
    sys.modules[_name] = MagicMock(name=_name)


class _InMemory(MemoryLogSaver):
    """The class in the place of InMemorySaver, with the same arguments."""

    def __init__(self, *, serde: Any = None, factory: Any = None) -> None:  # noqa: ARG002
        super().__init__("memory:", serde=serde)
        self.stack = ExitStack()


@contextmanager
def _opened(_: str) -> Generator[MemoryLogSaver]:
    with tempfile.TemporaryDirectory() as folder, MemoryLogSaver(f"sqlite:///{folder}/runs.db?durability=os") as saver:
        yield saver


@asynccontextmanager
async def _opened_async(_: str) -> AsyncGenerator[MemoryLogSaver]:
    with _opened("") as saver:
        yield saver


vars(langgraph.checkpoint.memory).update(InMemorySaver=_InMemory, MemorySaver=_InMemory)
langgraph.checkpoint.sqlite.SqliteSaver.from_conn_string = staticmethod(_opened)  # type: ignore[assignment,method-assign]  # its place
langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver.from_conn_string = staticmethod(_opened_async)  # type: ignore[assignment,method-assign]  # its place
