"""The results of the calls about conflicts and trust, as plain structs that can be encoded as JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from agent_memory_log.memory.records.record import Record

CONTRADICTS = "contradicts"
"""The type of the link from a record to an older active record that it contradicts."""

RECONCILED = "reconciled"
"""The type of the link that replaces ``contradicts`` when a caller keeps both records."""

ConflictKind = Literal["contradiction", "changed"]


class Conflict(msgspec.Struct, frozen=True, gc=False):
    """Two active records of one subject that cannot both be true now.

    Attributes:
        record: The id of the newer record.
        other: The id of the older record.
        kind: ``changed`` if the newer record gives a new value, ``contradiction`` if it denies the older one.
        reason: The rule that found it: ``denied``, ``opposite``, ``ended``, ``number``, ``attribute`` or ``replaced``.
    """

    record: str
    other: str
    kind: ConflictKind
    reason: str


class ConflictsSlice(msgspec.Struct, frozen=True):
    """The conflicts of some records of a subject.

    Attributes:
        conflicts: The conflicts, in the order of the newer records.
        position: The position to pass as ``after`` for the next slice.
        more: Whether records follow.
    """

    conflicts: tuple[Conflict, ...]
    position: int
    more: bool


class ConflictPair(msgspec.Struct, frozen=True):
    """A conflict with both records, whose fields have the evidence.

    Attributes:
        newer: The newer record.
        older: The older record.
        kind: ``changed`` or ``contradiction``.
        reason: The rule that found it, or ``linked`` if only the stored link says so.
        trust: The trust in the newer and in the older record. A closed record has no trust: 0.
        status: ``open`` or ``resolved``.
        resolution: The record that ``resolve`` kept: ``newer``, ``older``, ``both`` or ``merged``. ``""``: the conflict
            is open.
        merged: The record that contains both, after ``merged``, or None.
    """

    newer: Record
    older: Record
    kind: ConflictKind
    reason: str
    trust: tuple[float, float] = (0.0, 0.0)
    status: Literal["open", "resolved"] = "open"
    resolution: Literal["", "newer", "older", "both", "merged"] = ""
    merged: Record | None = None


class Trust(msgspec.Struct, frozen=True):
    """The trust in a record, from 0 to 1, and the numbers that it is computed from.

    Attributes:
        value: The trust: ``corroborated`` times ``doubt`` times ``freshness``.
        source: The reliability of the record's source, learnt from all its records: ``(a + 2r) / (a + b + 2)``, the
            mean of a Beta distribution. ``r`` is ``Source.reliability``, ``a`` is ``confirmed`` and ``b`` is
            ``contradicted``.
        confirmed: How many records of the source another source states too.
        contradicted: How many open conflicts the records of the source have with those of other sources.
        sources: The number of independent sources that state the record.
        corroborated: The reliability of these sources together: 1 - (1 - r1)(1 - r2)...
        conflicts: The number of open conflicts of the record.
        doubt: The share of the record against the records that contradict it. 1: there is no open conflict.
        age_days: The days since the record was last stated.
        freshness: The factor for the age. It halves every 1,000 days.
    """

    value: float
    source: float
    confirmed: int
    contradicted: int
    sources: int
    corroborated: float
    conflicts: int
    doubt: float
    age_days: float
    freshness: float
