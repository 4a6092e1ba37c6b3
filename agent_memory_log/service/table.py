"""All operations by the names that every interface uses: ``runs/append_events``, ``memory/remember``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory_log.memory.operations import METHODS
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.store_operations import STORE_METHODS

RUNS = "runs/"
MEMORY = "memory/"

OPERATIONS: Mapping[str, type[Operation[Any]]] = {
    **{RUNS + name: operation for name, operation in STORE_METHODS.items()},
    **{MEMORY + name: operation for name, operation in METHODS.items()},
}
"""The operations by name. Those of a store begin with ``runs/``, those of memory with ``memory/``."""

NAMES: Mapping[type[Operation[Any]], str] = {operation: name for name, operation in OPERATIONS.items()}
"""The names of the operations."""


def needs_principal(operation: type[Operation[Any]]) -> bool:
    """Return whether the operation is one of a principal's memory, and not of a store."""
    return NAMES[operation].startswith(MEMORY)
