"""Tells the changes of all records of a memory, and the story of one record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest

from agent_memory_log.events.event import Event
from agent_memory_log.memory.governance.ageing import strength_of
from agent_memory_log.memory.learning.deciding import SUPERSEDES
from agent_memory_log.memory.operations import AuditEvents, EvolutionEvents
from agent_memory_log.memory.records.record import MERGES, RESTORES, Evidence, Record
from agent_memory_log.memory.records.reports.upkeep import AuditEvent, Evolution, EvolutionEvent
from agent_memory_log.memory.search.reading import source_name, story_line
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.evidence import erased_evidence
from agent_memory_log.memory.stream.history import Ledger
from agent_memory_log.memory.stream.payloads import (
    MemoryBlocked,
    MemoryChanged,
    MemoryClosed,
    MemoryDerived,
    MemoryMaintained,
    MemoryRefreshed,
    MemoryRemembered,
    MemoryTombstone,
    MemoryUsed,
)
from agent_memory_log.memory.stream.state import Live
from agent_memory_log.steps import Steps
from agent_memory_log.wording import counted

MOST_SOURCES = 100
"""The most records whose stories are part of the story of one record."""

_ORIGINS = {SUPERSEDES: "replaces", MERGES: "says the same as", RESTORES: "brings back"}
"""The links to the records that a record was made from, in words."""

_LONGEST = 100
"""The most characters of a record's text in a story."""


def audit_events(context: Context, call: AuditEvents) -> Steps[tuple[AuditEvent, ...]]:
    """Return the latest changes, the newest first."""
    changes: list[AuditEvent] = []
    for scope in context.readable(call.scopes):
        ledger = yield from context.subject(scope).ledger()
        cited = {item for _, note in ledger.blocked for item in note.evidence}
        erased = yield from erased_evidence(cited)
        changes += [
            change
            for change in _changes(ledger, scope, erased)
            if (call.since is None or change.time >= call.since) and (call.until is None or change.time < call.until)
        ]
    return tuple(nlargest(call.limit, changes, key=lambda change: (change.time, change.seq)))


def _changes(ledger: Ledger, scope: str, erased: frozenset[Evidence]) -> Iterator[AuditEvent]:
    lives = {live.id: live for live, _ in ledger.lives()}
    for event in ledger.log:
        change = _change(event, scope, lives)
        evidence = event.data.evidence if isinstance(event.data, MemoryBlocked) else ()
        if change is not None and not (evidence and erased.issuperset(evidence)):
            yield change


def _change(event: Event, scope: str, lives: dict[str, Live]) -> AuditEvent | None:
    """Return an event as a change. Returns None if it is no change, or only about forgotten records."""
    if isinstance(event.data, (MemoryClosed, MemoryUsed)):
        return _change_of_several(event, scope, event.data, lives)
    return _change_of_memory(event, scope) or _change_of_one(event, scope, lives)


def _change_of_memory(event: Event, scope: str) -> AuditEvent | None:
    """Return an event that is about no stored record as a change."""
    data = event.data
    place = (event.timestamp, scope, event.seq)
    if isinstance(data, MemoryBlocked):
        action, by = "stopped" if data.stopped else "blocked", source_name(data.source)
        return AuditEvent(*place, action, (), data.kind, data.key, by, data.reason)
    if isinstance(data, MemoryDerived):
        run = f"run {data.agent}/{data.run}"
        return AuditEvent(*place, "derived", by=data.extractor, reason=f"{run} up to {data.seq}")
    if isinstance(data, MemoryMaintained):
        return AuditEvent(*place, "maintained", by="maintain", reason=data.step)
    if isinstance(data, MemoryTombstone):
        return AuditEvent(*place, "forgot", reason=counted(len(data.erased), "event"))
    return None


def _change_of_several(
    event: Event, scope: str, data: MemoryClosed | MemoryUsed, lives: dict[str, Live]
) -> AuditEvent | None:
    records = tuple(record for record in data.records if record in lives)
    if not records:
        return None
    place = (event.timestamp, scope, event.seq)
    only = lives[records[0]].memory if len(records) == 1 else None
    kind, key = ("", "") if only is None else (only.kind, only.key)
    if isinstance(data, MemoryUsed):
        return AuditEvent(*place, "used", records, kind, key, "context")
    return AuditEvent(*place, "closed", records, kind, key, "", f"{data.status}: {data.reason or data.status}")


