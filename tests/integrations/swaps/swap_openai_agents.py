"""A plugin of pytest for the tests of the OpenAI Agents SDK: MemoryLogSession takes the place of SQLiteSession.

It is not a subclass, because a compaction of a subclass takes another way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
import agents.memory
import agents.memory.sqlite_session
from swapped_store import new_url

from agent_memory_log.integrations.openai_agents import MemoryLogSession

_initialize = MemoryLogSession.__init__


def _of_path(
    self: Any, session_id: str, db_path: str | Path = ":memory:", *, session_settings: Any = None
) -> None:  # the arguments of SQLiteSession
    self.db_path = db_path
    url = new_url("memory")
    if str(db_path) != ":memory:":  # sessions of one path share a store
        url = f"sqlite:///{db_path}" if url.startswith("sqlite:") else f"memory:{Path(db_path).resolve()}"
    _initialize(self, session_id, url, session_settings=session_settings)


MemoryLogSession.__init__ = _of_path  # type: ignore[assignment,method-assign]  # its place
for _module in (agents, agents.memory, agents.memory.sqlite_session):
    vars(_module)["SQLiteSession"] = MemoryLogSession
