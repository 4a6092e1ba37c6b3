"""Converts commits and run heads to BSON documents and back.

A *commit* is one document with all events of one append. It never grows:

- ``k``: the run's key, a digest of the agent and the run. ``agent`` and ``run`` have the ids in clear text.
- ``s``: the commit's position in the run's chain, unique together with ``k``. It is the seq of the first event, plus
  one for every earlier deletion of the run. A deletion uses a position in the chain, but no seq.
- ``v``: the run's version after the commit. ``n``: its number of events, which have the last ``n`` seqs up to ``v``.
- ``g``: the number of earlier deletions of the run. ``b``: the version at the last deletion. Both are absent if zero.
- ``c``: the creation time of the run in microseconds since 1970. ``end``: the run's end, also in microseconds, and
  ``expires_at``, the same as a date. Both are absent if the run has no end.
- ``events``: the events, each with ``id``, ``type``, ``timestamp`` (a date, which has milliseconds), ``us`` (the
  further microseconds), ``data`` and ``labels``. ``json`` has, as JSON text, the parts of ``data`` and ``labels`` that
  BSON or a query path does not support.
- ``t``: the indexed event types in the commit, each after the run's key. ``ts``: ``s`` again. Both are absent if the
  commit has no such type.
- ``meta`` or ``meta_json``: the run's meta, only in the commit that created the run.
- ``sums``: the checksums of the events and of the commit (``checksums.py``). Version 1 of the schema had none.

A deletion empties the earlier commits, and they keep their positions. ``n`` is 0 then, and ``events`` has one filler
with its own id, because ids are unique within a run. A *tombstone* is the commit that marks the deletion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from bson.objectid import ObjectId

from agent_memory_log.backend_kit import Prepared
from agent_memory_log.errors import DecodeError, EventTooLarge, StoreCorrupt
from agent_memory_log.events.event import from_microseconds
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log_mongo.documents.checksums import REMEDY, encode_with_sums
from agent_memory_log_mongo.documents.events import event_document, meta_fields
from agent_memory_log_mongo.settings import MAX_DOCUMENT_BYTES

Document = dict[str, Any]
"""A document of the driver. Its fields have no static types, so readers check each value."""

LAST_SEQ = 2**53 - 1
"""The largest seq. JSON and JavaScript represent integers exactly up to this number."""

_COMMON_TYPES = frozenset({"assistant_message", "thinking", "tool_call", "tool_result"})


class Run(msgspec.Struct, frozen=True, gc=False):
    """The ids of a run and its key, a 16-byte digest of the ids.

    Attributes:
        agent: the agent id.
        run: the run id.
        key: the key, which is the field ``k`` of a commit and the ``_id`` of the run's document.
    """

    agent: str
    run: str
    key: bytes

    @classmethod
    def of(cls, agent: str, run: str) -> Run:
        """Return the run with these ids."""
        key = hashlib.blake2b(f"{len(agent)}:{agent}{run}".encode(), digest_size=16).digest()
        return cls(str.__str__(agent), str.__str__(run), key)

    @property
    def cursor_tie(self) -> int:
        """A number that orders runs created in the same microsecond."""
        return int.from_bytes(self.key[:7], "big")

    @property
    def name(self) -> str:
        """The run's name in messages, ``agent/run``."""
        return f"{self.agent}/{self.run}"


def type_key(key: bytes, event_type: str) -> str:
    """Return the entry of the field ``t`` for an indexed event type."""
    return f"{key.hex()}:{event_type}"


def is_sought(event_type: str) -> bool:
    """Return whether reads of this type use an index. Reads of the most common types scan the run instead."""
    return event_type not in _COMMON_TYPES


