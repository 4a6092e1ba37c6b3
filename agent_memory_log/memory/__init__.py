"""Preferences, facts and episodes that are derived from the log and stored as events in the same store.

    memory = MemoryClient(store)
    me = memory.of(Principal(tenant="acme", scopes={"user": "42", "workspace": "ops"}))
    await me.remember(key="language", value="english")
    await me.derive("support-agent", "run-42")

``MemoryClient()`` opens the store of its configuration, a file or a server, and has the methods of memory itself.
``SyncMemoryClient`` has the same methods without ``await``. Every memory names its source. ``forget`` erases a memory
from the store.
"""

from agent_memory_log.memory.calls import MemoryCalls
from agent_memory_log.memory.client import Memory, MemoryClient
from agent_memory_log.memory.configuration import ClientSettings
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
    ServesMemory,
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
from agent_memory_log.memory.sync import SyncMemory, SyncMemoryCalls, SyncMemoryClient

__all__ = [
    "Candidate",
    "CleanupReport",
    "ClientSettings",
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
    "MemoryCalls",
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
    "ServesMemory",
    "Source",
    "Stats",
    "SubjectId",
    "SyncMemory",
    "SyncMemoryCalls",
    "SyncMemoryClient",
    "UnknownKind",
    "Version",
    "Violation",
    "WriteReport",
    "register_kind",
    "stream_of",
    "subject_of",
]