def _change_of_one(event: Event, scope: str, lives: dict[str, Live]) -> AuditEvent | None:
    data = event.data
    if not isinstance(data, (MemoryRemembered, MemoryRefreshed, MemoryChanged)):
        return None
    record = event.event_id if isinstance(data, MemoryRemembered) else data.record
    live = lives.get(record)
    if live is None:
        return None
    action, reason = "remembered", ""
    by = source_name(live.memory.source)
    if isinstance(data, MemoryRefreshed):
        action, reason = "restated", f"{len(data.evidence)} more events as evidence"
        by = ", ".join(dict.fromkeys(f"run {item.agent}/{item.run}" for item in data.evidence)) or "caller"
    elif isinstance(data, MemoryChanged):
        action, reason, by = "changed", ", ".join(data.changed), "caller"
    return AuditEvent(
        event.timestamp, scope, event.seq, action, (record,), live.memory.kind, live.memory.key, by, reason
    )


def evolution_events(context: Context, call: EvolutionEvents) -> Steps[Evolution | None]:
    """Return the story of a record of any status. Returns None for an unknown id."""
    for scope in context.readable(None):
        ledger = yield from context.subject(scope).ledger()
        lives = {live.id: live for live, _ in ledger.lives()}
        if call.id not in lives:
            continue
        now = context.hooks.now()
        records = {record.id: record for record in ledger.records(scope, now)}
        chain = _chain(lives, call.id)
        steps = dict(sorted(_steps(ledger, records, chain)))
        strength = strength_of(lives[call.id], now)
        return Evolution(
            records[call.id],
            strength.layer,
            round(strength.retrievability, 3),
            round(strength.stability_days, 3),
            strength.used_on_days,
            tuple(chain[1:]),
            tuple(steps.values()),
        )
    return None


def _chain(lives: dict[str, Live], record: str) -> list[str]:
    """Return a record and the records that it was made from, directly or not, each once."""
    chain = [record]
    for origin in chain:  # grows during the loop
        targets = dict.fromkeys(link.target for link in lives[origin].memory.links if link.type in _ORIGINS)
        new = [target for target in targets if target in lives and target not in chain]
        chain += new[: max(0, MOST_SOURCES - len(chain))]
    return chain


def _steps(
    ledger: Ledger, records: dict[str, Record], chain: Sequence[str]
) -> Iterator[tuple[tuple[int, str], EvolutionEvent]]:
    """Yield the steps of the records, each with its place in the stream."""
    uses: dict[str, list[Event]] = {record: [] for record in chain}
    for event in ledger.log:
        for record in event.data.records if isinstance(event.data, MemoryUsed) else ():
            if record in uses:
                uses[record].append(event)
    for record, events in uses.items():
        for event in ledger.story.get(record, ()):
            yield (event.seq, record), EvolutionEvent(event.timestamp, record, _sentence(event, records, record))
        if events:
            first = f"{len(events)} times, first on {events[0].timestamp.date().isoformat()}"
            text = f"put into a context {'once' if len(events) == 1 else first}"
            yield (events[-1].seq, record), EvolutionEvent(events[-1].timestamp, record, text)


def _sentence(event: Event, records: dict[str, Record], record: str) -> str:
    data = event.data
    if isinstance(data, MemoryRemembered):
        words = f'remembered "{_short(records[record].text)}" from {source_name(data.source)}'
        origins = [
            f'{_ORIGINS[link.type]} "{_short(records[link.target].text)}"'
            for link in data.links
            if link.type in _ORIGINS and link.target in records
        ]
        return "; ".join([words, *origins])
    if isinstance(data, MemoryClosed):
        by = f' by "{_short(records[data.by].text)}"' if data.by in records else ""
        reason = f" ({data.reason})" if data.reason and data.reason != data.status else ""
        return f"{data.status}{by}{reason}"
    return story_line(event, record).partition(" ")[2]  # without the time


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
