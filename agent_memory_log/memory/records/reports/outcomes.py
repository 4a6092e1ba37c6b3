"""The results of memory calls, as plain structs that can be encoded as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, Self

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory.records.messages import MESSAGE, RunMessage
from agent_memory_log.memory.records.plans import Plan
from agent_memory_log.memory.records.record import Evidence, Record, Status, place_name
from agent_memory_log.memory.records.reports.conflicts import Trust

Action = Literal[
    "written", "refreshed", "changed", "unchanged", "outdated", "blocked", "forgotten", "archived"
]  # fmt: skip


class Outcome(msgspec.Struct, frozen=True):
    """The result of one candidate, or of a record that was archived to make room.

    The actions are:

    - ``written``: the candidate became a new record.
    - ``refreshed``: an equal record existed and now has more evidence or a later end.
    - ``changed``: a record was changed in place.
    - ``unchanged``: an equal record existed, with the same evidence.
    - ``outdated``: the subject has a newer value, or the candidate has expired.
    - ``blocked``: the extractor, redactor, policy or execution refused the candidate.
    - ``forgotten``: the candidate cites a statement that was forgotten.
    - ``archived``: the record was archived, because the subject had too many or because ``delete`` was called.

    Attributes:
        action: The action.
        scope: The scope of the candidate.
        kind: The kind of the candidate.
        key: The key of the candidate, or ``""``.
        record: The record, or None if there is no such record. Of several outcomes of one call that met the same
            record again, only the last has it.
        superseded: The id of the record that was replaced, or ``""``.
        reason: The reason for the action, as stable text.
        evidence: The events that the candidate cites.
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
    """The result of a write. If the status is ``stopped``, nothing was written and ``stop_reason`` has the reason."""

    status: Literal["ok", "stopped"] = "ok"
    stop_reason: str = ""
    outcomes: tuple[Outcome, ...] = ()


class DeriveReport(msgspec.Struct, frozen=True):
    """The result of deriving from one run.

    Attributes:
        agent: The agent of the run.
        run: The run.
        status: ``ok``; ``stopped``, if nothing was written; or ``skipped``, if the run was not read.
        stop_reason: The reason if the status is not ``ok``.
        after: The seq after which the events were read.
        position: The seq up to which the run has now been read.
        outcomes: The result of each candidate.
        error: The messages of the errors of the extractor and of its candidates, or ``""``.
        model_calls: The number of model calls.
        usage: The usage that the model reported, such as tokens.
        waiting: The number of later events that the next call reads. They wait because the run has fewer than four
            messages, because a turn is not finished, or because the extractor was not due. 0 if the status is not
            ``ok``.
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
    waiting: int = 0

    @property
    def written(self) -> tuple[Outcome, ...]:
        """The outcomes that wrote a new record."""
        return tuple(outcome for outcome in self.outcomes if outcome.action == "written")

    @property
    def refreshed(self) -> tuple[Outcome, ...]:
        """The outcomes that refreshed an existing record."""
        return tuple(outcome for outcome in self.outcomes if outcome.action == "refreshed")

    @property
    def blocked(self) -> tuple[Outcome, ...]:
        """The outcomes of candidates that were refused."""
        return tuple(outcome for outcome in self.outcomes if outcome.action == "blocked")


class ForgetReport(msgspec.Struct, frozen=True):
    """The result of forgetting. A dry run reports the same fields and changes nothing.

    The fields from ``elsewhere`` on are filled only with ``evidence`` or ``sweep``.

    Attributes:
        records: The number of records that were forgotten.
        events: The number of events that were redacted in the memory streams.
        evidence: The number of events that were redacted in the logs of runs.
        elsewhere: The events of linked runs that hold the value as whole words and were not redacted.
        other_records: The ids of other records of the scope that hold the value, of any status.
        fallen: The ids of other active records of the scope whose evidence was all redacted. No call returns them any
            more.
    """

    records: int = 0
    events: int = 0
    evidence: int = 0
    elsewhere: tuple[Evidence, ...] = ()
    other_records: tuple[str, ...] = ()
    fallen: tuple[str, ...] = ()


class LinkReport(msgspec.Struct, frozen=True):
    """The result of linking runs. A run is a pair of agent and run.

    Attributes:
        linked: The runs that were not linked before.
        without_events: The runs of the call that have no events. The name may be wrong, or the run may have expired.
    """

    linked: tuple[tuple[str, str], ...] = ()
    without_events: tuple[tuple[str, str], ...] = ()


class RebuildReport(msgspec.Struct, frozen=True):
    """The result of a rebuild.

    Attributes:
        records: The number of active records.
        events: The number of events in the streams.
        equal: Whether the rebuilt state equals the state that the client had.
    """

    records: int
    events: int
    equal: bool


class PurgeReport(msgspec.Struct, frozen=True):
    """The result of ``purge``.

    Attributes:
        events: How many events of the memory were redacted.
    """

    events: int = 0


class Stats(msgspec.Struct, frozen=True):
    """Counts of the memory of the scopes that were read.

    Attributes:
        active: The number of active records by kind.
        closed: The number of other records by status.
        blocked: The number of blocked candidates by reason.
        events: The number of events in the streams.
        runs: The number of runs that were read.
        snapshot_parts: The number of snapshot parts in the streams.
    """

    active: Mapping[str, int]
    closed: Mapping[str, int]
    blocked: Mapping[str, int]
    events: int
    runs: int
    snapshot_parts: int


class Hit(msgspec.Struct, frozen=True):
    """A match of a search: either a ``record`` or a ``message`` of a linked run. The other field is None.

    Attributes:
        score: The score. Scores of two searches are not comparable.
        matched_by: The amount that each part of the search adds to the score, by the name of the part.
        record: The record, or None.
        message: The message, or None.
    """

    score: float
    matched_by: Mapping[str, float]
    record: Record | None = None
    message: RunMessage | None = None

    @property
    def id(self) -> str:
        """The id of the record. A message has the id ``AGENT/RUN#seq``."""
        return (
            self.record.id if self.record is not None else "".join(place_name(evidence) for evidence in self.evidence)
        )

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
        """The events that the record cites. A message cites itself."""
        if self.record is not None:
            return self.record.evidence
        return () if self.message is None else (self.message.evidence,)


