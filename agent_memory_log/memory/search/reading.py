"""Reading memory: by id and key, as a list, by words, as history, as of a day, and why it is believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, RunExpired
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import EventData, Redacted, ToolCall, ToolResult
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.context import Context
from agent_memory_log.memory.operations import AsOf, CountRecords, Explain, Get, History, ListRecords
from agent_memory_log.memory.records.kinds import fold_key
from agent_memory_log.memory.records.record import Evidence, Record, stars_of
from agent_memory_log.memory.records.reports import EvidenceLine, Explanation, Stats, Version
from agent_memory_log.memory.stream.history import Closed, Ledger
from agent_memory_log.memory.stream.payloads import MemoryChanged, MemoryClosed, MemoryRefreshed
from agent_memory_log.memory.stream.state import State
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.steps import Steps, load

STATUSES: frozenset[str] = frozenset({"active", "superseded", "archived", "expired"})
_SHOWN = 200


def get(context: Context, call: Get) -> Steps[Record | None]:
    """The active record with an id, in any scope that may be read, or with a key."""
    id_, key = call.id, call.key
    if (id_ is None) == (key is None):
        raise InvalidArgument("say what to get: either id or key")
    if key is not None:
        name = context.one(call.scope)
        found = yield from _ask_one(context, name, lambda state, now: _by_key(state, key, call.kind, name, now))
        return found
    for name in context.readable(None if call.scope is None else [call.scope]):
        found = yield from _ask_one(context, name, lambda state, now: record_of(state, id_ or "", name, now))  # noqa: B023  # asked at once
        if found is not None:
            return found
    return None


def _ask_one(
    context: Context, scope: str, question: Callable[[State, datetime], Record | None]
) -> Steps[Record | None]:
    subject = context.subject(scope)
    yield from subject.refresh()
    now = context.hooks.now()
    return subject.ask(lambda state: question(state, now))


def record_of(state: State, record: str, scope: str, now: datetime) -> Record | None:
    """An active record that has not expired, by its id."""
    live = state.records.get(record)
    return None if live is None or live.is_expired(now) else live.record(scope, now)


def _by_key(state: State, key: str, kind: str | None, scope: str, now: datetime) -> Record | None:
    """The newest, where several kinds have the key and none was said."""
    if not key.strip():
        return None
    names = state.kinds if kind is None else {kind}
    found = [live for name in names if (live := state.find(name, key)) is not None and not live.is_expired(now)]
    return max(found, key=lambda live: (live.updated, live.seq)).record(scope, now) if found else None


def list_records(context: Context, call: ListRecords) -> Steps[tuple[Record, ...]]:
    """The records of a status, by scope, then as they came. Only active ones are at hand; others are looked up."""
    records: list[Record] = []
    for scope in context.readable(call.scopes):
        if call.status == "active":
            records.extend((yield from active(context, scope, call.kinds)))
            continue
        stream = yield from context.subject(scope).load_all()
        now = context.hooks.now()
        records.extend(
            one
            for one in Ledger(stream).records(scope, now)
            if one.status == call.status and (call.kinds is None or one.kind in call.kinds)
        )
    return tuple(records)


def active(context: Context, scope: str, kinds: Collection[str] | None) -> Steps[list[Record]]:
    """The active records of a scope, as they came."""
    return (yield from active_of(context, context.subject(scope), scope, kinds))


def active_of(context: Context, subject: Subject, scope: str, kinds: Collection[str] | None) -> Steps[list[Record]]:
    """The active records of a subject, which is a scope's."""
    yield from subject.refresh()
    now = context.hooks.now()
    return subject.ask(
        lambda state: [
            live.record(scope, now)
            for live in state.records.values()
            if not live.is_expired(now) and (kinds is None or live.told.kind in kinds)
        ]
    )


def history(context: Context, call: History) -> Steps[tuple[Version, ...]]:
    """Every value that a key has had, the oldest first."""
    wanted = fold_key(call.key)
    name = context.one(call.scope)
    stream = yield from context.subject(name).load_all()
    now = context.hooks.now()
    ledger = Ledger(stream)
    return tuple(
        Version(record, live.seq, *_end(closed, record))
        for (live, closed), record in zip(ledger.lives(), ledger.records(name, now), strict=True)
        if wanted and fold_key(record.key) == wanted and call.kind in (None, record.kind)
    )


def _end(closed: Closed | None, record: Record) -> tuple[datetime | None, str]:
    """When and why a record ended."""
    if closed is not None:
        return closed.at, closed.reason
    return (record.valid_until, record.status) if record.status == "expired" else (None, "")


def as_of(context: Context, call: AsOf) -> Steps[tuple[Record, ...]]:
    """What was active at a time, less what was forgotten since."""
    time, kinds = call.time, call.kinds
    records: list[Record] = []
    for scope in context.readable(call.scopes):
        stream = yield from context.subject(scope).load_all()
        ledger = Ledger(stream, until=time)
        records.extend(
            live.record(scope, time)
            for live in ledger.state.records.values()
            if not live.is_expired(time) and (kinds is None or live.told.kind in kinds)
        )
    return tuple(records)


