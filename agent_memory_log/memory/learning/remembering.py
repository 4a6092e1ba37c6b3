"""Remembering and correcting by hand: arguments made into a candidate, and the outcome of writing it."""

from __future__ import annotations

from typing import Any

import msgspec

from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.learning.writing import change, write
from agent_memory_log.memory.operations import Get, Remember, Update
from agent_memory_log.memory.records.candidates import Candidate, checked
from agent_memory_log.memory.records.kinds import Fact, Preference, RecordData, kind_named
from agent_memory_log.memory.records.record import ENVELOPE_FIELDS, Source, envelope_of
from agent_memory_log.memory.records.reports import Outcome, WriteReport
from agent_memory_log.memory.search.reading import get
from agent_memory_log.memory.stream.context import Context
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


_ENVELOPE = tuple(name for name in ENVELOPE_FIELDS if name in Remember.__struct_fields__ and name != "source")


def remember(context: Context, call: Remember) -> Steps[Outcome]:
    """Write one candidate. Raises ``MemoryStopped`` when policy has something against it."""
    candidate = Candidate(
        _data(call),
        call.scope or "",
        call.ttl_days,
        **{name: getattr(call, name) for name in _ENVELOPE},
        source=call.source or Source("user"),
    )
    report = yield from write(context, [candidate], origin="remember", phase="remember")
    return _only(report)


def update(context: Context, call: Update) -> Steps[Outcome]:
    """Change an active record; another value supersedes it."""
    changes: dict[str, Any] = {
        name: value for name in ENVELOPE_FIELDS if (value := getattr(call, name, None)) is not None
    }
    known = yield from get(context, Get(call.id))
    if known is None:
        raise InvalidArgument(f"there is no active record {describe(call.id)} to update")
    data, value, ttl_days = known.data, call.value, call.ttl_days
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