class Hits(tuple[Hit, ...]):  # noqa: SLOT001  # a tuple that has a note cannot have slots
    """The hits of a search as a tuple, the best first.

    Attributes:
        note: The problem that limited the search, such as an embedder that failed. ``""``: no problem.
        plan: How the search answered the question.
        scopes_to_embed: If the call had ``vectors``: the scopes that have texts without vectors of their model. These
            texts were compared by words. ``texts_to_embed`` returns them. Empty if the caller may not store vectors.
    """

    note: str
    plan: Plan
    scopes_to_embed: tuple[str, ...]

    def __new__(
        cls, hits: Iterable[Hit] = (), note: str = "", plan: Plan | None = None, scopes_to_embed: tuple[str, ...] = ()
    ) -> Self:
        """Make the result of a search."""
        result = super().__new__(cls, hits)
        result.note = note
        result.plan = plan or Plan()
        result.scopes_to_embed = scopes_to_embed
        return result

    def __reduce__(self) -> tuple[object, ...]:
        return Hits, (tuple(self), self.note, self.plan, self.scopes_to_embed)


class MemoryContext(msgspec.Struct, frozen=True):
    """Background from memory for a model.

    Attributes:
        text: The block of text, or ``""`` if there is nothing to show.
        tokens: The number of tokens of the text.
        records: The ids of the records in the text, in the order of the text.
        messages: The events of the messages in the text, in the order of the text.
        note: The problem that limited the search or the text. ``""``: no problem. An empty text without a note means
            that nothing matches.
        counted_by: The way in which the tokens were counted: ``count_tokens``, ``tiktoken`` or ``estimate``. It is
            ``""`` if there is no text.
        scopes_to_embed: The same as in ``Hits``.
    """

    text: str = ""
    tokens: int = 0
    records: tuple[str, ...] = ()
    messages: tuple[Evidence, ...] = ()
    note: str = ""
    counted_by: str = ""
    scopes_to_embed: tuple[str, ...] = ()


def without_embedding(result: Hits | MemoryContext, note: str) -> Hits | MemoryContext:
    """Return a result whose caller embeds no more texts. The note says why, unless the result has a note."""
    note = result.note or note
    if isinstance(result, Hits):
        return Hits(result, note, result.plan)
    return msgspec.structs.replace(result, note=note, scopes_to_embed=())


class Version(msgspec.Struct, frozen=True):
    """A value that a key has had.

    Attributes:
        record: The record that holds the value.
        seq: The seq of the event that made the record.
        closed_at: The time at which the record was closed. None: it is active.
        reason: The reason why it was closed, or ``""``.
    """

    record: Record
    seq: int
    closed_at: datetime | None = None
    reason: str = ""


class EvidenceLine(msgspec.Struct, frozen=True):
    """An event that a memory cites, as a line of text such as ``user: I prefer English``.

    Attributes:
        evidence: The event.
        text: The line, or ``""`` if the event cannot be shown.
        reason: The reason why the event cannot be shown, such as ``not linked to this subject``.
    """

    evidence: Evidence
    text: str = ""
    reason: str = ""


class Explanation(msgspec.Struct, frozen=True):
    """The origin and the history of a record.

    Attributes:
        record: The record.
        status: The status of the record.
        source: The source, in words.
        evidence: The events that the record cites.
        events: The events about the record, one line each.
        trust: The trust in the record, with the numbers that it is computed from. None: the record is not active.
    """

    record: Record
    status: Status
    source: str
    evidence: tuple[EvidenceLine, ...]
    events: tuple[str, ...]
    trust: Trust | None = None
