"""Remembers and updates single records: builds a candidate from the arguments, writes it and returns the outcome."""

from __future__ import annotations

from typing import Any

import msgspec

from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.events.fields import describe, in_quotes
from agent_memory_log.memory.entities import entities_of
from agent_memory_log.memory.learning.deciding import SUPERSEDES
from agent_memory_log.memory.learning.writing import OWN_LINKS, change, write
from agent_memory_log.memory.operations import Add, AddFromDraft, Get, Remember, Update
from agent_memory_log.memory.records.candidates import Candidate, checked
from agent_memory_log.memory.records.kinds import Fact, Note, Preference, RecordData, kind_named
from agent_memory_log.memory.records.record import (
    DERIVED_FROM,
    ENVELOPE_FIELDS,
    MERGES,
    Link,
    Source,
    envelope_of,
    links_without,
    own_text,
)
from agent_memory_log.memory.records.reports.outcomes import Outcome, WriteReport
from agent_memory_log.memory.search.reading import find_record, get
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.steps import Steps

_OF_CALL = tuple(name for name in ENVELOPE_FIELDS if name in Remember.__struct_fields__ and name != "source")
_OF_NOTE = tuple(name for name in ENVELOPE_FIELDS if name in Add.__struct_fields__)
"""The fields that a record has directly from ``remember``, and from ``add``."""


def _data(call: Remember) -> RecordData:
    """Return the data to remember, from ``data`` or from key and value. Raises ``InvalidArgument``."""
    key, value = call.key, call.value
    if call.data is not None:
        if key is not None or value is not None:
            raise InvalidArgument("remember needs either data or key and value, got both")
        return call.data
    if key is None or value is None:
        raise InvalidArgument("remember needs key and value, or data")
    if kind_named(call.kind) not in {Preference, Fact}:
        raise InvalidArgument(f"expected kind preference or fact with key and value, got {describe(call.kind)}")
    return Fact(key, value) if call.kind == Fact.kind else Preference(key, value)


def remember(context: Context, call: Remember) -> Steps[Outcome]:
    """Write one candidate. Raises ``MemoryStopped`` if the policy stops the call."""
    candidate = Candidate(
        _data(call),
        call.scope or "",
        call.ttl_days,
        **{name: getattr(call, name) for name in _OF_CALL},
        source=call.source or Source("user"),
    )
    return (yield from _write_one(context, candidate, "remember"))


def add(context: Context, call: Add) -> Steps[Outcome]:
    """Write a note. Raises ``InvalidArgument`` if the record to supersede is not active."""
    links: list[Link] = []
    parent = call.causal_parent_id
    if parent is not None:
        is_active = (yield from get(context, Get(parent))) is not None
        if not is_active and (yield from find_record(context, parent)) is None:  # reads the whole history
            raise InvalidArgument(f"causal_parent_id: there is no record {in_quotes(parent)}")
        links.append(Link(DERIVED_FROM, parent))
    scope = call.scope or ""
    if call.supersedes_id is not None:
        replaced = yield from get(context, Get(call.supersedes_id))
        if replaced is None or scope not in ("", replaced.scope):
            raise InvalidArgument(f"supersedes_id: there is no active record {in_quotes(call.supersedes_id)}")
        scope = replaced.scope
        links.append(Link(SUPERSEDES, replaced.id))
    note = Candidate(
        Note(),
        scope,
        text=call.content,
        source=Source("user", call.source_id, 1.0 if call.trust_score is None else call.trust_score),
        entities=call.entity_refs,
        links=tuple(links),
        **{name: getattr(call, name) for name in _OF_NOTE},
    )
    return (yield from _write_one(context, note, "add"))


def add_from_draft(context: Context, call: AddFromDraft) -> Steps[Outcome]:
    """Write one candidate."""
    return (yield from _write_one(context, call.draft, "add"))


def _write_one(context: Context, candidate: Candidate, phase: str) -> Steps[Outcome]:
    return only_outcome((yield from write(context, [candidate], origin="remember", phase=phase)))


def update(context: Context, call: Update) -> Steps[Outcome]:
    """Change an active record. Another value supersedes it.

    Raises ``InvalidArgument`` if there is no such active record, or if its kind has no value to change.
    """
    changes: dict[str, Any] = {
        name: value for name in ENVELOPE_FIELDS if (value := getattr(call, name, None)) is not None
    }
    record = yield from get(context, Get(call.id))
    if record is None:
        raise InvalidArgument(
            f"there is no active record {in_quotes(call.id)} to update: ids come from search and list"
        )
    data, value, ttl_days = record.data, call.value, call.ttl_days
    if value is not None:
        if not isinstance(data, (Preference, Fact)):
            raise InvalidArgument(f"a record of kind {record.kind!r} has no value: change its text instead")
        data = msgspec.structs.replace(data, value=value)
    fields = envelope_of(record, text=own_text(record, record.data), valid_from=None)
    if record.entities == entities_of(record.text):  # they come from the old text
        fields["entities"] = ()
    if value is not None:  # the user states a new value, so the old evidence does not support it
        fields |= {"text": "", "source": Source("user"), "evidence": ()}
        fields["links"] = links_without(record.links, {MERGES})
    if value is not None or ttl_days is not None:
        fields["valid_until"] = None
    candidate = checked(Candidate(data, record.scope, ttl_days, **(fields | changes)))
    if "links" in changes:
        own = (link for link in fields["links"] if link.type in OWN_LINKS)
        links = (*links_without(candidate.links, OWN_LINKS), *own)
        candidate = msgspec.structs.replace(candidate, links=links)
    names = (*changes, "valid_until") if ttl_days is not None else tuple(changes)
    if "text" in changes and not candidate.entities:
        names = (*names, "entities")
    report = yield from change(context, record.scope, record.id, candidate, names)
    return only_outcome(report)


def only_outcome(report: WriteReport) -> Outcome:
    """Return the outcome of a write of one candidate. Raises ``MemoryStopped`` if the policy stopped the write."""
    if report.status == "stopped":
        raise MemoryStopped(f"the policy does not allow this memory: {report.stop_reason}", reason=report.stop_reason)
    if not report.outcomes:
        raise InvalidArgument("the record is no longer active: another writer replaced or forgot it")
    return report.outcomes[0]
