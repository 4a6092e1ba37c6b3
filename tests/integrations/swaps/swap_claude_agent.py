"""A plugin of pytest for the tests of the Claude Agent SDK: MemoryLogSessionStore takes the place of its double.

With ``SWAP=loop``, the store is in memory, and the event loop calls it without a thread. Some tests give a store a
fixed number of steps of the loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import claude_agent_sdk
import claude_agent_sdk._internal.session_store
from claude_agent_sdk import SessionKey
from swapped_store import new_url

from agent_memory_log.integrations import claude_agent
from agent_memory_log.integrations.claude_agent import MemoryLogSessionStore
from agent_memory_log.store import RunInfo


async def _in_loop(call: Callable[[], Any]) -> Any:
    return call()


if os.environ["SWAP"] == "loop":
    vars(claude_agent)["in_thread"] = _in_loop


class InMemorySessionStore(MemoryLogSessionStore):
    """The store with the three methods that the double has for tests."""

    def __init__(self) -> None:
        super().__init__(new_url("memory"))

    def _all_runs(self) -> tuple[RunInfo, ...]:
        return self.store.list_runs(limit=1000).runs

    def get_entries(self, key: SessionKey) -> list[Any]:
        return list(claude_agent._entries_of(self.store.load_run(*claude_agent._place(key))))

    @property
    def size(self) -> int:
        return sum("subpath" not in claude_agent._parts_of(run) for run in self._all_runs())

    def clear(self) -> None:
        for run in self._all_runs():
            self.store.delete_run(run.agent, run.run)


for _module in (claude_agent_sdk, claude_agent_sdk._internal.session_store):
    vars(_module)["InMemorySessionStore"] = InMemorySessionStore
