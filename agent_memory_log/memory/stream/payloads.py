"""The events of a memory stream.

Each says what was decided when it was written, so that folding them decides nothing. What a memory says stands in
``MemoryRemembered`` and ``MemoryChanged`` alone (and in snapshots): those are what an erasure redacts; the others hold
ids, positions, reasons.

A change of rules therefore changes no old memory. ``MemoryClosed`` has no value, so that the erasure of a newer value
does not restore an older one.
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
    """A record comes to be; its id is the event's. The fields are those of ``Record``."""

    event_type = "memory_remembered"

    kind: str
    data: Mapping[str, JsonValue]
    key: str = ""


@register_own_payload
class MemoryRefreshed(EventData, frozen=True):
    """The same was said again: the ``evidence`` that is new, and what confidence and end are now."""

    event_type = "memory_refreshed"

    record: str
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    valid_until: datetime | None = None


@register_own_payload
class MemoryChanged(EventData, Envelope, frozen=True, gc=False):
    """A record was changed in place: the fields in ``changed`` are as they are here. Its value stays."""

    event_type = "memory_changed"

    record: str
    changed: tuple[str, ...]

    @classmethod
    def from_map(cls, data: Mapping[str, object]) -> Self:
        """Read what was stored; the fields once stood in a map of their own, ``changes``."""
        changes = data.get("changes")
        if "changed" not in data and isinstance(changes, Mapping):
            fields = cast("Mapping[str, object]", changes)
            data = {"record": data.get("record"), "changed": list(fields), **fields}
        return super().from_map(data)


@register_own_payload
class MemoryClosed(EventData, frozen=True):
    """Records are active no longer: ``status`` says what they are, ``by`` which record took the place."""

    event_type = "memory_closed"

    records: tuple[str, ...]
    status: str
    by: str = ""
    reason: str = ""


@register_own_payload
class MemoryBlocked(EventData, frozen=True):
    """Something was not stored, and why; never the value. ``stopped``: nor was anything else of that call."""

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
    """A run was read up to ``seq`` (0: not yet), by the ``extractor`` of that name.

    ``linked``: its messages can be found here. They cannot where a run was only read for another subject, its reader's
    home, and something in it was written here as well: who reaches this subject may not reach that run.
    """

    event_type = "memory_derived"

    agent: str
    run: str
    seq: Int64
    extractor: str = ""
    linked: bool = True


class Until(msgspec.Struct, frozen=True, gc=False):
    """All of a run up to ``seq``."""

    agent: str
    run: str
    seq: int


class RunEvents(msgspec.Struct, frozen=True):
    """Events of a run, by seq."""

    agent: str
    run: str
    seqs: tuple[Int64, ...]


@register_own_payload
class MemoryTombstone(EventData, frozen=True):
    """Something was forgotten. Positions only.

    - ``erased``: the seqs of this stream that held it.
    - ``sources``: the statements it came from, which are not to be learnt from again.
    - ``until``: runs of which nothing up to a seq is to be learnt again.
    - ``in_runs``: events of other runs that hold it too, which whoever writes next redacts there.
    """

    event_type = "memory_tombstone"

    erased: tuple[Int64, ...] = ()
    sources: tuple[Evidence, ...] = ()
    until: tuple[Until, ...] = ()
    in_runs: tuple[RunEvents, ...] = ()


@register_own_payload
class MemoryErasedInRuns(EventData, frozen=True):
    """What tombstones up to ``seq`` name ``in_runs`` is redacted there."""

    event_type = "memory_erased_in_runs"

    seq: Int64


@register_own_payload
class MemorySnapshot(EventData, frozen=True):
    """A part of the stream's state as of version ``at``: the ``part``-th of ``parts``, from 0."""

    event_type = "memory_snapshot"
    __verbatim__ = "state_json"

    at: Int64
    parts: Int64
    part: Int64 = 0
    state_json: JsonText = ""


@register_own_payload
class MemoryVectors(EventData, frozen=True):
    """The vectors of one text, in the run ``vectors`` beside the stream, so that its embedder is asked only once.

    - ``record``: whose words they are, as of the event ``seq`` of the stream; or, where there is an ``agent``, the
      message ``seq`` of ``agent``/``run``. No digest of the text is here, from which a short one could be guessed.
    - ``model``, ``dimension``: what made them; vectors of two models are never compared.
    - ``vectors``: rows of ``dimension`` signed bytes each, longest component 127: the pooled vector, then one a token.
    """

    event_type = "memory_vectors"

    model: str
    dimension: Int64
    vectors: bytes
    seq: Int64
    record: str = ""
    agent: str = ""
    run: str = ""
