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
from agent_memory_log.memory.entities import alias_key, entities_of
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import (
    Consent,
    Episode,
    Fact,
    Note,
    Preference,
    RecordData,
    Relation,
    UnknownKind,
    register_kind,
)
from agent_memory_log.memory.records.messages import ConversationTurn, RunMessage
from agent_memory_log.memory.records.plans import Plan
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
    Reranker,
    RunSlice,
    ServesMemory,
    Summarizer,
    Violation,
)
from agent_memory_log.memory.records.quotas import Limit, LimitUse, Quotas
from agent_memory_log.memory.records.record import Evidence, Link, Record, Source
from agent_memory_log.memory.records.reports.conflicts import ConflictPair, Trust
from agent_memory_log.memory.records.reports.graphs import Edge, MemoryGraph, MemoryPaths, MemoryTrace, Node, TraceStep
from agent_memory_log.memory.records.reports.outcomes import (
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
from agent_memory_log.memory.records.reports.upkeep import (
    AuditEvent,
    Evolution,
    EvolutionEvent,
    Health,
    MaintainReport,
    Upkeep,
)
from agent_memory_log.memory.sync import SyncMemory, SyncMemoryCalls, SyncMemoryClient

__all__ = [
    "AuditEvent",
    "Candidate",
    "ClientSettings",
    "ConflictPair",
    "Consent",
    "ConversationTurn",
    "DeriveReport",
    "Edge",
    "Episode",
    "Evidence",
    "Evolution",
    "EvolutionEvent",
    "Execution",
    "Explanation",
    "Extraction",
    "Extractor",
    "Fact",
    "ForgetReport",
    "Health",
    "Hit",
    "Hits",
    "Limit",
    "LimitUse",
    "Link",
    "LinkReport",
    "MaintainReport",
    "Memory",
    "MemoryCalls",
    "MemoryClient",
    "MemoryContext",
    "MemoryGraph",
    "MemoryPaths",
    "MemoryTrace",
    "Merger",
    "Node",
    "Note",
    "OpenExecution",
    "OpenPolicy",
    "Outcome",
    "Plan",
    "Policy",
    "Preference",
    "Principal",
    "Quotas",
    "RebuildReport",
    "Record",
    "RecordData",
    "Redactor",
    "Refusal",
    "Relation",
    "Reranker",
    "RunMessage",
    "RunSlice",
    "ServesMemory",
    "Source",
    "Stats",
    "SubjectId",
    "Summarizer",
    "SyncMemory",
    "SyncMemoryCalls",
    "SyncMemoryClient",
    "TraceStep",
    "Trust",
    "UnknownKind",
    "Upkeep",
    "Version",
    "Violation",
    "WriteReport",
    "alias_key",
    "entities_of",
    "register_kind",
    "stream_of",
    "subject_of",
]
