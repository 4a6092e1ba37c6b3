"""The events of a memory stream.

Each event holds a decision that the writer has already made, so folding needs no rules. A change of the rules changes
no old memory. ``MemoryClosed`` has no value, so that the erasure of a newer value does not restore an older one.

Only ``MemoryRemembered``, ``MemoryChanged`` and ``MemorySnapshot`` hold the content of memories. ``MemoryBlocked`` may
hold a key. An erasure redacts all four. Except for vectors, the other events hold only ids, positions and reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Self, cast

import msgspec

from agent_memory_log.events.fields import Int64, JsonText
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import EventData
from agent_memory_log.events.registry import register_own_payload
from agent_memory_log.memory.records.record import Envelope, Evidence, Source


@register_own_payload
class MemoryRemembered(EventData, Envelope, frozen=True, gc=False):
    """A new record. Its id is the id of the event, and its fields are those of ``Record``."""

    event_type = "memory_remembered"

    kind: str
    data: Mapping[str, JsonValue]
    key: str = ""


@register_own_payload
class MemoryRefreshed(EventData, frozen=True):
    """New evidence for a record, with the record's new confidence and end.

    Attributes:
        record: The id of the record.
        confidence: The new confidence.
        evidence: The additional evidence.
        valid_until: The new end.
        stated: Whether a caller stated it again directly, without evidence. The record then rests on itself.
    """

    event_type = "memory_refreshed"

    record: str
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    valid_until: datetime | None = None
    stated: bool = False


@register_own_payload
class MemoryChanged(EventData, Envelope, frozen=True, gc=False):
    """A change of a record in place. The fields named in ``changed`` have new values. The data stays the same."""

    event_type = "memory_changed"

    record: str
    changed: tuple[str, ...]

    @classmethod
    def from_map(cls, data: Mapping[str, object]) -> Self:
        """Read a stored event. Old events have the fields in a map ``changes``."""
        changes = data.get("changes")
        if "changed" not in data and isinstance(changes, Mapping):
            fields = cast("Mapping[str, object]", changes)
            data = {"record": data.get("record"), "changed": list(fields), **fields}
        return super().from_map(data)


@register_own_payload
class MemoryClosed(EventData, frozen=True):
    """The end of records.

    Attributes:
        records: The ids of the records.
        status: Their new status.
        by: The id of the record that replaced them, or ``""``.
        reason: The reason.
    """

    event_type = "memory_closed"

    records: tuple[str, ...]
    status: str
    by: str = ""
    reason: str = ""


@register_own_payload
class MemoryBlocked(EventData, frozen=True):
    """A candidate that was blocked, without its value, or a call that was stopped.

    Attributes:
        reason: The reason, as stable text.
        key: The key, or ``""``.
        kind: The kind, or ``""``.
        scope: The scope, or ``""``.
        stopped: Whether the whole call was stopped, so that it wrote no candidate.
        phase: The phase of the call, as the caller named it.
        source: The source of the candidate.
        evidence: The events that the candidate cites.
    """

    event_type = "memory_blocked"

    reason: str
    key: str = ""
    kind: str = ""
    scope: str = ""
    stopped: bool = False
    phase: str = ""
    source: Source = Source()
    evidence: tuple[Evidence, ...] = ()


@register_own_payload
class MemoryDerived(EventData, frozen=True):
    """The position up to which a run was read.

    Attributes:
        agent: The agent of the run.
        run: The run.
        seq: The last seq that was read. 0: no event was read.
        extractor: The name of the extractor, or ``""``.
        linked: Whether a search of this subject finds the messages of the run. It is False if the run was read for
            the principal's home scope and wrote a candidate into this shared scope. Other readers of this scope may not
            be allowed to read the run.
    """

    event_type = "memory_derived"

    agent: str
    run: str
    seq: Int64
    extractor: str = ""
    linked: bool = True


class Until(msgspec.Struct, frozen=True, gc=False):
    """The events of a run up to ``seq``."""

    agent: str
    run: str
    seq: int


class RunEvents(msgspec.Struct, frozen=True):
    """Events of a run, identified by their seqs."""

    agent: str
    run: str
    seqs: tuple[Int64, ...]


@register_own_payload
class MemoryTombstone(EventData, frozen=True):
    """A note that memories were forgotten. It holds only positions.

    Attributes:
        erased: The seqs of the events in this stream that must be redacted.
        sources: The statements that must not be learnt from again.
        until: The runs, each up to a seq, that must not be learnt from again.
        in_runs: The events of other runs that must be redacted. The next writer to the stream redacts them if the
            erasure was interrupted.
    """

    event_type = "memory_tombstone"

    erased: tuple[Int64, ...] = ()
    sources: tuple[Evidence, ...] = ()
    until: tuple[Until, ...] = ()
    in_runs: tuple[RunEvents, ...] = ()


@register_own_payload
class MemoryErasedInRuns(EventData, frozen=True):
    """A note that all ``in_runs`` events of tombstones up to ``seq`` are redacted."""

    event_type = "memory_erased_in_runs"

    seq: Int64


@register_own_payload
class MemoryUsed(EventData, frozen=True):
    """The records that were put into contexts since the last event of this type, at most one event a minute.

    Attributes:
        records: The ids of the records.
    """

    event_type = "memory_used"

    records: tuple[str, ...]


@register_own_payload
class MemoryMaintained(EventData, frozen=True):
    """The position of a round of ``maintain``, so that no later call repeats the work before it.

    Attributes:
        started: The time at which the round began.
        step: The step that the round has reached, or ``done``.
        after: The seq of the last record that this step has handled. 0: no record yet.
        since: The time at which the round before it began. None: this is the first round.
    """

    event_type = "memory_maintained"

    started: datetime
    step: str
    after: Int64 = 0
    since: datetime | None = None


@register_own_payload
class MemorySnapshot(EventData, frozen=True):
    """One part of a snapshot of the stream's state.

    Attributes:
        at: The version of the state.
        parts: The number of parts.
        part: The number of this part, from 0.
        state_json: The JSON text of the part.
    """

    event_type = "memory_snapshot"
    __verbatim__ = "state_json"

    at: Int64
    parts: Int64
    part: Int64 = 0
    state_json: JsonText = ""


@register_own_payload
class MemoryVectors(EventData, frozen=True):
    """The vectors of one text, so that each text is embedded only once. They are stored in the run ``vectors``.

    The event identifies the text by its position. It has no digest, because a short text could be guessed from it.

    Attributes:
        model: The model that made the vectors. Vectors of two models are never compared.
        dimension: The number of components of each vector.
        vectors: Rows of ``dimension`` signed bytes: the pooled vector, then one vector for each token. The largest
            component of a row is 127.
        seq: The seq of the message, or of the event that last changed the record's words.
        record: The id of the record, or ``""`` for a message.
        agent: The agent of the message's run, or ``""`` for a record.
        run: The message's run, or ``""`` for a record.
    """

    event_type = "memory_vectors"

    model: str
    dimension: Int64
    vectors: bytes
    seq: Int64
    record: str = ""
    agent: str = ""
    run: str = ""
