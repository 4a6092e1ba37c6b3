"""Merging: what a merger says of two values, asked outside of any lock and once for each two, and what is made of it.

The answer is a proposal as any other: it passes redaction, policy and execution. Where there is none, the new value is
kept and marked ``uncertain``.

The merged value is stored in the event, so that a rebuild does not ask the merger again.
"""

from __future__ import annotations

import msgspec

from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.learning.judging import Judged, judge
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Fact, Preference, RecordData, fold_key
from agent_memory_log.memory.records.protocols import Merger, Origin, Violation
from agent_memory_log.memory.records.record import Record
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.steps import Steps, work

MERGES = "merges"
"""The type of the link from a merged record to the one whose value is a part of its own."""

MERGED = "merged"
UNDECIDABLE = "merge_undecidable"
FAILED = "merge_failed"
"""What follows a colon says why: an error's code or class, or what refused the merged value."""

UNCERTAIN = "uncertain"
"""The tag of a value that was kept because no merger could say what holds."""


class Merged(msgspec.Struct, frozen=True):
    """What to remember. ``reason``: ``merged``, why it is uncertain, or ``""`` where the new value alone holds."""

    candidate: Candidate
    reason: str


def can_merge(known: RecordData, new: RecordData) -> bool:
    """Whether both have values of which one could be made."""
    return type(new) in {Preference, Fact} and type(known) is type(new)


def of_both(known: Record, merged: Candidate) -> Candidate:
    """The merged value, resting on what both rest on: no surer than either, and found by the words of both."""
    tags = (one for one in (*merged.tags, *known.tags) if one != UNCERTAIN)
    return msgspec.structs.replace(
        merged,
        confidence=min(merged.confidence, known.confidence),
        importance=max(merged.importance, known.importance),
        evidence=tuple(dict.fromkeys((*merged.evidence, *known.evidence))),
        entities=tuple(dict.fromkeys((*merged.entities, *known.entities))),
        tags=tuple(dict.fromkeys(tags)),
    )


class _Answer(msgspec.Struct, frozen=True):
    """A merger's word: the value, or why there is none."""

    value: str = ""
    reason: str = ""


_Words = tuple[RecordData, str, RecordData, str]


class Merging:
    """The merger's answers within one call, so that a writer who was not the fastest asks nothing again."""

    def __init__(self, context: Context, merger: Merger, origin: Origin) -> None:
        """Nothing was asked yet."""
        self._context = context
        self._merger = merger
        self._origin: Origin = origin
        self._answers: dict[_Words, _Answer] = {}
        self._made: dict[tuple[_Words, Candidate], Merged] = {}

    def of(self, known: Record, candidate: Candidate) -> Merged | None:
        """What to remember; None: ``ask`` first."""
        return self._made.get((_words(known, candidate), candidate))

    def ask(self, known: Record, candidate: Candidate) -> Steps[None]:
        """Ask the merger, unless it was asked about these words. Raises nothing that the merger raises."""
        words = _words(known, candidate)
        if words not in self._answers:
            try:
                value = yield from work(lambda: self._merger.merge(known, candidate))
                self._answers[words] = _read(value)
            except Exception as error:  # noqa: BLE001  # a merger may be anybody's, and must not lose the new value
                self._answers[words] = _Answer(reason=_failed(error))
        self._made[words, candidate] = self._make(self._answers[words], candidate)

    def _make(self, answer: _Answer, candidate: Candidate) -> Merged:
        if answer.reason:
            return _uncertain(candidate, answer.reason)
        value = msgspec.structs.replace(candidate.data, value=answer.value)
        if value.same_as(candidate.data):
            return Merged(candidate, "")
        proposed = msgspec.structs.replace(candidate, data=value, text="")
        try:
            judged = judge(self._context, [proposed], self._origin)
        except InvalidArgument as error:
            return _uncertain(candidate, _failed(error))
        merged = Judged(proposed, judged.reason) if isinstance(judged, Violation) else judged[0]
        refused = merged.reason
        if not refused and _address(merged.candidate) != _address(candidate):
            refused = "redacted"
        return _uncertain(candidate, f"{FAILED}:{refused}") if refused else Merged(merged.candidate, MERGED)


def _words(known: Record, candidate: Candidate) -> _Words:
    return (known.data, known.text, candidate.data, candidate.words)


def _address(candidate: Candidate) -> tuple[str, str, str]:
    return (candidate.scope, candidate.data.kind, fold_key(candidate.key))


def _read(value: object) -> _Answer:
    if value is None:
        return _Answer(reason=UNDECIDABLE)
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgument(f"a merger must return a value in words, or None, found {describe(value)}")
    return _Answer(value.strip())


def _failed(error: Exception) -> str:
    return f"{FAILED}:{error.code if isinstance(error, AgentMemoryLogError) else type(error).__name__}"


def _uncertain(candidate: Candidate, reason: str) -> Merged:
    tags = tuple(dict.fromkeys((*candidate.tags, UNCERTAIN)))
    return Merged(msgspec.structs.replace(candidate, tags=tags), reason)
