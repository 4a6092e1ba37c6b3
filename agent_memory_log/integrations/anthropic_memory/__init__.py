"""Anthropic's memory tool on a store of this library: the files of a user are events of a run.

``files`` has the events and the list of files that they give. ``texts`` has the texts that Claude reads. ``commands``
decides what each command changes, and ``tools`` has the tools.
"""

from agent_memory_log.integrations.opening import needs_extra

with needs_extra("anthropic"):
    from agent_memory_log.integrations.anthropic_memory.tools import AsyncMemoryLogMemoryTool, MemoryLogMemoryTool

__all__ = ["AsyncMemoryLogMemoryTool", "MemoryLogMemoryTool"]
