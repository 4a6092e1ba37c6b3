"""The results of the calls that keep a memory in order, as plain structs that can be encoded as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from agent_memory_log.memory.records.record import Record

Layer = Literal["working", "short_term", "long_term"]
"""The layers of memory. See ``governance.ageing.layer_of``."""


class Upkeep(msgspec.Struct, frozen=True):
    """A change that ``maintain`` made to a record, or would make.

    Attributes:
        record: The id of the record.
        scope: The scope.
        kind: The kind.
        key: The key, or ``""``.
        why: The reason, in words.
        parts: The ids of the other records: those that were consolidated, or the other side of a conflict.
    """

    record: str
    scope: str
    kind: str
    key: str
    why: str
    parts: tuple[str, ...] = ()


class MaintainReport(msgspec.Struct, frozen=True):
    """The result of ``maintain``, also of a dry run.

    Attributes:
        promoted: The records that came into the layer ``long_term`` since the last round.
        demoted: The records that changed to another layer since the last round.
        decayed: The weak records that were archived.
        expired: The expired records that were closed.
        conflicts_found: The new conflicts.
        conflicts_resolved: The conflicts that ended since the last round, by ``resolve`` or because a record ended.
        consolidated: The new records that each replace several records.
        returned: The archived records that are active again, because a consolidated record lost another part.
        purged: The number of events that were redacted, because their memories had lost their evidence.
        checked: The number of records that the call looked at. Each step looks at them once.
        remaining: About how many records the round still has to look at. 0: the round is complete.
    """

    promoted: tuple[Upkeep, ...] = ()
    demoted: tuple[Upkeep, ...] = ()
    decayed: tuple[Upkeep, ...] = ()
    expired: tuple[Upkeep, ...] = ()
    conflicts_found: tuple[Upkeep, ...] = ()
    conflicts_resolved: tuple[Upkeep, ...] = ()
    consolidated: tuple[Upkeep, ...] = ()
    returned: tuple[Upkeep, ...] = ()
    purged: int = 0
    checked: int = 0
    remaining: int = 0


class Health(msgspec.Struct, frozen=True):
    """The state of the memory of all scopes that may be read.

    Attributes:
        active: The number of active records by kind.
        closed: The number of other records by status.
        layers: The number of active records by layer.
        weak: The number of active records with a retrievability below 0.1.
        blocked: The number of blocked candidates by reason.
        conflicts_open: The number of open conflicts.
        runs: The number of linked runs.
        runs_behind: The number of linked runs with events that ``derive`` has not read.
        events_behind: The number of these events.
        events: The number of events in the streams.
        maintained_at: The time at which the last round of ``maintain`` began. None: there was no round.
        maintenance_open: Whether the last round is not complete.
        indexed: The share of the streams' events that the search indexes have read, from 0 to 1. None: no index.
        with_vectors: The share of the active records with stored vectors, from 0 to 1. None: no vectors are stored.
    """

    active: Mapping[str, int]
    closed: Mapping[str, int]
    layers: Mapping[str, int]
    weak: int
    blocked: Mapping[str, int]
    conflicts_open: int
    runs: int
    runs_behind: int
    events_behind: int
    events: int
    maintained_at: datetime | None = None
    maintenance_open: bool = False
    indexed: float | None = None
    with_vectors: float | None = None


class AuditEvent(msgspec.Struct, frozen=True):
    """A change of the memory.

    Attributes:
        time: The time of the change.
        scope: The scope.
        seq: The seq of its event in the memory's stream.
        action: ``remembered``, ``restated``, ``changed``, ``closed``, ``blocked``, ``stopped``, ``derived``, ``used``,
            ``maintained`` or ``forgot``.
        records: The ids of the records, without those that were forgotten.
        kind: The kind of the record or candidate, or ``""``.
        key: Its key, or ``""``.
        by: The source of the change, in words, such as ``user``, ``run support/42`` or ``maintain``.
        reason: The reason or the details, as stable text, or ``""``.
    """

    time: datetime
    scope: str
    seq: int
    action: str
    records: tuple[str, ...] = ()
    kind: str = ""
    key: str = ""
    by: str = ""
    reason: str = ""


class EvolutionEvent(msgspec.Struct, frozen=True):
    """A step in the story of a record.

    Attributes:
        time: The time of the step.
        record: The id of the record that the step is about: the record itself, or one that it was made from.
        text: The step, as a sentence.
    """

    time: datetime
    record: str
    text: str


class Evolution(msgspec.Struct, frozen=True):
    """The story of a record.

    Attributes:
        record: The record.
        layer: ``working``, ``short_term`` or ``long_term``.
        retrievability: How well the record is remembered now, from 0 to 1.
        stability_days: The days without use after which the retrievability is 0.9.
        used_on_days: The number of days on which the record was put into a context, at most 16.
        sources: The ids of the records that it was made from, directly or not.
        events: The steps, the oldest first.
    """

    record: Record
    layer: Layer
    retrievability: float
    stability_days: float
    used_on_days: int
    sources: tuple[str, ...] = ()
    events: tuple[EvolutionEvent, ...] = ()
