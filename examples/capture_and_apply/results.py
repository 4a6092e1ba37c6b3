"""The structs of a session's result. Capturing and answering sessions return the same ones."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory import Record

Phase = Literal["capture", "retrieve_plan", "retrieve", "apply"]
"""The phases of a session. A capturing session has only ``capture``. An answering session has the other three."""


class MemoryItem(msgspec.Struct, frozen=True):
    """A memory in a result. ``ttl_left_days`` is in whole days, rounded up, and None for a memory without an end."""

    id: str
    kind: str
    scope: str
    key: str
    value: str
    text: str
    confidence: float
    ttl_left_days: int | None

    @classmethod
    def of(cls, record: Record, now: datetime) -> MemoryItem:
        """Return the item for a record at the time ``now``."""
        return cls(
            record.id,
            record.kind,
            record.scope,
            record.key,
            record.value,
            record.text,
            record.confidence,
            record.ttl_left_days(now),
        )


class TraceStep(msgspec.Struct, frozen=True):
    """A step of a session, safe to log. It has counts, keys, scopes and reasons, but no values or texts."""

    step: int
    phase: Phase
    action: str
    ok: bool
    detail: dict[str, JsonValue] = msgspec.field(default_factory=dict[str, JsonValue])


class HistoryEntry(msgspec.Struct, frozen=True):
    """The content of a step, with values and texts. ``step`` is the number of the step in the trace."""

    step: int
    phase: Phase
    action: str
    content: JsonValue


class SessionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a session.

    Attributes:
        run_id: The id of the session, from the caller or a new one.
        status: ``ok``, or ``stopped`` if policy, the model or the time budget ended the session.
        stop_reason: ``success``, or the stable reason of the stop.
        phase: The phase in which the session stopped, or ``""``.
        outcome: ``memory_applied`` if the answer cites memories, and ``context_only`` if it cites no memory. ``""`` for
            a session that captured or stopped.
        answer: The text of the answer.
        used_memory_keys: The keys that the answer cites. All of them were retrieved.
        applied_memory: The retrieved memories with these keys.
        memory_state: All active memories at the end.
        trace: The steps without values and texts.
        history: The steps with values and texts.
        retrieved_keys: The keys of the retrieved memories.
        invalid_used_memory_keys: The keys that the answer cites although they were not retrieved.
        raw_intent: The plan as the model wrote it.
    """

    run_id: str
    status: Literal["ok", "stopped"]
    stop_reason: str
    phase: Literal["", "capture", "retrieve_plan", "retrieve", "apply"] = ""
    outcome: Literal["", "memory_applied", "context_only"] = ""
    answer: str = ""
    used_memory_keys: tuple[str, ...] = ()
    applied_memory: tuple[MemoryItem, ...] = ()
    memory_state: tuple[MemoryItem, ...] = ()
    trace: tuple[TraceStep, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    retrieved_keys: tuple[str, ...] = ()
    invalid_used_memory_keys: tuple[str, ...] = ()
    raw_intent: str = ""
