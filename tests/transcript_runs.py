"""What tests of providers share: runs out of payloads or messages, exactness, and what repair promises."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from agent_memory_log import Event, EventData, JsonValue, Snapshot, new_event
from agent_memory_log.jsonvalue import encode_canonical
from agent_memory_log.transcript import build, parse
from agent_memory_log.transcript.providers import repair, validate
from agent_memory_log.transcript.transcripts import Repair, Transcript

Message = dict[str, Any]

# A busy machine is no finding.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ODD_VALUES: list[Any] = [0, 1.0, False, True, None, "x", "", " ", {}, {"a": 1}, [], [[]], ["x", None], 10**40]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", " ", "text", "null", "{}", "assistant", "a"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "x"]), inner),
    max_leaves=6,
)


def maps(known: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Message]:
    """Maps of some of these keys, each with what belongs there or with anything."""
    return st.fixed_dictionaries({}, optional={key: value | json_values for key, value in known.items()})


def nearly(known: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Message]:
    """Maps of all of these keys with what belongs there, or now and then of some of them with anything."""
    return st.fixed_dictionaries(dict(known)) | maps(known)


def at_seqs(events: Sequence[Event]) -> list[Event]:
    """Events as a store gives them, from seq 1."""
    return [
        Event(event.type, event.timestamp, event.data, event.labels, event.event_id, seq)
        for seq, event in enumerate(events, 1)
    ]


def run_of(*payloads: EventData) -> Snapshot:
    """A run of these payloads."""
    return Snapshot("agent", "run", at_seqs([new_event(payload) for payload in payloads]), version=len(payloads))


def run_from(messages: Sequence[Mapping[str, JsonValue]], provider: str) -> Snapshot:
    """A run of the events of these messages."""
    events = at_seqs(parse(messages, provider))
    return Snapshot("agent", "run", events, version=len(events))


def assert_exact(messages: Sequence[Mapping[str, JsonValue]], provider: str) -> list[Event]:
    """Parsing and building gives equal JSON, and so does a transcript that grew."""
    before = copy.deepcopy(messages)
    events = at_seqs(parse(messages, provider))
    half = len(events) // 2
    built = build(Snapshot("agent", "run", events[:half], version=half), provider)
    built.update(Snapshot("agent", "run", events, version=len(events)))
    assert encode_canonical(list(built)) == encode_canonical(messages)
    assert list(build(Snapshot("agent", "run", events, version=len(events)), provider)) == list(built)
    assert messages == before
    for event in events:
        assert Event.from_map(event.to_map()) == event
    assert len({event.event_id for event in events}) == len(events)
    return events


def rules_of(
    transcript: Sequence[Mapping[str, JsonValue]], provider: str, request: Mapping[str, JsonValue] | None = None
) -> list[tuple[str, int | None]]:
    """The rules a transcript breaks, each with the seq of the event."""
    findings = validate(transcript, provider, request=request)
    assert all(finding.message and finding.where for finding in findings)
    return [(finding.rule, finding.seq) for finding in findings]


def assert_repaired(
    transcript: Sequence[Mapping[str, JsonValue]],
    provider: str,
    judge: Callable[[Sequence[object]], None] | None = None,
    request: Mapping[str, JsonValue] | None = None,
) -> Repair:
    """Repair gives what validates, by a copy, the same each time, and nothing to do a second time."""
    before = copy.deepcopy(list(transcript))
    found = validate(transcript, provider, request=request)
    repaired = repair(transcript, provider, request=request)
    assert list(transcript) == before
    assert validate(repaired.transcript, provider, request=repaired.request) == []
    assert validate(list(repaired.transcript), provider, request=repaired.request) == []
    assert bool(repaired.changes) >= bool(found)
    assert list(repair(copy.deepcopy(transcript), provider, request=request).transcript) == list(repaired.transcript)
    for again in (repaired.transcript, list(repaired.transcript)):
        second = repair(again, provider, request=repaired.request)
        assert second.changes == ()
        assert list(second.transcript) == list(repaired.transcript)
    if judge is not None:
        judge(list(repaired.transcript))
    return repaired


def changes_of(repaired: Repair) -> list[str]:
    """The names of what repair did."""
    return [change.change for change in repaired.changes]


def built_from(messages: Sequence[Mapping[str, JsonValue]], provider: str) -> Transcript:
    """The transcript of the run of these messages."""
    return build(run_from(messages, provider), provider)
