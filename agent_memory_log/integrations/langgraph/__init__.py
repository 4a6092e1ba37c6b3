"""LangGraph: a checkpointer and a store that keep their state in a log of this library, and a tool for memory.

    graph = builder.compile(checkpointer=MemoryLogSaver("sqlite:///runs.db"))

Needs the extra ``langgraph``.
"""

from __future__ import annotations

from agent_memory_log.integrations.opening import needs_extra

with needs_extra("langgraph"):
    from agent_memory_log.integrations.langgraph.saver import MemoryLogSaver
    from agent_memory_log.integrations.langgraph.store import MemoryLogStore
    from agent_memory_log.integrations.langgraph.tool import memory_tool

__all__ = ["MemoryLogSaver", "MemoryLogStore", "memory_tool"]
