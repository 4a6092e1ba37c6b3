"""The whole pattern: one session captures what a user said, a later one plans, retrieves, answers and proves it.

    PatternSession(me, model).capture("Please keep it short, and write in English.")
    PatternSession(me, model).respond("Draft an update on the payment incident.")   # days later, in another process

Needs the extra ``memory``.
"""

from agent_memory_log.memory.pattern.results import HistoryEntry, MemoryItem, PatternResult, TraceStep
from agent_memory_log.memory.pattern.session import PatternSession
from agent_memory_log.memory.pattern.verifiers import VERIFIERS, Verifier

__all__ = ["VERIFIERS", "HistoryEntry", "MemoryItem", "PatternResult", "PatternSession", "TraceStep", "Verifier"]
