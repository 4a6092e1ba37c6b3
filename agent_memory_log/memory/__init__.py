"""Preferences, facts and episodes that are derived from the log and stored as events in the same store.

    memory = MemoryClient(store)
    me = memory.of(Principal(tenant="acme", scopes={"user": "42", "workspace": "ops"}))
    await me.remember(key="language", value="english")
    await me.derive("support-agent", "run-42")

``SyncMemoryClient`` has the same methods without ``await``. Every memory names its source. ``forget`` erases a memory
from the store.
"""

from agent_memory_log.memory.calls import Memory
from agent_memory_log.memory.client import MemoryClient
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Episode, Fact, Preference, RecordData, UnknownKind, register_kind
from agent_memory_log.memory.records.messages import RunMessage
from agent_memory_log.memory.records.principals import Principal, SubjectId, stream_of, subject_of
from agent_memory_log.memory.records.protocols import (
    Execution,
    Extraction,
    Extractor,
    Merger,
    OpenExecution,
    OpenPolicy,
    Policy,
    Redactor,
    Refusal,
    RunSlice,
    Violation,
)
from agent_memory_log.memory.records.record import Evidence, Link, Record, Source
from agent_memory_log.memory.records.reports import (
    CleanupReport,
    DeriveReport,
    Explanation,
    ForgetReport,
    Hit,
    Hits,
    LinkReport,
    MemoryContext,
    Outcome,
    RebuildReport,
    Stats,
    Version,
    WriteReport,
)
from agent_memory_log.memory.sync import SyncMemory, SyncMemoryClient

__all__ = [
    "Candidate",
    "CleanupReport",
    "DeriveReport",
    "Episode",
    "Evidence",
    "Execution",
    "Explanation",
    "Extraction",
    "Extractor",
    "Fact",
    "ForgetReport",
    "Hit",
    "Hits",
    "Link",
    "LinkReport",
    "Memory",
    "MemoryClient",
    "MemoryContext",
    "Merger",
    "OpenExecution",
    "OpenPolicy",
    "Outcome",
    "Policy",
    "Preference",
    "Principal",
    "RebuildReport",
    "Record",
    "RecordData",
    "Redactor",
    "Refusal",
    "RunMessage",
    "RunSlice",
    "Source",
    "Stats",
    "SubjectId",
    "SyncMemory",
    "SyncMemoryClient",
    "UnknownKind",
    "Version",
    "Violation",
    "WriteReport",
    "register_kind",
    "stream_of",
    "subject_of",
]
