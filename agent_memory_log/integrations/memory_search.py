"""The function with which an agent of any framework looks into a memory. Frameworks make a tool of it."""

from __future__ import annotations

from collections.abc import Callable

from agent_memory_log.memory.sync import SyncMemoryCalls


def memory_search(memory: SyncMemoryCalls) -> Callable[[str], str]:
    """Return a function that answers a question from a memory. Its docstring is what a model reads about the tool."""

    def search_memory(query: str) -> str:
        """Search the memories of earlier conversations.

        Args:
            query: The question to answer from memory.
        """
        return memory.context(query).text or "Nothing about this is remembered."

    return search_memory
