"""Finds the names in a text without a model, and tells which names mean the same person or thing."""

from agent_memory_log.memory.entities.aliases import alias_key, unique_names
from agent_memory_log.memory.entities.names import MOST_ENTITIES, entities_of

__all__ = ["MOST_ENTITIES", "alias_key", "entities_of", "unique_names"]
