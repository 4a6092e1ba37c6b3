"""The forms of events, snapshots, hits and the data of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory.records.kinds import RecordData, read_kind
from agent_memory_log.memory.records.plans import Plan
from agent_memory_log.memory.records.reports.outcomes import Hit, Hits
from agent_memory_log.service.wire.forms import FORMS, component, struct_form
from agent_memory_log.service.wire.scalars import (
    INTEGER,
    TEXT,
    TIME,
    Form,
    Schema,
    decode_json,
    decode_object,
    decode_text,
    wrong,
)
from agent_memory_log.snapshot import Snapshot

_EVENT: Schema = {
    "type": "object",
    "properties": {
        "type": TEXT,
        "timestamp": TIME,
        "data": {"type": "object"},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "event_id": TEXT,
        "seq": INTEGER,
    },
    "required": ["type", "timestamp", "data"],
}
_DATA: Schema = {
    "type": "object",
    "properties": {"kind": TEXT, "data": {"type": "object"}},
    "required": ["kind", "data"],
    "additionalProperties": False,
}


def _decode_event(value: object, path: str) -> Event:
    try:
        return Event.from_map(decode_object(value, path))
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from error


def _encode_data(data: RecordData) -> dict[str, JsonValue]:
    return {"kind": data.kind, "data": data.to_map()}


def _decode_data(value: object, path: str) -> RecordData:
    fields = decode_object(value, path)
    if fields.keys() != {"kind", "data"}:
        raise wrong(path, "an object with kind and data", value)
    kind, data = decode_text(fields["kind"], f"{path}.kind"), decode_object(fields["data"], f"{path}.data")
    return read_kind(kind, cast("Mapping[str, JsonValue]", decode_json(data, f"{path}.data")))


FORMS[Event] = Form(Event.to_map, _decode_event, component("Event", _EVENT))
FORMS[RecordData] = Form(_encode_data, _decode_data, component("RecordData", _DATA))


class _Snapshot(msgspec.Struct, frozen=True):
    """The fields of a ``Snapshot``. JSON objects have no integer keys, so ``redactions`` has texts."""

    agent: str
    run: str
    version: int
    last_seq: int
    after: int
    first_seq: int
    types: frozenset[str] | None
    meta: Mapping[str, Any]
    redactions: Mapping[str, str]
    log: tuple[Event, ...]


class _Hits(msgspec.Struct, frozen=True):
    """The fields of ``Hits``."""

    hits: tuple[Hit, ...]
    note: str
    plan: Plan
    scopes_to_embed: tuple[str, ...]


_snapshot = struct_form(_Snapshot, "Snapshot")
_hits = struct_form(_Hits, "Hits")


def _encode_snapshot(snapshot: Snapshot) -> object:
    fields: dict[str, Any] = {name: getattr(snapshot, name) for name in _Snapshot.__struct_fields__}
    fields["redactions"] = {str(seq): reason for seq, reason in snapshot.redactions.items()}
    return _snapshot.encode(_Snapshot(**fields))


def _decode_snapshot(value: object, path: str) -> Snapshot:
    fields: dict[str, Any] = msgspec.structs.asdict(_snapshot.decode(value, path))
    try:
        fields["redactions"] = {int(seq): reason for seq, reason in fields["redactions"].items()}
    except ValueError as error:
        raise InvalidArgument(f"{path}.redactions must have seqs as keys") from error
    return Snapshot(**fields)


def _encode_hits(hits: Hits) -> object:
    return _hits.encode(_Hits(tuple(hits), hits.note, hits.plan, hits.scopes_to_embed))


def _decode_hits(value: object, path: str) -> Hits:
    hits: _Hits = _hits.decode(value, path)
    return Hits(hits.hits, hits.note, hits.plan, hits.scopes_to_embed)


FORMS[Snapshot] = Form(_encode_snapshot, _decode_snapshot, _snapshot.schema)
FORMS[Hits] = Form(_encode_hits, _decode_hits, _hits.schema)
