"""Finds a memory by the key or the id that the user gives."""

from __future__ import annotations

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.memory.options import owner_text
from agent_memory_log.memory import Memory, Record


async def find(memory: Memory, name: str, kind: str | None = None) -> Record | None:
    """Return the active record with this key, or else the record with this id, or None."""
    record = await memory.get(key=name, kind=kind)
    if record is not None:
        return record
    explanation = await memory.explain(name)
    return None if explanation is None or kind not in (None, explanation.record.kind) else explanation.record


async def existing(memory: Memory, name: str, kind: str | None = None) -> Record:
    """Return the same record as ``find``. Raises ``CommandFailed`` if no record matches."""
    record = await find(memory, name, kind)
    if record is None:
        raise CommandFailed(
            f"no memory {name!r} of {owner_text(memory.principal)}: list the memories with amlog memory list, or show "
            "earlier values with amlog memory history"
        )
    return record
