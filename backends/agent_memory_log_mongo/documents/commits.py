"""What stands in the collections: events, commits and runs as BSON documents, and back.

A *commit* is what one append stored, in one document that never grows:

- ``k``: the run's key, a digest of agent and run; ``agent`` and ``run`` in clear beside it.
- ``s``: its place in the run's chain; unique with ``k``. The seq of its first event, plus one for every deletion of the
  run before it, since a deletion takes a place in the chain, but no seq.
- ``v``: the run's version after it. ``n``: how many events it holds; they have the last ``n`` seqs up to ``v``.
- ``g``: how often the run was deleted before it; ``b``: the version at the last deletion. Absent when zero.
- ``c``: when the run was created, in microseconds since the epoch; ``expires_at``, if it has an end, and ``end``, the
  same in microseconds.
- ``events``: the events, each with ``id``, ``type``, ``timestamp`` (a date; its milliseconds), ``us`` (the microseconds
  it has beyond those), ``data``, ``labels``. What of ``data`` or ``labels`` BSON or a query path cannot hold is JSON
  text in ``json``.
- ``t``, ``ts``: the types in it that reads seek by, each behind the run's key, and ``s`` again; absent when none is.
- ``meta`` (or ``meta_json``): in the commit that created the run.
- ``sums``: the checksums of the events and of the commit (``checksums.py``); absent in what version 1 of the schema
  stored.

A commit that was deleted keeps its place and holds nothing: ``n`` is 0 and ``events`` has one filler with an id of its
own, since ids are unique within a run. A *tombstone* marks the deletion itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any, cast

import msgspec
from bson.int64 import Int64
from bson.objectid import ObjectId

from agent_memory_log.backend_kit import Prepared
from agent_memory_log.errors import DecodeError, EventTooLarge, StoreCorrupt
from agent_memory_log.events.event import Event, from_microseconds, redacted_form
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log.events.payloads import Redacted, Redaction, UnknownPayload
from agent_memory_log.events.registry import decode_map, verbatim_key
from agent_memory_log_mongo.documents.checksums import REMEDY, encode_with_sums
from agent_memory_log_mongo.settings import MAX_DOCUMENT_BYTES

Document = dict[str, Any]
"""A document as the driver takes and gives it; what is read from one is checked as it is read."""

_COMMON_TYPES = frozenset({"assistant_message", "thinking", "tool_call", "tool_result"})
_INT64 = range(-(2**63), 2**63)


class Run(msgspec.Struct, frozen=True, gc=False):
    """A run by its ids and its key: 16 bytes, others for any other pair of ids."""

    agent: str
    run: str
    key: bytes

    @classmethod
    def of(cls, agent: str, run: str) -> Run:
        """The run with these ids."""
        key = hashlib.blake2b(f"{len(agent)}:{agent}{run}".encode(), digest_size=16).digest()
        return cls(str.__str__(agent), str.__str__(run), key)

    @property
    def cursor_tie(self) -> int:
        """A number that orders runs created in the same microsecond."""
        return int.from_bytes(self.key[:7], "big")

    @property
    def name(self) -> str:
        """The run as messages name it."""
        return f"{self.agent}/{self.run}"


def type_key(key: bytes, event_type: str) -> str:
    """What stands in ``t`` for a type that reads seek by."""
    return f"{key.hex()}:{event_type}"


def is_sought(event_type: str) -> bool:
    """Whether reads of this type seek an index; those of the commonest types walk the run instead."""
    return event_type not in _COMMON_TYPES


HEAD_FIELDS: dict[str, int] = dict.fromkeys(("k", "s", "v", "n", "g", "b", "c", "end"), 1)
"""The projection of a commit that ``head_of`` needs."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """The newest commit of a run, without its events: all that an append needs to know. See the module."""

    place: int = 0
    version: int = 0
    deletions: int = 0
    base: int = 0
    created: int = 0
    end: int | None = None
    count: int = 0

    @property
    def next_place(self) -> int:
        """The place in the chain of the next commit."""
        return self.version + self.deletions + 1

    @property
    def is_empty(self) -> bool:
        """Whether the run holds no events."""
        return self.version == self.base

    @property
    def is_blank(self) -> bool:
        """Whether the commit was emptied by a deletion whose tombstone came later."""
        return not self.count and not self.is_empty


def head_of(document: Document, where: str) -> Head:
    """The head that a commit is. Raises ``DecodeError``, and ``StoreCorrupt`` where its numbers cannot be together."""
    try:
        head = Head(
            _integer(document["s"]),
            _integer(document["v"]),
            _integer(document.get("g", 0)),
            _integer(document.get("b", 0)),
            _integer(document.get("c", 0)),
            None if (end := document.get("end")) is None else _integer(end),
            _integer(document["n"]),
        )
    except (KeyError, TypeError) as error:
        raise DecodeError(f"{where}: a commit is not as this library writes it: {error!r}") from error
    if head.place >= head.next_place:
        raise StoreCorrupt(
            f"{where}: the commit at place {head.place} of the chain has the version {head.version}, with which the "
            f"next is at place {head.next_place}: {REMEDY}"
        )
    return head


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"an integer was expected, found {value!r}")
    return int(value)


def commit_document(
    run: Run,
    commit_id: ObjectId,
    place: int,
    head: Head,
    batch: Sequence[Prepared],
    meta: Mapping[str, JsonValue] | None = None,
) -> Document:
    """The commit at ``place`` that stores ``batch`` behind ``head``; ``meta`` is given where it creates the run."""
    document: Document = {
        "_id": commit_id,
        "k": run.key,
        "s": place,
        "v": head.version + len(batch),
        "n": len(batch),
        "agent": run.agent,
        "run": run.run,
        "c": head.created,
    }
    if head.deletions:
        document["g"] = head.deletions
    if head.base:
        document["b"] = head.base
    if head.end is not None:
        document["end"] = head.end
        document["expires_at"] = from_microseconds(head.end)
    if meta is not None:
        document.update(meta_fields(meta))
    sought = sorted({event.type for event in batch if event.type not in _COMMON_TYPES})
    if sought:
        document["t"] = [type_key(run.key, event_type) for event_type in sought]
        document["ts"] = place
    document["events"] = [event_document(event) for event in batch]
    return document


def encode_commit(document: Document, what: str, instead: str) -> bytes:
    """A commit as BSON, with its sums. Raises ``EventTooLarge``, naming ``what`` it is and what to do ``instead``."""
    encoded = encode_with_sums(document)
    if len(encoded) > MAX_DOCUMENT_BYTES:
        raise EventTooLarge(
            f"{what} has {len(encoded):,} bytes with what goes with them; MongoDB holds {MAX_DOCUMENT_BYTES:,} in a "
            f"document: {instead}",
            size=len(encoded),
            limit=MAX_DOCUMENT_BYTES,
        )
    return encoded


def checked(documents: list[Document], where: str) -> list[Document]:
    """Commits with their events, as they were found, which others may have changed.

    Raises ``DecodeError``, and ``StoreCorrupt`` for one that has lost events or has too many.
    """
    for document in documents:
        count = document.get("n")
        events: list[object] | None = document.get("events")
        try:
            is_sound = isinstance(document["v"] - document["n"] - document["s"] - document.get("g", 0), int)
        except (KeyError, TypeError) as error:
            raise DecodeError(f"{where}: a commit is not as this library writes it: {error!r}") from error
        if not is_sound or type(events) is not list:
            raise DecodeError(f"{where}: a commit is not as this library writes it: its numbers or its events are none")
        if count and len(events) != count:
            raise StoreCorrupt(
                f"{where}: of the events {document['v'] - count + 1} to {document['v']}, which were appended together, "
                f"{len(events)} are there: {REMEDY}"
            )
    return documents


def tombstone_document(run: Run, commit_id: ObjectId, head: Head) -> Document:
    """The commit that marks the deletion of a run at ``head``."""
    return {
        "_id": commit_id,
        "k": run.key,
        "s": head.next_place,
        "v": head.version,
        "g": head.deletions + 1,
        "b": head.version,
        "n": 0,
        "agent": run.agent,
        "run": run.run,
        "events": [{"id": commit_id}],
    }


BLANKING = [
    {"$set": {"n": 0, "events": [{"id": "$_id"}]}},
    {"$unset": ["t", "ts", "meta", "meta_json", "sums"]},
]
"""The update that a deletion makes to every commit; each keeps one id, its own, as ids are unique within a run."""


def meta_fields(meta: Mapping[str, JsonValue]) -> Document:
    """A run's meta as the field that holds it."""
    return {"meta": meta} if _holds(meta) else {"meta_json": encode_json(meta).decode()}


