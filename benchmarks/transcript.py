"""The rows of the table that measure transcripts: build, validate, and update to a newer snapshot.

The floor is msgspec, which decodes the same events once, as the SQLite floor does. The run has the events of
``workload``. Each call has its own id, and each thinking block its own signature. Reasoning has the provider's form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from agent_memory_log import Event, EventData, JsonValue, Snapshot, Thinking, ToolCall, ToolResult, new_event
from agent_memory_log.transcript import build, parse, provider_names, validate
from benchmarks import floor, workload
from benchmarks.measure import Progress, Ratio, Side, compare, timed
from benchmarks.table import Row

_LONG = 10_000
_SHORT = 100
_TURN = len(workload.payloads())
_TURNS = 20
_REPEATS = 10


def rows() -> list[Row]:
    """Return every comparison."""
    long, short = f"{_LONG:,} events", f"{_SHORT:,} events"
    return [
        row
        for provider in provider_names()
        for row in (
            Row(f"{provider} transcript, build {long}", "msgspec decode", 3.0, partial(build_long, provider)),
            Row(f"{provider} transcript, validate {long}", "msgspec decode", 1.0, partial(validate_long, provider)),
            Row(f"{provider} transcript, a turn at {long}", f"at {short}", 1.2, partial(add_turn, provider)),
        )
    ]


def build_long(provider: str, rounds: int, progress: Progress) -> Ratio:
    """Build the transcript of a long run: seconds for each event."""
    events = numbered_events(provider, _LONG)
    snapshot = _snapshot(events)
    return compare(lambda: timed(lambda: build(snapshot, provider), _LONG), _decode(events), rounds, progress)


def validate_long(provider: str, rounds: int, progress: Progress) -> Ratio:
    """Validate the transcript of a long run: seconds for each event."""
    events = numbered_events(provider, _LONG)
    transcript = build(_snapshot(events), provider)
    assert validate(transcript, provider) == []
    return compare(lambda: timed(lambda: validate(transcript, provider), _LONG), _decode(events), rounds, progress)


def add_turn(provider: str, rounds: int, progress: Progress) -> Ratio:
    """Add a turn to the snapshot and the transcript of a long run, against those of a short run."""
    return compare(_turns_after(provider, _LONG), _turns_after(provider, _SHORT), rounds, progress)


def _turns_after(provider: str, count: int) -> Side:
    """Return the side that measures a turn after ``count`` events, as the mean of a few turns in a few runs."""
    events = numbered_events(provider, count + _TURNS * _TURN)
    ends = range(count, len(events), _TURN)

    def work_on(snapshot: Snapshot) -> Callable[[], None]:
        transcript = build(snapshot, provider)
        turns = [Snapshot("agent", "run", events[end : end + _TURN], version=end + _TURN, after=end) for end in ends]

        def work() -> None:
            grown = snapshot
            for turn in turns:
                grown = grown.extend(turn)
                transcript.update(grown)

        return work

    def side() -> float:
        return sum(timed(work_on(_snapshot(events[:count])), _TURNS) for _ in range(_REPEATS)) / _REPEATS

    return side


def _decode(events: list[Event]) -> Side:
    rows = floor.rows(events)
    return lambda: timed(lambda: floor.decode(rows), len(events))


def _snapshot(events: list[Event]) -> Snapshot:
    return Snapshot("agent", "run", events, version=len(events))


def numbered_events(provider: str, count: int) -> list[Event]:
    """Return a run of ``count`` events, with seqs."""
    cycle = workload.payloads()
    events = (new_event(_own(payload, number, provider)) for number in range(count // _TURN) for payload in cycle)
    return [
        Event(event.type, event.timestamp, event.data, event.labels, event.event_id, seq)
        for seq, event in enumerate(events, 1)
    ]


def _own(payload: EventData, number: int, provider: str) -> EventData:
    """Return a copy of the payload with ids of turn ``number``."""
    if isinstance(payload, (ToolCall, ToolResult)):
        return replace(payload, tool_call_id=f"call_{number:06}")
    if not isinstance(payload, Thinking):
        return payload
    signature = f"{number:06}{payload.signature[6:]}"
    if provider == "gemini":
        thought: dict[str, JsonValue] = {"text": payload.text, "thought": True, "thoughtSignature": signature}
        return parse([{"role": "model", "parts": [thought]}], provider)[0].data
    if provider != "openai-responses":
        return replace(payload, signature=signature)
    summary: list[JsonValue] = [{"type": "summary_text", "text": payload.text}]
    item = {"type": "reasoning", "id": f"reasoning-{number}", "summary": summary, "encrypted_content": signature}
    return parse([item], provider)[0].data
