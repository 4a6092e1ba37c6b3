"""Archives a record at a caller's wish, and writes an archived record again. Nothing is erased."""

from __future__ import annotations

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import in_quotes
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.remembering import only_outcome
from agent_memory_log.memory.learning.writing import OWN_LINKS, decided, write
from agent_memory_log.memory.operations import Delete, Get, Restore
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.record import RESTORES, Link, Record, Status, envelope_of, own_text
from agent_memory_log.memory.records.reports.outcomes import Action, Outcome
from agent_memory_log.memory.search.reading import find_record, get
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.steps import Steps

DELETED = "deleted"
"""The reason of a record that a caller deleted."""


def delete(context: Context, call: Delete) -> Steps[Outcome]:
    """Archive an active record. A record that is not active any more stays as it is."""
    record = yield from get(context, Get(call.id))
    if record is not None:

        def decide(decisions: Decisions) -> bool:
            live = decisions.state.active(record.id, decisions.now)
            if live is not None:
                decisions.close([live], "archived", reason=DELETED)
            return bool(decisions.events)

        if (yield from decided(context, record.scope, decide)):
            return _outcome("archived", record, "archived", DELETED)
    closed = yield from _stored_record(context, call.id)
    return _outcome("unchanged", closed, closed.status, closed.status)


def restore(context: Context, call: Restore) -> Steps[Outcome]:
    """Write an archived record again, unless it was restored before."""
    record = yield from _stored_record(context, call.id)
    if record.status == "active":
        return _outcome("unchanged", record, "active", "active")
    if record.status != "archived":
        raise InvalidArgument(f"the record {in_quotes(call.id)} cannot be restored: its status is {record.status}")
    link = Link(RESTORES, record.id)
    subject = context.subject(record.scope)
    yield from subject.refresh()
    now = context.hooks.now()
    restored = subject.ask(lambda state: [live for live in state.records.values() if link in live.memory.links])
    if restored:
        return _outcome("unchanged", restored[0].record(record.scope, now), "active", RESTORES)
    report = yield from write(context, [repeated(record)], origin="remember", phase="restore", kept_links=OWN_LINKS)
    return only_outcome(report)


def repeated(record: Record) -> Candidate:
    """Return a candidate that repeats an archived record, and links to it."""
    links = (*record.links, Link(RESTORES, record.id))
    text, valid_from = own_text(record, record.data), record.valid_from or record.created
    return Candidate(record.data, record.scope, **envelope_of(record, text=text, valid_from=valid_from, links=links))


def _stored_record(context: Context, record_id: str) -> Steps[Record]:
    record = yield from find_record(context, record_id)
    if record is None:
        raise InvalidArgument(f"there is no record with the id {in_quotes(record_id)}: take the id from search or list")
    return record


def _outcome(action: Action, record: Record, status: Status, reason: str) -> Outcome:
    after = msgspec.structs.replace(record, status=status)
    return Outcome(action, record.scope, record.kind, record.key, after, reason=reason, evidence=record.evidence)
