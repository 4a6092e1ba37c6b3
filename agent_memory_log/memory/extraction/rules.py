"""An extractor without a model: it reads plain statements of users, and outcomes that the log's structure shows.

It reads a run event by event, and reports a position only at an event after which no call is open. Later candidates
then depend only on later events. So the extractor finds and numbers the same candidates however the run is sliced.

A call is open while it has no result. A successful call is open until the next user message, which may acknowledge it.
A failed call is open until a later call fixes it. It stays open for at most three user messages, and only while they
give no candidates, so that a failure never delays a statement. A user message closes all other calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import AssistantMessage, Redacted, ToolCall, ToolResult, UserMessage
from agent_memory_log.memory.extraction.messages import has_too_few_messages
from agent_memory_log.memory.extraction.outcomes import (
    acknowledges,
    changes_something,
    describe_fix,
    describe_work,
    failure_of,
    puts_right,
    read_feedback,
)
from agent_memory_log.memory.extraction.statements import read_statements
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Episode, RecordData
from agent_memory_log.memory.records.protocols import Extraction, RunSlice
from agent_memory_log.memory.records.record import Evidence, Source
from agent_memory_log.pairing import Pairing

_NAME = "rules"
_PATIENCE = 3
_MAX_EVIDENCE = 6
_MAX_WORK = 5
_MAX_FAILURES = 32
_STATED = 0.9
_OBSERVED = 0.8
_STATEMENT_IMPORTANCE = 0.7
_EPISODE_IMPORTANCE = 0.5


class RuleExtractor:
    """Extracts without a model. It prefers to miss a memory rather than to write a wrong one. It finds:

    - preferences and facts that the user states explicitly, in English, German, Spanish and French: ``I
      prefer …``, ``always …``, ``never …``, ``use X instead of Y``, ``call me …``, ``my name is …``, ``I live in …``,
      ``please answer in …``, ``my user id is …``; and attributes: diet, allergies, work, family, pets,
      favourites, likes and dislikes, languages, birthday, address, phone number, budget, the length of answers, the
      use of emojis. An attribute that has ended keeps its key: its new value says so. Where no attribute
      fits, it keeps a whole clause such as ``live in a terraced house``;
    - episodes: ``error``, a failed tool call and the call that fixed it; ``task_result``, work that changed something
      and that the user acknowledged; ``user_feedback``, the user's opinion that something was right or wrong.

    It reads statements only from user messages, never from the assistant, from tools or from recalled memory. A run
    with fewer than four messages is read later. The same events give the same candidates in all slices.
    """

    @property
    def name(self) -> str:
        """The name ``rules``."""
        return _NAME

    def extract(self, new: RunSlice, /) -> Extraction:
        """Return the candidates of ``new`` up to the last event at which nothing is open."""
        if has_too_few_messages(new):
            return Extraction(position=new.after)
        reading = _Reading(new)
        for event in new.events:
            reading.add(event)
        return Extraction(tuple(reading.candidates), position=reading.position)


class _Failure(msgspec.Struct, frozen=True):
    call: ToolCall
    result: Event
    reason: str
    patience: int


class _Done(msgspec.Struct, frozen=True):
    call: ToolCall
    result: Event


class _Reading:
    """The state while a slice is read. ``candidates`` is final up to ``position``.

    ``_pending`` has the candidates that become final when no call is open.
    """

    def __init__(self, new: RunSlice) -> None:
        self.candidates: list[Candidate] = []
        self.position = new.after
        self._agent, self._run = new.agent, new.run
        self._items: dict[int, int] = {}
        self._pairing: Pairing[ToolCall] = Pairing()
        self._failures: list[_Failure] = []
        self._pending: list[Candidate] = []
        self._done: list[_Done] = []
        self._answered = False

    def add(self, event: Event) -> None:
        data = event.data
        if isinstance(data, ToolCall):
            self._pairing.add_call(data, data)
        elif isinstance(data, ToolResult):
            self._add_result(event, data)
        elif isinstance(data, AssistantMessage):
            self._answered = True
        elif isinstance(data, UserMessage):
            self._add_user(event, data.message)
        elif isinstance(data, Redacted) and data.original_type == UserMessage.event_type:
            self._add_user(event, "")

    def _add_result(self, event: Event, result: ToolResult) -> None:
        call = self._pairing.add_result(result)
        if call is None:
            return
        self._answered = False
        reason = failure_of(result)
        if reason:
            self._failures.append(_Failure(call, event, reason, _PATIENCE))
            del self._failures[:-_MAX_FAILURES]
            return
        self._done.append(_Done(call, event))
        fixed_failures = [failure for failure in self._failures if puts_right(failure.call, call)]
        if fixed_failures:
            self._failures = [failure for failure in self._failures if failure not in fixed_failures]
            self._pending.append(self._fix(fixed_failures, call, event))
        if self._pending and not self._failures and not self._pairing.open_count:
            self._close(event)

    def _add_user(self, event: Event, text: str) -> None:
        candidates = [
            self._candidate(statement.data, [event], confidence=statement.confidence, importance=_STATEMENT_IMPORTANCE)
            for statement in read_statements(text)
        ]
        if self._answered:
            candidates += [
                self._episode("user_feedback", f'The user said: "{sentence}"', [event])
                for sentence in read_feedback(text)
            ]
            thanked = bool(self._done) and acknowledges(text)
            work = [done for done in self._done if changes_something(done.call)][-_MAX_WORK:] if thanked else []
            if work:
                words = describe_work([done.call for done in work])
                candidates.append(self._episode("task_result", words, [event, *(done.result for done in work)]))
        self._pairing = Pairing()
        if self._failures:
            waiting = [] if candidates else self._failures
            self._failures = [
                msgspec.structs.replace(failure, patience=failure.patience - 1)
                for failure in waiting
                if failure.patience > 1
            ]
        self._done.clear()
        self._answered = False
        self._pending += candidates
        if not self._failures:
            self._close(event)

    def _close(self, event: Event) -> None:
        """Make the pending candidates final, because no earlier event is needed any more."""
        self.candidates += self._pending
        self._pending.clear()
        self._done.clear()
        self._answered = False
        self.position = event.seq

    def _fix(self, failures: Sequence[_Failure], call: ToolCall, event: Event) -> Candidate:
        last = failures[-1]
        results = [failure.result for failure in failures[-_MAX_EVIDENCE:]]
        return self._episode("error", describe_fix(last.call, last.reason, call), [*reversed(results), event])

    def _episode(self, category: str, text: str, events: Sequence[Event]) -> Candidate:
        data = Episode(category, events[0].timestamp)
        return self._candidate(data, events, text=text, confidence=_OBSERVED, importance=_EPISODE_IMPORTANCE)

    def _candidate(
        self, data: RecordData, events: Sequence[Event], *, text: str = "", confidence: float, importance: float
    ) -> Candidate:
        return Candidate(
            data,
            text=text,
            confidence=confidence,
            importance=importance,
            valid_from=events[0].timestamp,
            source=Source("run", f"{self._agent}/{self._run}", _STATED if not text else _OBSERVED),
            evidence=tuple(map(self._evidence, events)),
        )

    def _evidence(self, event: Event) -> Evidence:
        """Return the event as evidence, with the number of its next statement. Each event is read only once."""
        number = self._items.get(event.seq, 0) + 1
        self._items[event.seq] = number
        return Evidence(self._agent, self._run, event.seq, f"{_NAME}/{number}", event.event_id)
