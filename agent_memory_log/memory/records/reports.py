"""The results of memory calls, as plain structs that can be encoded as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, Self

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory.records.messages import MESSAGE, RunMessage
from agent_memory_log.memory.records.record import Evidence, Record, Status, place_name

Action = Literal[
    "written", "refreshed", "changed", "unchanged", "outdated", "blocked", "forgotten", "archived"
]  # fmt: skip


class Outcome(msgspec.Struct, frozen=True):
    """The result of one candidate.

    - ``action``: ``written``: it is a record now; ``refreshed``: it was known, and has more evidence or a later end;
      ``changed``: a record was changed in place; ``unchanged``: it was known, evidence and all; ``outdated``: a newer
      value is known, or its time is over; ``blocked``: it may not be stored; ``forgotten``: it rests on a statement
      that was forgotten; ``archived``: a record that had to make room.
    - ``record``: the record as it stands then; None where there is none.
    - ``superseded``: the id of the record whose place it took, else ``""``.
    - ``reason``: why, in stable text; ``evidence``: what the candidate rests on.
    """

    action: Action
    scope: str
    kind: str
    key: str
    record: Record | None = None
    superseded: str = ""
    reason: str = ""
    evidence: tuple[Evidence, ...] = ()


class WriteReport(msgspec.Struct, frozen=True):
    """The result of a write. If the status is ``stopped``, nothing was written and ``stop_reason`` says why."""

    status: Literal["ok", "stopped"] = "ok"
    stop_reason: str = ""
    outcomes: tuple[Outcome, ...] = ()


class DeriveReport(msgspec.Struct, frozen=True):
    """The result of deriving from one run.

    ``after`` and ``position`` are the seqs between which it was read. ``stop_reason`` says why it was ``stopped``, or
    ``skipped`` without a look; ``error`` is what a failing extractor said.
    """

    agent: str
    run: str
    status: Literal["ok", "stopped", "skipped"] = "ok"
    stop_reason: str = ""
    after: int = 0
    position: int = 0
    outcomes: tuple[Outcome, ...] = ()
    error: str = ""
    model_calls: int = 0
    usage: Mapping[str, JsonValue] = msgspec.field(default_factory=dict[str, JsonValue])

    @property
    def written(self) -> tuple[Outcome, ...]:
        """The outcomes with a new record."""
        return tuple(outcome for outcome in self.outcomes if outcome.action == "written")

    @property
    def refreshed(self) -> tuple[Outcome, ...]:
        """The outcomes with a record that existed before."""
        return tuple(outcome for outcome in self.outcomes if outcome.action == "refreshed")

    @property
    def blocked(self) -> tuple[Outcome, ...]:
        """The outcomes of candidates that were refused."""
        return tuple(outcome for outcome in self.outcomes if outcome.action == "blocked")


class ForgetReport(msgspec.Struct, frozen=True):
    """What was forgotten: ``records``, ``events`` redacted in memory's streams, and in run logs (``evidence``).

    ``elsewhere``: the events of linked runs that hold the value as whole words and were not redacted;
    ``other_records``: the ids of the scope's records that hold it and are not forgotten, of any status. Both are looked
    for with ``evidence`` or ``sweep`` only.
    """

    records: int = 0
    events: int = 0
    evidence: int = 0
    elsewhere: tuple[Evidence, ...] = ()
    other_records: tuple[str, ...] = ()


class LinkReport(msgspec.Struct, frozen=True):
    """What linking did: the runs ``linked`` that were not, and those of all given that are ``without_events``.

    Runs are pairs of agent and run. One without events has none yet, or has expired, or its name is a mistake.
    """

    linked: tuple[tuple[str, str], ...] = ()
    without_events: tuple[tuple[str, str], ...] = ()


class RebuildReport(msgspec.Struct, frozen=True):
    """What folding everything again gave: active ``records`` from ``events``; ``equal``: the state that was held."""

    records: int
    events: int
    equal: bool


class CleanupReport(msgspec.Struct, frozen=True):
    """The records that a cleanup archived, and those whose end it recorded."""

    archived: tuple[Record, ...] = ()
    expired: tuple[Record, ...] = ()


class Stats(msgspec.Struct, frozen=True):
    """Counts: active records by kind, others by status, what was blocked by reason; events, runs read, parts."""

    active: Mapping[str, int]
    closed: Mapping[str, int]
    blocked: Mapping[str, int]
    events: int
    runs: int
    snapshot_parts: int


class Hit(msgspec.Struct, frozen=True):
    """A match of a search: either a ``record`` or a ``message`` of a linked run. The other field is None.

    ``matched_by`` has each part's share of the ``score``, by the parts' names in their order.
    """

    score: float
    matched_by: Mapping[str, float]
    record: Record | None = None
    message: RunMessage | None = None

    @property
    def id(self) -> str:
        """The record's id; of a message ``AGENT/RUN#seq``."""
        return self.record.id if self.record is not None else "".join(place_name(one) for one in self.evidence)

    @property
    def kind(self) -> str:
        """The record's kind, or ``message``."""
        return MESSAGE if self.record is None else self.record.kind

    @property
    def text(self) -> str:
        """The text of the record or message."""
        if self.record is not None:
            return self.record.text
        return "" if self.message is None else self.message.text

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The events that it rests on; of a message the message itself."""
        if self.record is not None:
            return self.record.evidence
        return () if self.message is None else (self.message.evidence,)


class Hits(tuple[Hit, ...]):  # noqa: SLOT001  # a tuple that has a note cannot have slots
    """The hits of a search, the best first; a tuple.

    ``note`` says what the search had to do without, as when an embedder fails; ``""``: nothing.
    """

    note: str

    def __new__(cls, hits: Iterable[Hit] = (), note: str = "") -> Self:
        """Made by a search."""
        made = super().__new__(cls, hits)
        made.note = note
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return Hits, (tuple(self), self.note)


class MemoryContext(msgspec.Struct, frozen=True):
    """Background from memory for a model.

    - ``text``: the block, ``""`` where there is nothing to say; ``tokens``: how many it has, as they were counted.
    - ``records``: the ids of the records in it; ``messages``: where the messages in it stand; both as they come in it.
    - ``note``: what the search had to do without.
    """

    text: str = ""
    tokens: int = 0
    records: tuple[str, ...] = ()
    messages: tuple[Evidence, ...] = ()
    note: str = ""


class Version(msgspec.Struct, frozen=True):
    """A value that a key has had: the ``record``, the ``seq`` it came with, and when and why it ended (``""``: not)."""

    record: Record
    seq: int
    closed_at: datetime | None = None
    reason: str = ""


class EvidenceLine(msgspec.Struct, frozen=True):
    """An event that a memory rests on, as a line to read: ``user: I prefer English``.

    ``text`` is ``""`` where the event cannot be shown; ``reason`` says why, as in ``not linked to this subject``.
    """

    evidence: Evidence
    text: str = ""
    reason: str = ""


class Explanation(msgspec.Struct, frozen=True):
    """Why a memory is believed: the record, who says so, the events it rests on, and what happened to it since."""

    record: Record
    status: Status
    source: str
    evidence: tuple[EvidenceLine, ...]
    events: tuple[str, ...]
