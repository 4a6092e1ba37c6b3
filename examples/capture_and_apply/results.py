"""What a session returns: plain structs, the same for one that captures and one that answers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory import Record

Phase = Literal["capture", "retrieve_plan", "retrieve", "apply"]
"""``capture`` is all of a capturing session; one that answers plans, retrieves, then applies what it found."""


class MemoryItem(msgspec.Struct, frozen=True):
    """A memory as a session shows it; ``ttl_left_days`` are whole days, rounded up (None: it does not expire)."""

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
        """A record as it stands at a time."""
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
    """A step that a session took, as it may be logged: counts, keys, scopes and reasons, never a value or a text."""

    step: int
    phase: Phase
    action: str
    ok: bool
    detail: dict[str, JsonValue] = msgspec.field(default_factory=dict[str, JsonValue])


class HistoryEntry(msgspec.Struct, frozen=True):
    """What a step worked on, for the caller: with values and texts. ``step`` is that of the trace."""

    step: int
    phase: Phase
    action: str
    content: JsonValue


class SessionResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended.

    - ``run_id``: the session's name, as given or a new one.
    - ``status`` and ``stop_reason``: ``ok`` and ``success``, or ``stopped`` and the stable reason; ``phase``: where it
      stopped (``""``: it did not).
    - ``outcome``: ``memory_applied``: the answer rests on the memories that it names; ``context_only``: it names none;
      ``""``: the session captured, or stopped.
    - ``answer``: the text; ``used_memory_keys``: the keys that it declared, all retrieved; ``applied_memory``: what was
      retrieved under them.
    - ``memory_state``: all that is remembered at the end.
    - ``trace``, ``history``: the steps, without and with what they worked on.
    - ``retrieved_keys``, ``invalid_used_memory_keys``, ``raw_intent``: what explains a stop: the keys that were found,
      those that were declared and not found, and the plan as the model wrote it.
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