HEAD_FIELDS: dict[str, int] = dict.fromkeys(("k", "s", "v", "n", "g", "b", "c", "end"), 1)
"""The projection of a commit that ``head_of`` needs."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """A run's newest commit without its events. It has everything that the next append needs.

    Attributes:
        place: the commit's position in the run's chain (``s``).
        version: the run's version (``v``).
        deletions: the number of deletions of the run (``g``).
        base: the version at the last deletion (``b``).
        created: the creation time in microseconds since 1970 (``c``).
        end: the run's end in microseconds since 1970, or None.
        count: the number of events in the commit (``n``).
    """

    place: int = 0
    version: int = 0
    deletions: int = 0
    base: int = 0
    created: int = 0
    end: int | None = None
    count: int = 0

    @property
    def next_place(self) -> int:
        """The position of the next commit in the chain."""
        return self.version + self.deletions + 1

    @property
    def is_empty(self) -> bool:
        """True if the run has no events."""
        return self.version == self.base

    @property
    def is_blank(self) -> bool:
        """True if a deletion emptied this commit; its tombstone has a later position."""
        return not self.count and not self.is_empty


def head_of(document: Document, where: str) -> Head:
    """Return the head of a commit. Raises ``DecodeError``, or ``StoreCorrupt`` if its numbers contradict each other."""
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
        raise DecodeError(f"{where}: a commit has missing or invalid fields: {error!r}") from error
    if head.place >= head.next_place:
        raise StoreCorrupt(
            f"{where}: the commit at position {head.place} of the chain has version {head.version}, which does not "
            f"fit, because the next commit would be at position {head.next_place}: {REMEDY}"
        )
    return head


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected an integer, got {value!r}")
    return int(value)


def commit_document(
    run: Run,
    commit_id: ObjectId,
    place: int,
    head: Head,
    batch: Sequence[Prepared],
    meta: Mapping[str, JsonValue] | None = None,
) -> tuple[Document, Document]:
    """Return the commit that stores ``batch`` after ``head``, in the two parts that ``encode_with_sums`` takes.

    Args:
        run: the run.
        commit_id: the ``_id`` of the document.
        place: the position in the run's chain.
        head: the run's head before the commit.
        batch: the new events.
        meta: the run's meta if the commit creates the run, else None.
    """
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
    events: Document = {"events": [event_document(event) for event in batch]}
    indexed_types = sorted({event.type for event in batch if event.type not in _COMMON_TYPES})
    if indexed_types:
        events["t"] = [type_key(run.key, event_type) for event_type in indexed_types]
        events["ts"] = place
    return document, events


def encode_commit(parts: tuple[Document, Document], description: str, remedy: str) -> bytes:
    """Return a commit as BSON with its checksums.

    Raises ``EventTooLarge`` if it is above MongoDB's limit. The message has the ``description`` of the commit and the
    ``remedy``.
    """
    encoded = encode_with_sums(*parts)
    if len(encoded) > MAX_DOCUMENT_BYTES:
        raise EventTooLarge(
            f"{description} needs a document of {len(encoded):,} bytes; MongoDB's limit is {MAX_DOCUMENT_BYTES:,}: "
            f"{remedy}",
            size=len(encoded),
            limit=MAX_DOCUMENT_BYTES,
        )
    return encoded


def checked(documents: list[Document], where: str) -> list[Document]:
    """Return the commits after checking their numbers and the number of their events.

    Raises ``DecodeError`` for invalid fields, and ``StoreCorrupt`` for a commit with too few or too many events.
    """
    for document in documents:
        count = document.get("n")
        events: list[object] | None = document.get("events")
        try:
            is_sound = isinstance(document["v"] - document["n"] - document["s"] - document.get("g", 0), int)
        except (KeyError, TypeError) as error:
            raise DecodeError(f"{where}: a commit has missing or invalid fields: {error!r}") from error
        if not is_sound or type(events) is not list:
            raise DecodeError(f"{where}: a commit has missing or invalid fields: its numbers or its events")
        if count and len(events) != count:
            raise StoreCorrupt(
                f"{where}: the commit of the events {document['v'] - count + 1} to {document['v']} has {len(events)} "
                f"events instead of {count}: {REMEDY}"
            )
    return documents


def tombstone_document(run: Run, commit_id: ObjectId, head: Head) -> tuple[Document, Document]:
    """Return the commit that marks the deletion of a run after ``head``, in the same two parts."""
    document: Document = {
        "_id": commit_id,
        "k": run.key,
        "s": head.next_place,
        "v": head.version,
        "g": head.deletions + 1,
        "b": head.version,
        "n": 0,
        "agent": run.agent,
        "run": run.run,
    }
    return document, {"events": [{"id": commit_id}]}


BLANKING = [
    {"$set": {"n": 0, "events": [{"id": "$_id"}]}},
    {"$unset": ["t", "ts", "meta", "meta_json", "sums"]},
]
"""The update by which a deletion empties a commit. The filler has the commit's id, so it is unique in the run."""
