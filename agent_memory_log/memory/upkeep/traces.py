"""The traces that a forgotten value left in linked runs: its evidence, what repeats it, the injected contexts with it.

Each run is read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from agent_memory_log.errors import CursorOutOfRange, RunExpired
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import EventType, Redacted, Redaction
from agent_memory_log.memory.records.messages import INJECTED_CONTEXT, type_of
from agent_memory_log.memory.records.record import Evidence, RunId
from agent_memory_log.memory.stream.payloads import MemoryTombstone
from agent_memory_log.memory.upkeep.mentions import Values
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, each, load, work

RunEvent = tuple[str, str, int]
"""An event of the log: agent, run and seq."""


class Wanted(msgspec.Struct, frozen=True):
    """What to look for in ``runs``: the forgotten ``values``, the ids of their ``records``, the events they rest on.

    ``evidence`` names these events; an id that a run does not hold gives way to the seq. ``swept``: the runs in which
    every event that holds a value is to go.
    """

    runs: frozenset[tuple[str, str]] = frozenset()
    values: frozenset[str] = frozenset()
    records: frozenset[str] = frozenset()
    evidence: frozenset[Evidence] = frozenset()
    swept: frozenset[tuple[str, str]] = frozenset()


class Traces(msgspec.Struct, frozen=True):
    """Events of runs: those that are ``to_redact``, those that are ``holding`` a value, and the injected contexts."""

    to_redact: frozenset[RunEvent] = frozenset()
    holding: frozenset[RunEvent] = frozenset()
    injected: Mapping[RunEvent, Event] = {}

    @property
    def elsewhere(self) -> frozenset[RunEvent]:
        """The events that hold a value and stay."""
        return self.holding - self.to_redact


def find_traces(wanted: Wanted) -> Steps[Traces]:
    """Read the runs. Raises what ``Store.load_run`` raises, but for a run that is gone."""
    values = Values(wanted.values)
    evidence: dict[RunId, list[Evidence]] = {}
    for place in wanted.evidence:
        evidence.setdefault(place.run_id, []).append(place)
    by_run = yield from each(
        _in_run(*run, values, evidence.get(run, ()), swept=run in wanted.swept) for run in sorted(wanted.runs)
    )
    messages = frozenset[RunEvent]().union(*(traces.to_redact for traces in by_run))
    # An injected context goes with a message in it, and it is only now known which messages go.
    injected = {
        place
        for traces in by_run
        for place, event in traces.injected.items()
        if _names(event, wanted.records, messages)
    }
    return Traces(messages | injected, frozenset[RunEvent]().union(*(traces.holding for traces in by_run)))


def _in_run(agent: str, run: str, values: Values, evidence: Sequence[Evidence], *, swept: bool) -> Steps[Traces]:
    try:
        snapshot = yield from load(agent, run)
    except (CursorOutOfRange, RunExpired):  # the run is gone, and what it said with it
        return Traces()
    return (yield from work(lambda: _traces(snapshot, values, evidence, swept=swept)))


def _traces(snapshot: Snapshot, values: Values, evidence: Sequence[Evidence], *, swept: bool) -> Traces:
    agent, run = snapshot.agent, snapshot.run
    to_redact: set[RunEvent] = set()
    holding: set[RunEvent] = set()
    injected: dict[RunEvent, Event] = {}
    ids = {event.event_id for event in snapshot.log} - {""}
    cited = {place.event_id if place.event_id in ids else place.seq for place in evidence}
    for exchange in _exchanges(snapshot.log):
        events = {(agent, run, event.seq): event for event in exchange if not isinstance(event.data, _KEPT)}
        repeating = {place for place, event in events.items() if values.are_in_event(event)}
        sources = {(agent, run, event.seq) for event in exchange if event.event_id in cited or event.seq in cited}
        to_redact |= sources & events.keys()
        if sources or swept:
            to_redact |= repeating
        holding |= repeating
        injected.update((place, event) for place, event in events.items() if event.type == INJECTED_CONTEXT)
    return Traces(frozenset(to_redact), frozenset(holding), injected)


_KEPT = (Redacted, Redaction, MemoryTombstone)
"""What holds no words, and is not redacted."""

_USER = EventType.USER_MESSAGE.value
_ANSWER = EventType.ASSISTANT_MESSAGE.value


def _exchanges(log: Sequence[Event]) -> list[list[Event]]:
    """The events of a run by exchange: what the user says, in one message or several, and all up to the next."""
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


def _names(event: Event, records: frozenset[str], messages: frozenset[RunEvent]) -> bool:
    """Whether an event names one of the records or messages in its data, which may be anything."""
    data = event.data.to_map()
    record_ids, places = data.get("records"), data.get("messages")
    return (isinstance(record_ids, list) and any(isinstance(one, str) and one in records for one in record_ids)) or (
        isinstance(places, list) and any(isinstance(place, dict) and _is_in(place, messages) for place in places)
    )


def _is_in(place: Mapping[str, JsonValue], messages: frozenset[RunEvent]) -> bool:
    agent, run, seq = (place.get(part) for part in ("agent", "run", "seq"))
    return isinstance(agent, str) and isinstance(run, str) and isinstance(seq, int) and (agent, run, seq) in messages