def explain(context: Context, call: Explain) -> Steps[Explanation | None]:
    """The record, whatever its status, with its evidence as lines."""
    record = call.id
    for scope in context.readable(None):
        stream = yield from context.subject(scope).load_all()
        ledger = Ledger(stream)
        now = context.hooks.now()
        found = next((one for one in ledger.records(scope, now) if one.id == record), None)
        if found is not None:
            lines = yield from _lines(context, found.evidence)
            story = tuple(_told(event, record) for event in ledger.story.get(record, ()))
            return Explanation(found, found.status, _source(found), lines, story)
    return None


def stats(context: Context, _: CountRecords) -> Steps[Stats]:
    """Counts over all scopes that may be read."""
    active_kinds: Counter[str] = Counter()
    closed: Counter[str] = Counter()
    blocked: Counter[str] = Counter()
    events = parts = 0
    runs: set[tuple[str, str]] = set()
    for scope in context.readable(None):
        stream = yield from context.subject(scope).load_all()
        ledger = Ledger(stream)
        now = context.hooks.now()
        for record in ledger.records(scope, now):
            if record.status == "active":
                active_kinds[record.kind] += 1
            else:
                closed[record.status] += 1
        blocked.update(data.reason for _, data in ledger.blocked)
        events += len(stream.log)
        parts += len(ledger.state.chunks)
        runs |= ledger.state.positions.keys()
    return Stats(_sorted(active_kinds), _sorted(closed), _sorted(blocked), events, len(runs), parts)


def _sorted(counts: Counter[str]) -> Mapping[str, int]:
    return dict(sorted(counts.items()))


def _source(record: Record) -> str:
    named = f" {record.source.id}" if record.source.id else ""
    return f"{record.source.kind}{named}, on {record.created.date().isoformat()}"


def _told(event: Event, record: str) -> str:
    data = event.data
    day = event.timestamp.isoformat(timespec="seconds")
    if isinstance(data, MemoryClosed):
        by = f" by {data.by}" if data.by and data.by != record else ""
        return f"{day} {data.status}{by}"
    if isinstance(data, MemoryRefreshed):
        return f"{day} said again, confidence {data.confidence:g}"
    if isinstance(data, MemoryChanged):
        names = [name for name in data.changes.__struct_fields__ if getattr(data.changes, name) is not None]
        stars = f", {stars_of(data.changes.importance)} stars" if data.changes.importance is not None else ""
        return f"{day} changed: {', '.join(names)}{stars}"
    return f"{day} remembered"


def _lines(context: Context, evidence: Sequence[Evidence]) -> Steps[tuple[EvidenceLine, ...]]:
    """The events that a memory rests on, as lines. Evidence may name any event; only those of linked runs are read."""
    subjects = [context.subject(scope) for scope in context.readable(None)]
    for subject in subjects:
        yield from subject.refresh()
    lines: list[EvidenceLine] = []
    for place in evidence:
        reasons = {subject.ask(lambda state: _reason_not_to_show(state, place)) for subject in subjects}  # noqa: B023  # asked at once
        if "" in reasons:
            lines.append((yield from _line(place)))
        elif is_reserved(place.agent):
            lines.append(EvidenceLine(place, reason="imported from another memory"))
        else:
            lines.append(EvidenceLine(place, reason=min(reasons)))
    return tuple(lines)


def _reason_not_to_show(state: State, place: Evidence) -> str:
    if (place.agent, place.run) not in state.linked:
        return "not linked to this subject"
    return "" if state.may_find(place.agent, place.run, place.seq) else "forgotten"


def _line(evidence: Evidence) -> Steps[EvidenceLine]:
    """An event of a linked run, as a line."""
    try:
        run = yield from load(evidence.agent, evidence.run, evidence.seq - 1, limit=1)
    except CursorOutOfRange:
        return EvidenceLine(evidence, reason="not there")
    except RunExpired:
        return EvidenceLine(evidence, reason="expired")
    if not run.log or run.log[0].seq != evidence.seq:
        return EvidenceLine(evidence, reason="deleted")
    if isinstance(run.log[0].data, Redacted):
        return EvidenceLine(evidence, reason="erased")
    return EvidenceLine(evidence, _shown(run.log[0].data))


def _shown(data: EventData) -> str:
    if isinstance(data, ToolCall):
        text = f"{data.tool_name} {data.payload_json}"
    elif isinstance(data, ToolResult):
        text = f"{data.tool_name}: {data.error_message or data.preview or data.result_json}"
    else:
        text = str(getattr(data, "message", None) or getattr(data, "text", None) or getattr(data, "note", ""))
    line = " ".join(text.split())
    return f"{data.event_type.removesuffix('_message')}: {line if len(line) <= _SHOWN else line[: _SHOWN - 3] + '...'}"
