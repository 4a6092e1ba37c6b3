"""Reads from a run the things that a model must not forget: its decisions, its changes of files, and its open calls.

The journal of a run depends only on few of its events. ``Story.events`` are these events, and reading them alone gives
the same story. So a checkpoint that names them replaces the run up to its version.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar

import msgspec

from agent_memory_log.events.context_payloads import Compaction
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import (
    AssistantMessage,
    EventData,
    PlannerNote,
    Redacted,
    Redaction,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_memory_log.memory.extraction.outcomes import failure_of, one_line, puts_right
from agent_memory_log.pairing import Pairing
from agent_memory_log.processor.files import READ, files_of
from agent_memory_log.recording.ids import result_id
from agent_memory_log.tables import read_table, with_parts

MOST_DECISIONS = 1_000
MOST_FILES = 500
MOST_OPEN_CALLS = 1_000
MOST_FAILURES = 10
MOST_TOOLS = 50
"""The most entries of each part of a story. The newest stay."""

LONGEST_DECISION = 400
"""The most characters of a decision. A longer one is cut."""

_LONGEST_MESSAGE = 20_000
_MOST_SENTENCES = 5
_LONGEST_ARGUMENTS = 160
_TABLE = read_table(__name__, "work")["decisions"]
_HINT = re.compile(_TABLE["hint"])
_DECISION = re.compile("|".join(with_parts(pattern, _TABLE) for pattern in _TABLE["patterns"]))
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?!\s)[^.!?\n]*)*[.!?]?")
_BULLETS = " \t-*#>"


class Entry(msgspec.Struct, frozen=True):
    """Something that the run shows: its words, and the events that it was read from, the newest last."""

    text: str
    events: tuple[Event, ...]

    @property
    def seq(self) -> int:
        """The seq of the newest event."""
        return self.events[-1].seq


class Story(msgspec.Struct, frozen=True):
    """The things that a model must not forget of a run. In each part, the oldest entry comes first.

    Attributes:
        request: The latest message of the user.
        summary: The text of the latest compaction, unless an event that it covers was redacted since.
        decisions: The planner's notes, and the sentences in which the assistant states a decision.
        changed: The files that were changed, each with its latest change.
        read: The files that were only read.
        open_calls: The tool calls without a result.
        failures: The failed tool calls that no later call put right.
        tools: The tools that were used, each with its latest call.
    """

    request: Entry | None = None
    summary: Entry | None = None
    decisions: tuple[Entry, ...] = ()
    changed: tuple[Entry, ...] = ()
    read: tuple[Entry, ...] = ()
    open_calls: tuple[Entry, ...] = ()
    failures: tuple[Entry, ...] = ()
    tools: tuple[Entry, ...] = ()

    def entries(self) -> Iterator[Entry]:
        """Yield all entries."""
        yield from (entry for entry in (self.request, self.summary) if entry is not None)
        for part in (self.decisions, self.changed, self.read, self.open_calls, self.failures, self.tools):
            yield from part

    def events(self) -> list[Event]:
        """Return the events that the story depends on, in the order of the run."""
        by_seq = {event.seq: event for entry in self.entries() for event in entry.events}
        return [by_seq[seq] for seq in sorted(by_seq)]


class Journal:
    """Reads a run event by event."""

    def __init__(self) -> None:
        self._request: Event | None = None
        self._compaction: Event | None = None
        self._decisions: deque[Entry] = deque(maxlen=MOST_DECISIONS)
        self._changed: dict[str, Entry] = {}
        self._read: dict[str, Entry] = {}
        self._tools: dict[str, Entry] = {}
        self._failures: deque[tuple[ToolCall, Entry]] = deque(maxlen=MOST_FAILURES)
        self._pairing: Pairing[Event] = Pairing()
        self._erased_results: set[str] = set()

    def add(self, event: Event) -> None:
        """Read the next event."""
        read = self._READERS.get(type(event.data))
        if read is not None:
            read(self, event, event.data)

    def story(self) -> Story:
        """Return the story of the events so far."""
        changed = tuple(self._changed.values())
        return Story(
            None if self._request is None else Entry(_message(self._request), (self._request,)),
            None if self._compaction is None else Entry(_summary(self._compaction), (self._compaction,)),
            tuple(self._decisions),
            changed,
            tuple(entry for path, entry in self._read.items() if path not in self._changed),
            tuple(Entry(_call(event), (event,)) for event in self._open_calls()[-MOST_OPEN_CALLS:]),
            tuple(entry for _, entry in self._failures),
            tuple(self._tools.values()),
        )

    def _decide(self, text: str, event: Event) -> None:
        line = one_line(text, LONGEST_DECISION)
        if line:
            self._decisions.append(Entry(line, (event,)))

    def _add_call(self, event: Event, call: ToolCall) -> None:
        self._pairing.add_call(call, event)

    def _add_note(self, event: Event, note: PlannerNote) -> None:
        self._decide(note.note, event)

    def _add_answer(self, event: Event, answer: AssistantMessage) -> None:
        for sentence in decisions_in(answer.message):
            self._decide(sentence, event)

    def _add_request(self, event: Event, request: UserMessage) -> None:
        if request.message.strip():
            self._request = event

    def _add_compaction(self, event: Event, compaction: Compaction) -> None:
        if compaction.text:
            self._compaction = event

    def _add_result(self, event: Event, result: ToolResult) -> None:
        call_event = self._pairing.add_result(result)
        if call_event is None or not isinstance(call_event.data, ToolCall):
            return
        call, events = call_event.data, (call_event, event)
        _renew(self._tools, call.tool_name, Entry(one_line(call.tool_name), events), MOST_TOOLS)
        reason = failure_of(result)
        if reason:
            self._failures.append((call, Entry(f"{_call(call_event)} failed: {reason}", events)))
            return
        fixed = [failure for failure in self._failures if puts_right(failure[0], call)]
        for failure in fixed:
            self._failures.remove(failure)
        for path, action in files_of(call).items():
            files = self._read if action == READ else self._changed
            _renew(files, path, Entry(f"{action} {path}", events), MOST_FILES)

    def _add_erased(self, event: Event, erased: Redacted) -> None:
        if erased.original_type == ToolResult.event_type:
            self._erased_results.add(event.event_id)

    def _open_calls(self) -> list[Event]:
        """Return the calls without a result. A call whose result was erased has an answer, which cannot be read."""
        open_calls = self._pairing.open_calls()
        if not self._erased_results:
            return open_calls
        return [event for event in open_calls if result_id(event.event_id) not in self._erased_results]

    def _add_redaction(self, event: Event, redaction: Redaction) -> None:
        """Forget the summary of events that are erased: it may repeat them."""
        del event
        if self._compaction is not None and covers_any(self._compaction, redaction.seqs):
            self._compaction = None

    _READERS: ClassVar[Mapping[type[EventData], Callable[[Any, Event, Any], None]]] = {
        ToolCall: _add_call,
        ToolResult: _add_result,
        PlannerNote: _add_note,
        AssistantMessage: _add_answer,
        UserMessage: _add_request,
        Compaction: _add_compaction,
        Redacted: _add_erased,
        Redaction: _add_redaction,
    }


def story_of(events: Iterable[Event]) -> Story:
    """Return the story of some events of a run, in seq order."""
    journal = Journal()
    for event in events:
        journal.add(event)
    return journal.story()


def covers_any(compaction: Event, seqs: Iterable[int]) -> bool:
    """Return whether a compaction may hold words of one of the events: it replaces them, or comes after them."""
    return any(seq <= compaction.seq for seq in seqs)


def decisions_in(text: str) -> list[str]:
    """Return the sentences in which an assistant states a decision, at most five of a message."""
    text = text[:_LONGEST_MESSAGE]
    if _HINT.search(text.lower()) is None:
        return []
    sentences = (match.group().strip(_BULLETS) for match in _SENTENCE.finditer(text))
    return [*islice(filter(_is_decision, sentences), _MOST_SENTENCES)]


def _is_decision(sentence: str) -> bool:
    if len(sentence) > LONGEST_DECISION or sentence.endswith("?"):
        return False
    lower = sentence.lower()
    return _HINT.search(lower) is not None and _DECISION.search(lower) is not None


def _renew(entries: dict[str, Entry], name: str, entry: Entry, most: int) -> None:
    """Make an entry the newest one under its name."""
    entries.pop(name, None)
    entries[name] = entry
    if len(entries) > most:
        del entries[next(iter(entries))]


def _call(event: Event) -> str:
    data = event.data
    if not isinstance(data, ToolCall):
        return event.type
    arguments = one_line(data.payload_json, _LONGEST_ARGUMENTS)
    return f"{one_line(data.tool_name)}({arguments})"


def _message(event: Event) -> str:
    return event.data.message if isinstance(event.data, UserMessage) else ""


def _summary(event: Event) -> str:
    return event.data.text if isinstance(event.data, Compaction) else ""
