"""Sessions and memory of Google's Agent Development Kit, in a store of this library.

The content of each event becomes typed events, so memory, search, transcripts and replay read the run of a session as
any other. ``encoding`` has the form of the events, ``state`` the state of sessions, and ``sessions`` and
``memory`` have the services.
"""

from agent_memory_log.integrations.opening import needs_extra

with needs_extra("google-adk"):
    from agent_memory_log.integrations.google_adk.memory import MemoryLogMemoryService
    from agent_memory_log.integrations.google_adk.sessions import MemoryLogSessionService

__all__ = ["MemoryLogMemoryService", "MemoryLogSessionService"]
