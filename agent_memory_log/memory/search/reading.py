"""Reads records by id or key, as a list, as history and as of a time, and explains them by their evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, RunExpired
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import EventData, Redacted, ToolCall, ToolResult
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.conflicts.trust import trust_in
from agent_memory_log.memory.operations import AsOf, CountRecords, Explain, Get, History, ListRecords
from agent_memory_log.memory.records.kinds import fold_key
from agent_memory_log.memory.records.record import Evidence, Record, RunId, Source, stars_of
from agent_memory_log.memory.records.reports.outcomes import EvidenceLine, Explanation, Stats, Version
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.history import Closed, Ledger
from agent_memory_log.memory.stream.payloads import MemoryChanged, MemoryClosed, MemoryRefreshed
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.steps import Steps, find, load

_LONGEST_LINE = 200
"""The most characters of one event in an evidence line."""


def get(context: Context, call: Get) -> Steps[Record | None]:
    """Return the active record with an id, from any readable scope, or with a key, from one scope.

    Returns None if there is no such record. Raises ``InvalidArgument`` unless exactly one of id and key is given.
    """
    record, key, kind, scope = call.id, call.key, call.kind, call.scope
    if (record is None) == (key is None):
        raise InvalidArgument("get needs either id or key")
    scopes = (
        [context.readable_scope(scope)] if key is not None else context.readable(None if scope is None else [scope])
    )
    for name in scopes:
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
    """Return the active record with a key. Without a kind, returns the newest record of any kind."""
    if not key.strip():
        return None
    kinds = state.kinds if kind is None else {kind}
    lives = [live for name in kinds if (live := state.find(name, key)) is not None and not live.is_expired(now)]
    if len(lives) > 1:
        lives.sort(key=lambda live: (live.updated, live.seq))
    return lives[-1] if lives else None


def list_records(context: Context, call: ListRecords) -> Steps[tuple[Record, ...]]:
    """Return the records with a status, by scope, then in the order of the stream.

    Active records are in the state. For other statuses, the whole stream of each scope is read.
    """
    kinds = _set_of(call.kinds)
    records: list[Record] = []
    for scope in context.readable(call.scopes):
        if call.status == "active":
            records += yield from active_records(context, context.subject(scope), kinds)
        else:
            ledger = yield from context.subject(scope).ledger()
            records += [
                record
                for record in ledger.records(scope, context.hooks.now())
                if record.status == call.status and (kinds is None or record.kind in kinds)
            ]
    return tuple(records)


def active_records(context: Context, subject: Subject, kinds: frozenset[str] | None) -> Steps[list[Record]]:
    """Return the active records of a subject, in the order of the stream."""
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


def history(context: Context, call: History) -> Steps[tuple[Version, ...]]:
    """Return every value that a key has had, the oldest first."""
    folded_key = fold_key(call.key)
    name = context.readable_scope(call.scope)
    ledger = yield from context.subject(name).ledger()
    return tuple(
        Version(record, live.seq, *_end(closed, record))
        for (live, closed), record in zip(ledger.lives(), ledger.records(name, context.hooks.now()), strict=True)
        if folded_key and fold_key(record.key) == folded_key and call.kind in (None, record.kind)
    )


def _end(closed: Closed | None, record: Record) -> tuple[datetime | None, str]:
    """Return when and why a record ended, or ``(None, "")`` for an active record."""
    if closed is not None:
        return closed.at, closed.reason
    return (record.valid_until, record.status) if record.status == "expired" else (None, "")


def as_of(context: Context, call: AsOf) -> Steps[tuple[Record, ...]]:
    """Return the records that were active at a time, without those that were forgotten since."""
    records: list[Record] = []
    for scope in context.readable(call.scopes):
        ledger = yield from context.subject(scope).ledger(call.time)
        records += _active(ledger.state, scope, _set_of(call.kinds), call.time)
    return tuple(records)


def explain(context: Context, call: Explain) -> Steps[Explanation | None]:
    """Return a record of any status with its evidence and its history as lines. Returns None for an unknown id."""
    record, ledger = yield from _record_of_any_status(context, call.id)
    if record is None or ledger is None:
        return None
    lines = yield from _lines(context, record.evidence)
    story = tuple(story_line(event, record.id) for event in ledger.story.get(record.id, ()))
    live = ledger.state.active(record.id, context.hooks.now())
    trust = None if live is None else trust_in(ledger.state, live, context.hooks.now())
    origin = f"{source_name(record.source)}, on {record.created.date().isoformat()}"
    return Explanation(record, record.status, origin, lines, story, trust)


def find_record(context: Context, record_id: str) -> Steps[Record | None]:
    """Return the record with an id, active or not, or None. The whole stream of each scope is read."""
    record, _ = yield from _record_of_any_status(context, record_id)
    return record


def _record_of_any_status(context: Context, record_id: str) -> Steps[tuple[Record | None, Ledger | None]]:
    for scope in context.readable(None):
        ledger = yield from context.subject(scope).ledger()
        for record in ledger.records(scope, context.hooks.now()):
            if record.id == record_id:
                return record, ledger
    return None, None


def stats(context: Context, _: CountRecords) -> Steps[Stats]:
    """Return counts over all readable scopes."""
    active, closed, blocked = Counter[str](), Counter[str](), Counter[str]()
    events = parts = 0
    runs: set[RunId] = set()
    for scope in context.readable(None):
        ledger = yield from context.subject(scope).ledger()
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


def source_name(source: Source) -> str:
    """Return a source in words, such as ``run support/42``."""
    return f"{source.kind} {source.id}" if source.id else source.kind


def story_line(event: Event, record: str) -> str:
    """Return an event about a record as a line, such as ``2026-11-22T09:00:00Z remembered``."""
    data = event.data
    day = event.timestamp.isoformat(timespec="seconds").replace("+00:00", "Z")
    if isinstance(data, MemoryClosed):
        by = f" by {data.by}" if data.by and data.by != record else ""
        return f"{day} {data.status}{by}"
    if isinstance(data, MemoryRefreshed):
        return f"{day} stated again, confidence {data.confidence:g}"
    if isinstance(data, MemoryChanged):
        stars = f", {stars_of(data.importance)} stars" if "importance" in data.changed else ""
        return f"{day} changed: {', '.join(data.changed)}{stars}"
    return f"{day} remembered"


def _lines(context: Context, evidence: Sequence[Evidence]) -> Steps[tuple[EvidenceLine, ...]]:
    """Return one line for each evidence. Evidence may name any event, but only events of linked runs are shown."""
    subjects = [context.subject(scope) for scope in context.readable(None)]
    for subject in subjects:
        yield from subject.refresh()
    lines: list[EvidenceLine] = []
    for item in evidence:
        reason = _reason_not_to_show(subjects, item, item.seq)
        lines.append(EvidenceLine(item, reason=reason) if reason else (yield from _line(subjects, item)))
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
    """Return a line for an event of a linked run."""
    try:
        event = yield from _event_of(evidence)
    except CursorOutOfRange:
        return EvidenceLine(evidence, reason="not found")
    except RunExpired:
        return EvidenceLine(evidence, reason="expired")
    if event is None:
        return EvidenceLine(evidence, reason="deleted")
    reason = _reason_not_to_show(subjects, evidence, event.seq)
    if reason or isinstance(event.data, Redacted):
        return EvidenceLine(evidence, reason=reason or "erased")
    return EvidenceLine(evidence, _summary(event.data))


def _event_of(evidence: Evidence) -> Steps[Event | None]:
    """Return the event that the evidence names, or None. Its id decides, because a copy may renumber events."""
    if evidence.event_id:
        return (yield from find(*evidence.run_id, evidence.event_id))
    at_seq = yield from load(*evidence.run_id, evidence.seq - 1, limit=1)
    return at_seq.log[0] if at_seq.log and at_seq.log[0].seq == evidence.seq else None


def _summary(data: EventData) -> str:
    if isinstance(data, ToolCall):
        text = f"{data.tool_name} {data.payload_json}"
    elif isinstance(data, ToolResult):
        text = f"{data.tool_name}: {data.error_message or data.preview or data.result_json}"
    else:
        text = str(getattr(data, "message", None) or getattr(data, "text", None) or getattr(data, "note", ""))
    line = " ".join(text.split())
    shortened = line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 3] + "..."
    return f"{data.event_type.removesuffix('_message')}: {shortened}"
