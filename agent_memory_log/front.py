"""The public names of ``agent_memory_log``. The package imports this module when one of them is first used."""

from agent_memory_log.errors import (
    AgentMemoryLogError,
    VersionConflict,
)
from agent_memory_log.events.context_payloads import (
    Checkpoint,
    Compaction,
    InjectedContext,
)
from agent_memory_log.events.event import (
    Event,
    decode_event,
    new_event,
)
from agent_memory_log.events.jsonvalue import (
    JsonValue,
)
from agent_memory_log.events.payloads import (
    Annotation,
    AssistantMessage,
    EventData,
    EventType,
    ModelRequest,
    PlannerNote,
    Redacted,
    RetryHint,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.events.registry import (
    register_payload,
)
from agent_memory_log.opening import (
    open_store,
    open_sync_store,
)
from agent_memory_log.reader import (
    Reader,
    Turn,
)
from agent_memory_log.snapshot import (
    Snapshot,
)
from agent_memory_log.store import (
    AppendResult,
    RunInfo,
    Store,
    SyncStore,
)

__all__ = [
    "AgentMemoryLogError",
    "Annotation",
    "AppendResult",
    "AssistantMessage",
    "Checkpoint",
    "Compaction",
    "Event",
    "EventData",
    "EventType",
    "InjectedContext",
    "JsonValue",
    "ModelRequest",
    "PlannerNote",
    "Reader",
    "Redacted",
    "RetryHint",
    "RunInfo",
    "Snapshot",
    "Store",
    "SyncStore",
    "SystemMessage",
    "Thinking",
    "ToolCall",
    "ToolResult",
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