def meta_of(document: Document, where: str) -> dict[str, JsonValue]:
    """A run's meta from the commit that created it, or from the run's document. Raises ``DecodeError``."""
    try:
        if "meta_json" in document:
            return msgspec.json.decode(document["meta_json"], type=dict[str, JsonValue])
        return cast("dict[str, JsonValue]", _plain(dict(document.get("meta") or {})))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise DecodeError(f"{where}: the run's meta cannot be read: {error}") from error


def event_document(event: Prepared) -> Document:
    """An event as a subdocument of its commit."""
    data: Document = decode_json(event.text)
    rest: Document = {}
    for name, value in data.items():
        if type(value) is not str and not _holds(value):
            rest[name] = value
    if rest or not _holds_keys(data):
        # A registered payload's fields have no order; the keys of an unknown one come back in theirs.
        rest = data if isinstance(event.data, UnknownPayload) else rest
        data = {name: value for name, value in data.items() if name not in rest}
    if event.verbatim is not None:
        data[cast("str", verbatim_key(event.type))] = event.verbatim
    timestamp = event.timestamp
    document: Document = {"id": event.event_id, "type": event.type, "timestamp": timestamp, "data": data}
    if beyond := timestamp.microsecond % 1000:
        document["us"] = beyond
    left: Document = {"data": rest} if rest else {}
    if event.labels:
        if _holds_keys(event.labels):
            document["labels"] = event.labels
        else:
            left["labels"] = event.labels
    if left:
        document["json"] = encode_json(left).decode()
    return document


