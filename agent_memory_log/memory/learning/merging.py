"""Merges two values of a key with the client's merger, which is called outside any lock and once for each pair.

The merged value passes redaction, policy and execution, as every candidate does. If there is no merged value, the new
value is stored with the tag ``uncertain``.

The merged value is stored in the event, so that a rebuild does not ask the merger again.
"""

from __future__ import annotations

import msgspec

from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.learning.judging import judge_one
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Fact, Preference, RecordData, fold_key
from agent_memory_log.memory.records.protocols import Merger, Origin
from agent_memory_log.memory.records.record import MERGES, Link, Record
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.steps import Steps, work

MERGED = "merged"
UNDECIDABLE = "merge_undecidable"
FAILED = "merge_failed"
"""The reason of a failed merge. The cause follows after a colon: an error's code or class, or a refusal."""

UNCERTAIN = "uncertain"
"""The tag of a new value that was stored although the merger returned no usable value."""


class Merged(msgspec.Struct, frozen=True):
    """The result of a merge.

    Attributes:
        candidate: The candidate to remember.
        reason: ``merged``, the reason for the tag ``uncertain``, or ``""`` if the merger chose the new value.
    """

    candidate: Candidate
    reason: str


def can_merge(stored: RecordData, new: RecordData) -> bool:
    """Return whether a merger may merge both: two preferences or two facts."""
    return type(new) in {Preference, Fact} and type(stored) is type(new)


def combined(stored: Record, merged: Candidate) -> Candidate:
    """Return the merged candidate with the evidence, entities and tags of both, and a link to the stored record.

    It has the lower confidence and the higher importance of the two.
    """
    tags = (tag for tag in (*merged.tags, *stored.tags) if tag != UNCERTAIN)
    return msgspec.structs.replace(
        merged,
        confidence=min(merged.confidence, stored.confidence),
        importance=max(merged.importance, stored.importance),
        evidence=tuple(dict.fromkeys((*merged.evidence, *stored.evidence))),
        entities=tuple(dict.fromkeys((*merged.entities, *stored.entities))),
        tags=tuple(dict.fromkeys(tags)),
        links=(*merged.links, Link(MERGES, stored.id)),
    )


class _Answer(msgspec.Struct, frozen=True):
    """A merger's answer: the value, or the reason why there is no value."""

    value: str = ""
    reason: str = ""


_Words = tuple[RecordData, str, RecordData, str]


class Merging:
    """The merger's answers within one call. A write that is retried after a conflict reuses them."""

    def __init__(self, context: Context, merger: Merger, origin: Origin) -> None:
        """Start without answers."""
        self._context = context
        self._merger = merger
        self._origin: Origin = origin
        self._answers: dict[_Words, _Answer] = {}
        self._results: dict[tuple[_Words, Candidate], Merged] = {}

    def of(self, stored: Record, candidate: Candidate) -> Merged | None:
        """Return the result for a pair. Returns None if ``ask`` has to run first."""
        return self._results.get((_words(stored, candidate), candidate))

    def ask(self, stored: Record, candidate: Candidate) -> Steps[None]:
        """Ask the merger, unless it was asked about these words before. An error becomes the reason of the answer."""
        words = _words(stored, candidate)
        if words not in self._answers:
            try:
                value = yield from work(lambda: self._merger.merge(stored, candidate))
                self._answers[words] = _read(value)
            except Exception as error:  # noqa: BLE001  # a merger is user code; its errors must not lose the new value
                self._answers[words] = _Answer(reason=_failed(error))
        self._results[words, candidate] = self._result(self._answers[words], candidate)

    def _result(self, answer: _Answer, candidate: Candidate) -> Merged:
        if answer.reason:
            return _uncertain(candidate, answer.reason)
        value = msgspec.structs.replace(candidate.data, value=answer.value)
        if value.same_as(candidate.data):
            return Merged(candidate, "")
        proposed = msgspec.structs.replace(candidate, data=value, text="")
        try:
            merged = judge_one(self._context, proposed, self._origin)
        except InvalidArgument as error:
            return _uncertain(candidate, _failed(error))
        refusal = merged.reason
        if not refusal and _address(merged.candidate) != _address(candidate):
            refusal = "redacted"
        return _uncertain(candidate, f"{FAILED}:{refusal}") if refusal else Merged(merged.candidate, MERGED)


def _words(stored: Record, candidate: Candidate) -> _Words:
    return (stored.data, stored.text, candidate.data, candidate.words)


def _address(candidate: Candidate) -> tuple[str, str, str]:
    return (candidate.scope, candidate.data.kind, fold_key(candidate.key))


def _read(value: object) -> _Answer:
    if value is None:
        return _Answer(reason=UNDECIDABLE)
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgument(f"expected a non-empty string or None from the merger, got {describe(value)}")
    return _Answer(value.strip())


def _failed(error: Exception) -> str:
    return f"{FAILED}:{error.code if isinstance(error, AgentMemoryLogError) else type(error).__name__}"


def _uncertain(candidate: Candidate, reason: str) -> Merged:
    tags = tuple(dict.fromkeys((*candidate.tags, UNCERTAIN)))
    return Merged(msgspec.structs.replace(candidate, tags=tags), reason)
