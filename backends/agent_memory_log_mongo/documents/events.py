"""Converts events and meta to BSON subdocuments and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from bson.int64 import Int64

from agent_memory_log.backend_kit import Prepared
from agent_memory_log.errors import DecodeError
from agent_memory_log.events.event import Event, redacted_form
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log.events.payloads import Redacted, Redaction, UnknownPayload
from agent_memory_log.events.registry import decode_map, verbatim_key

_Document = dict[str, Any]

_INT64 = range(-(2**63), 2**63)
_CONVERTED = frozenset({Int64, dict, list})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STORED_EPOCH = _EPOCH.replace(tzinfo=None)
_MICROSECONDS = tuple(timedelta(microseconds=count) for count in range(1000))


def meta_fields(meta: Mapping[str, JsonValue]) -> _Document:
    """Return a run's meta as the field ``meta``, or ``meta_json`` if BSON does not support a value in it."""
    return {"meta": meta} if _fits_bson(meta) else {"meta_json": encode_json(meta).decode()}


def meta_of(document: _Document, where: str) -> dict[str, JsonValue]:
    """Return a run's meta from its first commit or from its document. Raises ``DecodeError``."""
    try:
        if "meta_json" in document:
            return msgspec.json.decode(document["meta_json"], type=dict[str, JsonValue])
        return cast("dict[str, JsonValue]", _plain(dict(document.get("meta") or {})))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise DecodeError(f"{where}: the run's meta cannot be read: {error}") from error


def event_document(event: Prepared) -> _Document:
    """Return an event as a subdocument of its commit."""
    data: _Document = decode_json(event.text)
    rest: _Document = {}
    for name, value in data.items():
        if type(value) is not str and not _fits_bson(value):
            rest[name] = value
    if rest or not _keys_fit_bson(data):
        # The order of a registered payload's fields has no meaning. An unknown payload must keep the order of its keys.
        if isinstance(event.data, UnknownPayload):
            rest = data
        else:
            rest |= {name: value for name, value in data.items() if not _keys_fit_bson((name,))}
        data = {name: value for name, value in data.items() if name not in rest}
    if event.verbatim is not None:
        data[cast("str", verbatim_key(event.type))] = event.verbatim
    timestamp = event.timestamp
    document: _Document = {"id": event.event_id, "type": event.type, "timestamp": timestamp, "data": data}
    if beyond := timestamp.microsecond % 1000:
        document["us"] = beyond
    left: _Document = {"data": rest} if rest else {}
    if event.labels:
        if _keys_fit_bson(event.labels):
            document["labels"] = event.labels
        else:
            left["labels"] = event.labels
    if left:
        document["json"] = encode_json(left).decode()
    return document


def _fits_bson(value: object) -> bool:
    """Return whether BSON can store a JSON value and a query path can reach every part of it."""
    kind = type(value)
    if kind is dict:
        keyed = cast("dict[str, object]", value)
        return _keys_fit_bson(keyed) and all(map(_fits_bson, keyed.values()))
    if kind is list:
        return all(map(_fits_bson, cast("list[object]", value)))
    return kind is not int or value in _INT64


def _keys_fit_bson(value: Iterable[str]) -> bool:
    for name in value:  # noqa: SIM110  # all() with a generator takes twice as long, and this runs for every appended event
        if not name or "." in name or name[0] == "$" or "\0" in name:
            return False
    return True


def decode_event(document: _Document, seq: int) -> Event:
    """Return an event from its subdocument. Raises ``DecodeError``, or any exception if the subdocument is damaged."""
    event_type = document["type"]
    data = document["data"]
    labels = document.get("labels")
    event_id = document["id"]
    if "json" in document:
        rest = msgspec.json.decode(document["json"], type=dict[str, _Document])
        data = {**data, **rest.get("data", {})}
        labels = rest.get("labels", labels)
    for name, value in data.items():
        if type(value) in _CONVERTED:
            data[name] = _plain(value)
    if type(event_type) is not str or type(event_id) is not str or type(labels or {}) is not dict:
        raise TypeError("its id, type or labels have the wrong type")
    return Event(event_type, time_of(document), decode_map(event_type, data), labels or {}, event_id, seq)


def time_of(document: _Document) -> datetime:
    """Return the timestamp of an event's subdocument. Raises any exception if the subdocument is damaged."""
    stamp: datetime = document["timestamp"]
    microseconds: int = document.get("us", 0)
    # A sum takes a fifth of the time of datetime.replace().
    return _EPOCH + (stamp - _STORED_EPOCH + _MICROSECONDS[microseconds])


def _plain(value: object) -> object:
    """Return the value with the driver's ``Int64`` replaced by ``int``. Maps and lists are changed in place."""
    kind = type(value)
    if kind is Int64:
        return int(cast("int", value))
    if kind is dict:
        keyed = cast("dict[str, object]", value)
        for name, item in keyed.items():
            if type(item) in _CONVERTED:
                keyed[name] = _plain(item)
    elif kind is list:
        listed = cast("list[object]", value)
        listed[:] = [_plain(item) for item in listed]
    return value


def decode_events(
    documents: Iterable[_Document],
    where: str,
    after: int,
    upper: int | None = None,
    types: frozenset[str] | None = None,
) -> list[Event]:
    """Return the events of commits in seq order.

    Args:
        documents: the commits in the order of their chain.
        where: the run's name for messages.
        after: the seq after which the events begin.
        upper: the last seq, or None for no limit.
        types: the types of the events, or None for all types.

    Raises:
        DecodeError: an event cannot be read; the message has its run and seq.
    """
    events: list[Event] = []
    for document in documents:
        seq = document["v"] - document["n"]
        for stored in document["events"]:
            seq += 1
            if seq <= after:
                continue
            if upper is not None and seq > upper:
                break
            try:
                if types is not None and stored.get("type") not in types:
                    continue
                events.append(decode_event(stored, seq))
            except Exception as error:  # a registered payload may raise any exception
                raise DecodeError(f"{where}: event {seq} cannot be read: {error}") from error
    return masked(events)


def masked(events: list[Event]) -> list[Event]:
    """Return all of the events. Redact each event that a marker among them names.

    A redaction appends its marker before it replaces the content, so a read can see one without the other. If two
    markers name the same event, the reason of the later one is used.
    """
    reasons: dict[int, str] = {}
    for event in events:
        if isinstance(event.data, Redaction):
            reasons.update(dict.fromkeys(event.data.seqs, event.data.reason))
    if not reasons:
        return events
    return [
        redacted_form(event, reasons[event.seq])
        if event.seq in reasons and not (isinstance(event.data, Redacted) and event.data.reason == reasons[event.seq])
        else event
        for event in events
    ]
