"""The extractor without a model: what users state in so many words, and what the structure of the log shows.

It reads a run event by event. Where nothing is open any more, it is done with what it has read, and what follows does
not depend on it: so it finds the same, and counts it the same, in whatever slices a run comes.

What is open: after a user message, the calls that have no result, and the failed ones that nothing has put right. A
failure waits for a few user messages at most, and only while they state nothing: what a user says is never held back
for it. Calls that succeed are open until the next user message, which may acknowledge them.
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
    """Finds without a model, and rather too little than what is wrong:

    - preferences and facts that the user states outright, in English, and the common forms in German, Spanish and
      French: ``I prefer …``, ``always …``, ``never …``, ``use X instead of Y``, ``call me …``, ``my name is …``,
      ``I live in …``, ``please answer in …``, ``my user id is …``;
    - episodes: ``error``, a failed tool call and what put it right; ``task_result``, work that changed something and
      that the user acknowledged; ``user_feedback``, that something was right or wrong.

    Only user messages are read for statements: what an assistant or a tool says, and what was recalled from memory,
    never is one. A run of fewer than four messages is left for later. The same events give the same candidates,
    whatever the slices they are read in.
    """

    @property
    def name(self) -> str:
        """``rules``."""
        return _NAME

    def extract(self, new: RunSlice, /) -> Extraction:
        """What is in ``new``, up to where nothing is open."""
        if has_too_few_messages(new):
            return Extraction(position=new.after)
        reading = _Reading(new)
        for event in new.events:
            reading.add(event)
        return Extraction(tuple(reading.found), position=reading.position)


class _Failure(msgspec.Struct, frozen=True):
    call: ToolCall
    result: Event
    reason: str
    patience: int


class _Done(msgspec.Struct, frozen=True):
    call: ToolCall
    result: Event


class _Reading:
    """What is known of a slice so far. ``found`` is final up to ``position``; ``_fixes`` waits for the rest."""

    def __init__(self, new: RunSlice) -> None:
        self.found: list[Candidate] = []
        self.position = new.after
        self._agent, self._run = new.agent, new.run
        self._items: dict[int, int] = {}
        self._pairing: Pairing[ToolCall] = Pairing()
        self._failures: list[_Failure] = []
        self._fixes: list[Candidate] = []
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
        fixed = [one for one in self._failures if puts_right(one.call, call)]
        if fixed:
            self._failures = [one for one in self._failures if one not in fixed]
            self._fixes.append(self._fix(fixed, call, event))
        if self._fixes and not self._failures and not self._pairing.open_count:
            self._close(event)

    def _add_user(self, event: Event, text: str) -> None:
        said = [
            self._candidate(one.data, [event], confidence=one.confidence, importance=_STATEMENT_IMPORTANCE)
            for one in read_statements(text)
        ]
        if self._answered:
            said += [self._episode("user_feedback", f'The user said: "{one}"', [event]) for one in read_feedback(text)]
            thanked = bool(self._done) and acknowledges(text)
            work = [one for one in self._done if changes_something(one.call)][-_MAX_WORK:] if thanked else []
            if work:
                words = describe_work([one.call for one in work])
                said.append(self._episode("task_result", words, [event, *(one.result for one in work)]))
        self._pairing = Pairing()
        if self._failures:
            waiting = [] if said else self._failures
            self._failures = [
                msgspec.structs.replace(one, patience=one.patience - 1) for one in waiting if one.patience > 1
            ]
        self._done.clear()
        self._answered = False
        self._fixes += said
        if not self._failures:
            self._close(event)

    def _close(self, event: Event) -> None:
        """Nothing is open: what was found stands, and nothing before this event is needed any more."""
        self.found += self._fixes
        self._fixes.clear()
        self._done.clear()
        self._answered = False
        self.position = event.seq

    def _fix(self, failures: Sequence[_Failure], call: ToolCall, event: Event) -> Candidate:
        last = failures[-1]
        results = [one.result for one in failures[-_MAX_EVIDENCE:]]
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
        """The next statement of an event: an event is read once, between two points where nothing is open."""
        number = self._items.get(event.seq, 0) + 1
        self._items[event.seq] = number
        return Evidence(self._agent, self._run, event.seq, f"{_NAME}/{number}", event.event_id)
