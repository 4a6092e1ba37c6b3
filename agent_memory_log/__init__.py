"""The durable, typed, replayable log of what an AI agent did.

Start with ``open_store`` and ``new_event``; ``Reader`` answers questions about what ``load_run`` returns. The rest of
the library: ``agent_memory_log.transcript`` (provider messages to events and back), ``agent_memory_log.jsonl`` (export
and import), ``agent_memory_log.conformance`` (the test suite for backends), ``agent_memory_log.backend`` (for their
authors), ``agent_memory_log.errors`` (everything that is raised).
"""

from agent_memory_log.errors import (
    AgentMemoryLogError,
    BackendNotFound,
    CursorOutOfRange,
    DecodeError,
    EventConflict,
    EventTooLarge,
    InvalidArgument,
    InvalidEvent,
    RunDeleted,
    RunExpired,
    SchemaTooNew,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
    VersionConflict,
)
from agent_memory_log.events import Event, decode_event, new_event
from agent_memory_log.jsonvalue import JsonValue
from agent_memory_log.opening import open_store, open_sync_store
from agent_memory_log.payloads import (
    Annotation,
    AssistantMessage,
    Bounds,
    EventData,
    EventType,
    PlannerNote,
    Redacted,
    Redaction,
    RetryHint,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    ToolTelemetry,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.reader import Reader, Turn
from agent_memory_log.registry import register_payload
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import (
    AppendResult,
    CompactResult,
    Compacts,
    CompactsSync,
    ExpireResult,
    Expires,
    ExpiresSync,
    RunInfo,
    RunPage,
    Store,
    SyncStore,
)

__all__ = [
    "AgentMemoryLogError",
    "Annotation",
    "AppendResult",
    "AssistantMessage",
    "BackendNotFound",
    "Bounds",
    "CompactResult",
    "Compacts",
    "CompactsSync",
    "CursorOutOfRange",
    "DecodeError",
    "Event",
    "EventConflict",
    "EventData",
    "EventTooLarge",
    "EventType",
    "ExpireResult",
    "Expires",
    "ExpiresSync",
    "InvalidArgument",
    "InvalidEvent",
    "JsonValue",
    "PlannerNote",
    "Reader",
    "Redacted",
    "Redaction",
    "RetryHint",
    "RunDeleted",
    "RunExpired",
    "RunInfo",
    "RunPage",
    "SchemaTooNew",
    "Snapshot",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreUnavailable",
    "SyncStore",
    "SystemMessage",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "ToolTelemetry",
    "Turn",
    "UnknownPayload",
    "UserMessage",
    "VersionConflict",
    "decode_event",
    "new_event",
    "open_store",
    "open_sync_store",
    "register_payload",
]
