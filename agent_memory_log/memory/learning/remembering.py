"""Remembering and correcting by hand: arguments made into a candidate, and the outcome of writing it."""

from __future__ import annotations

import msgspec

from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.context import Context
from agent_memory_log.memory.learning.writing import change, write
from agent_memory_log.memory.operations import Get, Remember, Update
from agent_memory_log.memory.records.candidates import Candidate, checked
from agent_memory_log.memory.records.kinds import Fact, Preference, RecordData, kind_named
from agent_memory_log.memory.records.record import Source
from agent_memory_log.memory.records.reports import Outcome, WriteReport
from agent_memory_log.memory.search.reading import get
from agent_memory_log.memory.stream.payloads import Changes
from agent_memory_log.steps import Steps


def _data(call: Remember) -> RecordData:
    """What is to be remembered, given whole or as key and value. Raises ``InvalidArgument``."""
    key, value = call.key, call.value
    if call.data is not None:
        if key is not None or value is not None:
            raise InvalidArgument("say what to remember either as data or as key and value")
        return call.data
    if key is None or value is None:
        raise InvalidArgument("say what to remember: key and value, or data")
    if kind_named(call.kind) not in _KEY_AND_VALUE:
        found = describe(call.kind)
        raise InvalidArgument(f"kind must be preference or fact where key and value are given, found {found}")
    return Fact(key, value) if call.kind == Fact.kind else Preference(key, value)


_KEY_AND_VALUE = (Preference, Fact)


def remember(context: Context, call: Remember) -> Steps[Outcome]:
    """Write one candidate. Raises ``MemoryStopped`` when policy has something against it."""
    candidate = Candidate(
        data=_data(call),
        scope=call.scope or "",
        text=call.text,
        confidence=call.confidence,
        importance=call.importance,
        ttl_days=call.ttl_days,
        source=call.source or Source("user"),
        evidence=call.evidence,
        entities=call.entities,
        tags=call.tags,
        links=call.links,
    )
    report = yield from write(context, [candidate], origin="remember", phase="remember")
    return _only(report)


def update(context: Context, call: Update) -> Steps[Outcome]:
    """Change an active record; another value supersedes it."""
    known = yield from get(context, Get(call.id))
    if known is None:
        raise InvalidArgument(f"there is no active record {describe(call.id)} to update")
    data, value, text, ttl_days = known.data, call.value, call.text, call.ttl_days
    if value is not None:
        if not isinstance(data, (Preference, Fact)):
            raise InvalidArgument(f"a record of the kind {known.kind!r} has no value to change: change its text")
        data = msgspec.structs.replace(data, value=value)
    own_text = "" if known.key and known.text == known.data.describe() else known.text
    candidate = checked(
        Candidate(
            data=data,
            scope=known.scope,
            text=text if text is not None else "" if value is not None else own_text,
            confidence=known.confidence if call.confidence is None else call.confidence,
            importance=known.importance if call.importance is None else call.importance,
            ttl_days=ttl_days,
            valid_until=known.valid_until if ttl_days is None and value is None else None,
            source=known.source if value is None else type(known.source)("user"),
            evidence=() if value is not None else known.evidence,
            entities=known.entities if call.entities is None else call.entities,
            tags=known.tags if call.tags is None else call.tags,
            links=known.links if call.links is None else call.links,
        )
    )
    changes = Changes(
        text=None if text is None else candidate.text,
        confidence=None if call.confidence is None else candidate.confidence,
        importance=None if call.importance is None else candidate.importance,
        entities=None if call.entities is None else candidate.entities,
        tags=None if call.tags is None else candidate.tags,
        links=None if call.links is None else candidate.links,
        valid_until=None if ttl_days is None else candidate.end(context.hooks.now()),
    )
    report = yield from change(context, known.scope, known.id, candidate, changes)
    return _only(report)


def _only(report: WriteReport) -> Outcome:
    if report.status == "stopped":
        raise MemoryStopped(
            f"policy does not allow this to be remembered: {report.stop_reason}", reason=report.stop_reason
        )
    if not report.outcomes:
        raise InvalidArgument("the record is active no longer: another writer was faster")
    return report.outcomes[0]
