"""The memory of an agent loop, over the loop's run and the memory of its principal.

    loops = LoopMemory(store, MemoryClient(store))
    loop = Loop("coder", "task-7", Principal(tenant="acme", scopes={"user": "42"}))
    context = await loops.hydrate_pre_task(loop, "Make the tests pass.")

``SyncLoopMemory`` has the same methods without ``await``.
"""

from agent_memory_log.processor.loop_memory import LoopMemory
from agent_memory_log.processor.loops import (
    Extracted,
    GraphChanges,
    Loop,
    LoopCheckpoint,
    LoopContext,
    Progress,
    Restored,
    Triple,
)
from agent_memory_log.processor.sync import SyncLoopMemory

__all__ = [
    "Extracted",
    "GraphChanges",
    "Loop",
    "LoopCheckpoint",
    "LoopContext",
    "LoopMemory",
    "Progress",
    "Restored",
    "SyncLoopMemory",
    "Triple",
]