def _holds(value: object) -> bool:
    """Whether BSON holds a JSON value, and a query path leads to all of it."""
    kind = type(value)
    if kind is dict:
        keyed = cast("dict[str, object]", value)
        return _holds_keys(keyed) and all(map(_holds, keyed.values()))
    if kind is list:
        return all(map(_holds, cast("list[object]", value)))
    return kind is not int or value in _INT64


def _holds_keys(value: Iterable[str]) -> bool:
    for name in value:  # noqa: SIM110  # all() with a generator takes twice as long, for each event that is appended
        if not name or "." in name or name[0] == "$" or "\0" in name:
            return False
    return True


def decode_event(document: Document, seq: int) -> Event:
    """An event from its subdocument. Raises ``DecodeError`` and whatever a damaged one leads to."""
    event_type = document["type"]
    data = document["data"]
    labels = document.get("labels")
    if "json" in document:
        rest = msgspec.json.decode(document["json"], type=dict[str, Document])
        data = {**data, **rest.get("data", {})}
        labels = rest.get("labels", labels)
    for name, value in data.items():
        if type(value) is not str:
            data[name] = _plain(value)
    if type(event_type) is not str or type(document["id"]) is not str or type(labels or {}) is not dict:
        raise TypeError("its id, type or labels are not as this library writes them")
    stamp = document["timestamp"]
    return Event(
        event_type,
        stamp.replace(microsecond=stamp.microsecond + document.get("us", 0), tzinfo=UTC),
        decode_map(event_type, data),
        labels or {},
        document["id"],
        seq,
    )


def _plain(value: object) -> object:
    """The value with the driver's own integers as plain ones."""
    kind = type(value)
    if kind is Int64:
        return int(cast("int", value))
    if kind is dict:
        keyed = cast("dict[str, object]", value)
        for name, item in keyed.items():
            if type(item) is not str:
                keyed[name] = _plain(item)
    elif kind is list:
        listed = cast("list[object]", value)
        listed[:] = [_plain(item) for item in listed]
    return value


def decode_events(
    documents: Iterable[Document],
    where: str,
    after: int,
    upper: int | None = None,
    wanted: frozenset[str] | None = None,
) -> list[Event]:
    """The events of commits from behind ``after`` to ``upper``, of the types ``wanted`` (None: all), in seq order.

    Raises ``DecodeError`` naming run and seq.
    """
    events: list[Event] = []
    for document in documents:
        seq = document["v"] - document["n"]
        for one in document["events"]:
            seq += 1
            if seq <= after:
                continue
            if upper is not None and seq > upper:
                break
            try:
                if wanted is not None and one.get("type") not in wanted:
                    continue
                events.append(decode_event(one, int(seq)))
            except Exception as error:  # a registered payload may raise anything of its own
                raise DecodeError(f"{where}: event {seq} cannot be read: {error}") from error
    return masked(events)


def masked(events: list[Event]) -> list[Event]:
    """``events``, those that a marker among them names as it says: a read may see a redaction half done.

    Its marker is appended before the content is taken away; and of two at once, the later marker's reason stands.
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
