"""Reading memory: by id and key, as a list, by words, as history, as of a day, and why it is believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, RunExpired
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import EventData, Redacted, ToolCall, ToolResult
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.operations import AsOf, CountRecords, Explain, Get, History, ListRecords
from agent_memory_log.memory.records.kinds import fold_key
from agent_memory_log.memory.records.record import Evidence, Record, RunId, stars_of
from agent_memory_log.memory.records.reports import EvidenceLine, Explanation, Stats, Version
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.history import Closed, Ledger
from agent_memory_log.memory.stream.payloads import MemoryChanged, MemoryClosed, MemoryRefreshed
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.steps import Steps, load

_SHOWN = 200


def get(context: Context, call: Get) -> Steps[Record | None]:
    """The active record with an id, in any scope that may be read, or with a key."""
    record, key, kind, scope = call.id, call.key, call.kind, call.scope
    if (record is None) == (key is None):
        raise InvalidArgument("say what to get: either id or key")
    names = [context.readable_scope(scope)] if key is not None else context.readable(None if scope is None else [scope])
    for name in names:
        subject = context.subject(name)
        yield from subject.refresh()
        now = context.hooks.now()
        live = subject.ask(
            lambda state: state.active(record or "", now) if key is None else _by_key(state, key, kind, now)  # noqa: B023  # asked at once
        )
        if live is not None:
            return live.record_as(name, "active")
    return None


def _by_key(state: State, key: str, kind: str | None, now: datetime) -> Live | None:
    """The newest, where several kinds have the key and none was said."""
    if not key.strip():
        return None
    names = state.kinds if kind is None else {kind}
    lives = [live for name in names if (live := state.find(name, key)) is not None and not live.is_expired(now)]
    if len(lives) > 1:
        lives.sort(key=lambda live: (live.updated, live.seq))
    return lives[-1] if lives else None


def list_records(context: Context, call: ListRecords) -> Steps[tuple[Record, ...]]:
    """The records of a status, by scope, then as they came. Only active ones are at hand; others are looked up."""
    kinds = _set_of(call.kinds)
    records: list[Record] = []
    for scope in context.readable(call.scopes):
        if call.status == "active":
            records += yield from active_records(context, context.subject(scope), kinds)
        else:
            ledger = yield from _ledger(context, scope)
            records += [
                record
                for record in ledger.records(scope, context.hooks.now())
                if record.status == call.status and (kinds is None or record.kind in kinds)
            ]
    return tuple(records)


def active_records(context: Context, subject: Subject, kinds: frozenset[str] | None) -> Steps[list[Record]]:
    """The active records of a subject, as they came."""
    yield from subject.refresh()
    now = context.hooks.now()
    return subject.ask(lambda state: _active(state, subject.id.scope, kinds, now))


def _active(state: State, scope: str, kinds: frozenset[str] | None, now: datetime) -> list[Record]:
    return [
        live.record_as(scope, "active")
        for live in state.records.values()
        if not live.is_expired(now) and (kinds is None or live.memory.kind in kinds)
    ]


def _set_of(kinds: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if kinds is None else frozenset(kinds)


def _ledger(context: Context, scope: str, until: datetime | None = None) -> Steps[Ledger]:
    """The whole history of a scope, up to a time."""
    stream = yield from context.subject(scope).load_all()
    return Ledger(stream, until=until)


def history(context: Context, call: History) -> Steps[tuple[Version, ...]]:
    """Every value that a key has had, the oldest first."""
    wanted = fold_key(call.key)
    name = context.readable_scope(call.scope)
    ledger = yield from _ledger(context, name)
    return tuple(
        Version(record, live.seq, *_end(closed, record))
        for (live, closed), record in zip(ledger.lives(), ledger.records(name, context.hooks.now()), strict=True)
        if wanted and fold_key(record.key) == wanted and call.kind in (None, record.kind)
    )


def _end(closed: Closed | None, record: Record) -> tuple[datetime | None, str]:
    """When and why a record ended."""
    if closed is not None:
        return closed.at, closed.reason
    return (record.valid_until, record.status) if record.status == "expired" else (None, "")


def as_of(context: Context, call: AsOf) -> Steps[tuple[Record, ...]]:
    """What was active at a time, less what was forgotten since."""
    records: list[Record] = []
    for scope in context.readable(call.scopes):
        ledger = yield from _ledger(context, scope, call.time)
        records += _active(ledger.state, scope, _set_of(call.kinds), call.time)
    return tuple(records)


def explain(context: Context, call: Explain) -> Steps[Explanation | None]:
    """The record, whatever its status, with its evidence as lines."""
    record = call.id
    for scope in context.readable(None):
        ledger = yield from _ledger(context, scope)
        explained = next((one for one in ledger.records(scope, context.hooks.now()) if one.id == record), None)
        if explained is not None:
            lines = yield from _lines(context, explained.evidence)
            story = tuple(_story_line(event, record) for event in ledger.story.get(record, ()))
            return Explanation(explained, explained.status, _source(explained), lines, story)
    return None


def stats(context: Context, _: CountRecords) -> Steps[Stats]:
    """Counts over all scopes that may be read."""
    active, closed, blocked = Counter[str](), Counter[str](), Counter[str]()
    events = parts = 0
    runs: set[RunId] = set()
    for scope in context.readable(None):
        ledger = yield from _ledger(context, scope)
        for record in ledger.records(scope, context.hooks.now()):
            if record.status == "active":
                active[record.kind] += 1
            else:
                closed[record.status] += 1
        blocked.update(data.reason for _, data in ledger.blocked)
        events += ledger.events
        parts += len(ledger.state.chunks)
        runs |= ledger.state.positions.keys()
    return Stats(_sorted(active), _sorted(closed), _sorted(blocked), events, len(runs), parts)


def _sorted(counts: Counter[str]) -> Mapping[str, int]:
    return dict(sorted(counts.items()))


def _source(record: Record) -> str:
    named = f" {record.source.id}" if record.source.id else ""
    return f"{record.source.kind}{named}, on {record.created.date().isoformat()}"


def _story_line(event: Event, record: str) -> str:
    data = event.data
    day = event.timestamp.isoformat(timespec="seconds")
    if isinstance(data, MemoryClosed):
        by = f" by {data.by}" if data.by and data.by != record else ""
        return f"{day} {data.status}{by}"
    if isinstance(data, MemoryRefreshed):
        return f"{day} said again, confidence {data.confidence:g}"
    if isinstance(data, MemoryChanged):
        stars = f", {stars_of(data.importance)} stars" if "importance" in data.changed else ""
        return f"{day} changed: {', '.join(data.changed)}{stars}"
    return f"{day} remembered"


def _lines(context: Context, evidence: Sequence[Evidence]) -> Steps[tuple[EvidenceLine, ...]]:
    """The events that a memory rests on, as lines. Evidence may name any event; only those of linked runs are read."""
    subjects = [context.subject(scope) for scope in context.readable(None)]
    for subject in subjects:
        yield from subject.refresh()
    lines: list[EvidenceLine] = []
    for place in evidence:
        reason = _reason_not_to_show(subjects, place, place.seq)
        lines.append(EvidenceLine(place, reason=reason) if reason else (yield from _line(subjects, place)))
    return tuple(lines)


def _reason_not_to_show(subjects: Sequence[Subject], evidence: Evidence, seq: int) -> str:
    if is_reserved(evidence.agent):
        return "imported from another memory"
    run = evidence.run_id
    if any(subject.ask(lambda state: state.may_find(*run, seq)) for subject in subjects):
        return ""
    is_linked = any(subject.ask(lambda state: run in state.linked) for subject in subjects)
    return "forgotten" if is_linked else "not linked to this subject"


def _line(subjects: Sequence[Subject], evidence: Evidence) -> Steps[EvidenceLine]:
    """An event of a linked run, as a line."""
    try:
        event = yield from _event_of(evidence)
    except CursorOutOfRange:
        return EvidenceLine(evidence, reason="not there")
    except RunExpired:
        return EvidenceLine(evidence, reason="expired")
    if event is None:
        return EvidenceLine(evidence, reason="deleted")
    reason = _reason_not_to_show(subjects, evidence, event.seq)
    if reason or isinstance(event.data, Redacted):
        return EvidenceLine(evidence, reason=reason or "erased")
    return EvidenceLine(evidence, _shown(event.data))


def _event_of(evidence: Evidence) -> Steps[Event | None]:
    """The event that is meant: the one at its place, unless that has another id, as in a copy that renumbers."""
    wanted = evidence.event_id
    with suppress(*((CursorOutOfRange,) if wanted else ())):
        there = yield from load(*evidence.run_id, evidence.seq - 1, limit=1)
        if there.log and there.log[0].seq == evidence.seq and wanted in ("", there.log[0].event_id):
            return there.log[0]
    if not wanted:
        return None
    everything = yield from load(*evidence.run_id)
    return next((event for event in everything.log if event.event_id == wanted), None)


def _shown(data: EventData) -> str:
    if isinstance(data, ToolCall):
        text = f"{data.tool_name} {data.payload_json}"
    elif isinstance(data, ToolResult):
        text = f"{data.tool_name}: {data.error_message or data.preview or data.result_json}"
    else:
        text = str(getattr(data, "message", None) or getattr(data, "text", None) or getattr(data, "note", ""))
    line = " ".join(text.split())
    return f"{data.event_type.removesuffix('_message')}: {line if len(line) <= _SHOWN else line[: _SHOWN - 3] + '...'}"
