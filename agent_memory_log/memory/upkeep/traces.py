"""Finds the traces of a forgotten value in linked runs.

Traces are the evidence, messages that repeat the value, and injected contexts that contain it. Each run is read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from agent_memory_log.errors import CursorOutOfRange, RunExpired
from agent_memory_log.events.context_payloads import InjectedContext
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import EventType, Redacted, Redaction
from agent_memory_log.memory.records.messages import RunEvent, names_any, type_of
from agent_memory_log.memory.records.record import Evidence, RunId
from agent_memory_log.memory.stream.payloads import MemoryTombstone
from agent_memory_log.memory.upkeep.mentions import Values
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, each, load, work


class TraceQuery(msgspec.Struct, frozen=True):
    """The traces to look for.

    Attributes:
        runs: The runs to search.
        values: The forgotten values.
        records: The ids of the forgotten records.
        evidence: The events that the records cite. An event is found by its id, or by its seq if the id is missing.
        swept: The runs in which every event that holds a value is redacted.
        forgotten: The runs that memory forgets. An injected context that quotes any of their messages is redacted.
    """

    runs: frozenset[tuple[str, str]] = frozenset()
    values: frozenset[str] = frozenset()
    records: frozenset[str] = frozenset()
    evidence: frozenset[Evidence] = frozenset()
    swept: frozenset[tuple[str, str]] = frozenset()
    forgotten: frozenset[tuple[str, str]] = frozenset()


class Traces(msgspec.Struct, frozen=True):
    """The traces in one or more runs.

    Attributes:
        to_redact: The events to redact.
        holding: The events that hold a value.
        injected: The injected contexts.
    """

    to_redact: frozenset[RunEvent] = frozenset()
    holding: frozenset[RunEvent] = frozenset()
    injected: Mapping[RunEvent, Event] = {}

    @property
    def elsewhere(self) -> frozenset[RunEvent]:
        """The events that hold a value and are not redacted."""
        return self.holding - self.to_redact


def find_traces(query: TraceQuery) -> Steps[Traces]:
    """Read the runs and return their traces. A missing run has none. Raises the other errors of ``Store.load_run``."""
    values = Values(query.values)
    evidence: dict[RunId, list[Evidence]] = {}
    for cited in query.evidence:
        evidence.setdefault(cited.run_id, []).append(cited)
    by_run = yield from each(
        _in_run(*run, values, evidence.get(run, ()), swept=run in query.swept) for run in sorted(query.runs)
    )
    messages = frozenset[RunEvent]().union(*(traces.to_redact for traces in by_run))
    # An injected context is redacted with the messages in it, so all messages to redact must be found first.
    injected = {
        run_event
        for traces in by_run
        for run_event, event in traces.injected.items()
        if names_any(event, query.records, lambda place: place in messages or place[:2] in query.forgotten)
    }
    return Traces(messages | injected, frozenset[RunEvent]().union(*(traces.holding for traces in by_run)))


def _in_run(agent: str, run: str, values: Values, evidence: Sequence[Evidence], *, swept: bool) -> Steps[Traces]:
    try:
        snapshot = yield from load(agent, run)
    except (CursorOutOfRange, RunExpired):  # the run is gone
        return Traces()
    return (yield from work(lambda: _traces(snapshot, values, evidence, swept=swept)))


def _traces(snapshot: Snapshot, values: Values, evidence: Sequence[Evidence], *, swept: bool) -> Traces:
    agent, run = snapshot.agent, snapshot.run
    to_redact: set[RunEvent] = set()
    holding: set[RunEvent] = set()
    injected: dict[RunEvent, Event] = {}
    ids = {event.event_id for event in snapshot.log} - {""}
    cited = {source.event_id if source.event_id in ids else source.seq for source in evidence}
    for exchange in _exchanges(snapshot.log):
        events = {(agent, run, event.seq): event for event in exchange if not isinstance(event.data, _WITHOUT_WORDS)}
        repeating = {run_event for run_event, event in events.items() if values.are_in_event(event)}
        sources = {(agent, run, event.seq) for event in exchange if event.event_id in cited or event.seq in cited}
        to_redact |= sources & events.keys()
        if sources or swept:
            to_redact |= repeating
        holding |= repeating
        injected.update(pair for pair in events.items() if isinstance(pair[1].data, InjectedContext))
    return Traces(frozenset(to_redact), frozenset(holding), injected)


_WITHOUT_WORDS = (Redacted, Redaction, MemoryTombstone)
"""The events that hold no words and are never redacted here."""

_USER = EventType.USER_MESSAGE.value
_ANSWER = EventType.ASSISTANT_MESSAGE.value


def _exchanges(log: Sequence[Event]) -> list[list[Event]]:
    """Group the events of a run by exchange: one or more user messages and all events up to the next exchange."""
    exchanges: list[list[Event]] = [[]]
    is_answered = False
    for event in log:
        kind = type_of(event)
        if kind == _USER and is_answered:
            exchanges.append([])
            is_answered = False
        is_answered = is_answered or kind == _ANSWER
        exchanges[-1].append(event)
    return exchanges
