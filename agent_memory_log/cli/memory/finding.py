"""Finding the memory that a person names: by its key, or by its id."""

from __future__ import annotations

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.memory.options import whose
from agent_memory_log.memory import Memory, Record


async def find(memory: Memory, name: str, kind: str | None = None) -> Record | None:
    """The active record with this key, or the record, active or not, with this id."""
    record = await memory.get(key=name, kind=kind)
    if record is not None:
        return record
    explanation = await memory.explain(name)
    return None if explanation is None or kind not in (None, explanation.record.kind) else explanation.record


async def existing(memory: Memory, name: str, kind: str | None = None) -> Record:
    """The record that ``find`` finds. Raises ``CommandFailed``."""
    record = await find(memory, name, kind)
    if record is None:
        raise CommandFailed(
            f"no memory {name!r} of {whose(memory.principal)}: see amlog memory list, or history for what it was"
        )
    return record
