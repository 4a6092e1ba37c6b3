"""Remembering and correcting by hand: arguments made into a candidate, and the outcome of writing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.context import Context
from agent_memory_log.memory.learning.writing import change, write
from agent_memory_log.memory.records.candidates import Candidate, checked
from agent_memory_log.memory.records.kinds import Fact, Preference, RecordData, kind_named
from agent_memory_log.memory.records.record import Link, Source, envelope_of
from agent_memory_log.memory.records.reports import Outcome, WriteReport
from agent_memory_log.memory.search.reading import get
from agent_memory_log.steps import Steps


def data_of(data: RecordData | None, kind: str, key: str | None, value: str | None) -> RecordData:
    """What is to be remembered, given whole or as key and value. Raises ``InvalidArgument``."""
    if data is not None:
        if key is not None or value is not None:
            raise InvalidArgument("say what to remember either as data or as key and value")
        return data
    if key is None or value is None:
        raise InvalidArgument("say what to remember: key and value, or data")
    if not isinstance(kind, str) or kind_named(kind) not in _KEY_AND_VALUE:
        raise InvalidArgument(f"kind must be preference or fact where key and value are given, found {describe(kind)}")
    return Fact(key, value) if kind == Fact.kind else Preference(key, value)


_KEY_AND_VALUE = (Preference, Fact)


def remember(context: Context, candidate: Candidate) -> Steps[Outcome]:
    """Write one candidate. Raises ``MemoryStopped`` when policy has something against it."""
    report = yield from write(context, [candidate], origin="remember", phase="remember")
    return _only(report)


def update(
    context: Context,
    record: str,
    *,
    value: str | None,
    text: str | None,
    confidence: float | None,
    importance: float | None,
    ttl_days: float | None,
    tags: Sequence[str] | None,
    entities: Sequence[str] | None,
    links: Sequence[Link] | None,
) -> Steps[Outcome]:
    """Change an active record; another value supersedes it."""
    fields: dict[str, Any] = {"text": text, "confidence": confidence, "importance": importance}
    fields |= {"entities": entities, "tags": tags, "links": links}
    changes = {name: value for name, value in fields.items() if value is not None}
    known = yield from get(context, record=record, key=None, kind=None, scope=None)
    if known is None:
        raise InvalidArgument(f"there is no active record {describe(record)} to update")
    data = known.data
    if value is not None:
        if not isinstance(data, (Preference, Fact)):
            raise InvalidArgument(f"a record of the kind {known.kind!r} has no value to change: change its text")
        data = msgspec.structs.replace(data, value=value)
    own_text = "" if known.key and known.text == known.data.describe() else known.text
    fields = envelope_of(known, text=own_text, valid_from=None)
    if value is not None:  # said anew, by the user
        fields |= {"text": "", "source": Source("user"), "evidence": ()}
    if value is not None or ttl_days is not None:
        fields["valid_until"] = None
    candidate = checked(Candidate(data, known.scope, ttl_days, **(fields | changes)))
    names = (*changes, "valid_until") if ttl_days is not None else tuple(changes)
    report = yield from change(context, known.scope, known.id, candidate, names)
    return _only(report)


def _only(report: WriteReport) -> Outcome:
    if report.status == "stopped":
        raise MemoryStopped(
            f"policy does not allow this to be remembered: {report.stop_reason}", reason=report.stop_reason
        )
    if not report.outcomes:
        raise InvalidArgument("the record is active no longer: another writer was faster")
    return report.outcomes[0]
