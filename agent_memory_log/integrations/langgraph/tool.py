"""The tool with which a graph's agent looks into a memory."""

from __future__ import annotations

from langchain_core.tools import BaseTool, StructuredTool

from agent_memory_log.integrations.memory_search import memory_search
from agent_memory_log.memory.sync import SyncMemoryCalls


def memory_tool(memory: SyncMemoryCalls) -> BaseTool:
    """Return a tool with which an agent looks into a memory. The memory's principal decides which memories it reads.

    tools = ToolNode([memory_tool(SyncMemoryClient(store).of(principal))])
    """
    return StructuredTool.from_function(memory_search(memory), parse_docstring=True)
