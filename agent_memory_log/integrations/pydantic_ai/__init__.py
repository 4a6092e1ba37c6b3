"""Conversations of Pydantic AI in a store of this library, and context from memory for its agents.

Each part of a message becomes a typed event, so memory, search, transcripts and replay read the run of a conversation
as any other. ``encoding`` has the form of the events, ``conversations`` the store, and ``context`` the
processor and the toolset.
"""

from agent_memory_log.integrations.opening import needs_extra

with needs_extra("pydantic-ai"):
    from agent_memory_log.integrations.pydantic_ai.context import memory_context, memory_toolset
    from agent_memory_log.integrations.pydantic_ai.conversations import MemoryLogConversationStore

__all__ = ["MemoryLogConversationStore", "memory_context", "memory_toolset"]
