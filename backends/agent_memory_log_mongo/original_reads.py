"""Reading the Go original's collection: what is asked of it, and what its documents mean. See ``original.py``.

It holds one document for each run: ``agent_id``, ``run_id``, ``events``, a list of ``{type, timestamp, data, labels}``
in append order, and beside them ``updated_at`` and, if somebody put it there, ``meta``. An event's seq is its place in
the list, and its id is derived from that, so that whoever copies the run again stores nothing twice.

Documents stay as the bytes they are until each event is decoded by itself, since what one event holds (Go writes text
that is not UTF-8, and dates of any year) must not hide the others.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from bson import BSON
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from agent_memory_log.backend_kit import check_after, check_ids, check_limit, check_listing, check_types
from agent_memory_log.errors import CursorOutOfRange, DecodeError, InvalidEvent, RunDeleted, SchemaTooNew
from agent_memory_log.events.event import Event, format_timestamp, from_microseconds
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_map
from agent_memory_log.events.payloads import EventType
from agent_memory_log.events.registry import payload_types
from agent_memory_log.snapshot import Snapshot, redactions_in
from agent_memory_log.store import RunInfo, RunPage
from agent_memory_log.transfer.importing import derived_event_id
from agent_memory_log_mongo.documents import Document
from agent_memory_log_mongo.replies import BYTES
from agent_memory_log_mongo.steps import Count, News, Settled, Steps, ask, find

_KIND = "go-original"
_LATER_COLLECTION = "_events"
"""What a later release appends to the collection's name for the one where it keeps each append by itself."""

_REDACTION = EventType.REDACTION.value
_FOLLOW_EVENTS = 64
_MOST_RUNS = 10_000
_MOST_EVENTS = 2**31 - 1
"""More than a document can hold, and the largest number that ``$slice`` takes."""

_VALUES: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)

_IS_LIST: Document = {"$isArray": "$events"}
_COUNT: Document = {
    # What should be a list and is none counts as one event, which cannot be read: so it is listed, and not passed over.
    "$cond": [_IS_LIST, {"$size": "$events"}, {"$cond": [{"$eq": [{"$ifNull": ["$events", None]}, None]}, 0, 1]}]
}
_FIRST: Document = {
    "$let": {
        "vars": {"event": {"$cond": [_IS_LIST, {"$arrayElemAt": ["$events", 0]}, None]}},
        "in": "$$event.timestamp",
    }
}


class Source(msgspec.Struct, frozen=True):
    """The collection, and the read concern of what is asked of it."""

    collection: str
    level: str


class FoundRun(msgspec.Struct, frozen=True):
    """What was read of a run: how many events it has, those asked for, still as bytes, and its meta."""

    agent: str
    run: str
    count: int = 0
    items: Sequence[object] = ()
    meta: Mapping[str, JsonValue] = {}

    @property
    def name(self) -> str:
        """The run as messages name it."""
        return f"{self.agent}/{self.run}"

    def events(self, after: int, wanted: frozenset[str] | None = None) -> Iterator[Event]:
        """The events read, of which the first has the seq after ``after``; of the types ``wanted`` (None: all).

        Raises ``DecodeError`` naming run and seq.
        """
        for seq, item in enumerate(self.items, after + 1):
            try:
                event = _event(item, self.run, seq, wanted)
            except Exception as error:  # a registered payload may raise anything of its own
                raise DecodeError(f"{self.name}: event {seq} cannot be read: {error}") from error
            if event is not None:
                yield event


def _event(item: object, run: str, seq: int, wanted: frozenset[str] | None) -> Event | None:
    """The event at ``seq``; None when it is of no type ``wanted``."""
    if not isinstance(item, RawBSONDocument):
        raise DecodeError(f"an event must be a map, found {describe(item)}")
    if wanted is not None and isinstance(item.get("type"), str) and item["type"] not in wanted:
        return None
    found = BSON(item.raw).decode(_VALUES)
    data = found.get("data")
    if isinstance(data, dict):
        # A known payload's own fields may be bytes: base64 of some, JSON text of others. Its reader knows which; but
        # ``structured`` holds any value.
        raw = found.get("type") in payload_types()
        fields = cast("dict[str, object]", data)
        found["data"] = {
            name: value if raw and name != "structured" and isinstance(value, bytes) else _plain(value)
            for name, value in fields.items()
        }
    event = Event.from_map(found)
    return msgspec.structs.replace(event, event_id=derived_event_id(_KIND, run, seq), seq=seq)


def _plain(value: object) -> object:
    """A value as the original writes it in JSON, where BSON has a type of its own for it."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, datetime):
        return format_timestamp(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, ObjectId) else value


def _meta(document: Mapping[str, object], where: str) -> dict[str, JsonValue]:
    """A run's meta. Raises ``DecodeError``."""
    found = document.get("meta")
    if found is None:
        return {}
    if not isinstance(found, RawBSONDocument):
        raise DecodeError(f"{where}: the run's meta must be a map, found {describe(found)}")
    try:
        return own_map(cast("dict[str, object]", _plain(BSON(found.raw).decode(_VALUES))))
    except NotJson as error:
        raise DecodeError(f"{where}: the run's meta{error.path} {error}") from error
    except BSONError as error:
        raise DecodeError(f"{where}: the run's meta cannot be read: {error}") from error


def _aggregate(source: Source, pipeline: Sequence[Document], most: int) -> Steps[tuple[list[Document], bool]]:
    """What a pipeline brings, as far as one reply holds it, and whether there is more."""
    command: Document = {"aggregate": source.collection, "pipeline": pipeline, "cursor": {"batchSize": most}}
    reply = yield from ask({**command, "readConcern": {"level": source.level}})
    cursor = reply["cursor"]
    if cursor["id"]:
        yield from ask({"killCursors": source.collection, "cursors": [cursor["id"]]})
    return list(cursor["firstBatch"]), bool(cursor["id"])


def check(source: Source) -> Steps[None]:
    """Look whether this is all there is of the runs. Raises ``SchemaTooNew``."""
    later = source.collection + _LATER_COLLECTION
    found = yield from find(later, {}, source.level, limit=1, fields={"agent_id": 1, "run_id": 1, "created_at": 1})
    if found and {"agent_id", "run_id", "created_at"} <= found[0].keys():
        raise SchemaTooNew(
            f"the collection {later} holds what a later release of the original than v1.0.3 appended, each append in a "
            "document of its own; this release does not read it, and without it the runs would be cut short",
            found=2,
            known=1,
        )


def _read(source: Source, agent: str, run: str, after: int, limit: int | None) -> Steps[FoundRun]:
    """A run with at most ``limit`` events after ``after``, all of them for None. Raises ``DecodeError``."""
    fields: Document = {"_id": 0, "meta": 1, "count": _COUNT}
    if limit != 0:
        window = {"$slice": ["$events", min(after, _MOST_EVENTS), min(limit or _MOST_EVENTS, _MOST_EVENTS)]}
        fields["events"] = {"$cond": [_IS_LIST, window, "$events"]}
    pipeline: list[Document] = [{"$match": {"agent_id": agent, "run_id": run}}, {"$limit": 2}, {"$project": fields}]
    documents, more = yield from _aggregate(source, pipeline, 2)
    if not documents:
        return FoundRun(agent, run)
    if len(documents) > 1 or more:
        raise DecodeError(
            f"{agent}/{run}: the collection {source.collection} has several documents of this run, of which the "
            "original reads whichever it meets; its unique index on agent_id and run_id is missing"
        )
    (document,) = documents
    found = document.get("events")
    items = cast("list[object]", found if isinstance(found, list) else [] if found is None or after else [found])
    return FoundRun(agent, run, int(document["count"]), items, _meta(document, f"{agent}/{run}"))


def load(
    source: Source, agent: str, run: str, after: int, types: Iterable[str] | None, limit: int | None
) -> Steps[Snapshot]:
    """See ``Store.load_run``."""
    check_ids(agent, run)
    check_after(after)
    check_limit(limit)
    chosen = check_types(types)
    # Asked for no type, nothing can fail that is about one event.
    found = yield from _read(source, agent, run, after, limit if chosen is None else None if chosen else 0)
    if after > found.count:
        raise _beyond(found, after)
    last_seq = found.count
    log: list[Event] = []
    markers: list[Event] = []
    if chosen is None:
        log = markers = list(found.events(after))
        last_seq = after + len(found.items)
    elif chosen:
        for event in found.events(after, chosen | {_REDACTION}):
            if event.type == _REDACTION:
                markers.append(event)
            if event.type in chosen:
                log.append(event)
            if len(log) == limit:
                last_seq = event.seq
                break
    return Snapshot(
        agent,
        run,
        log,
        version=found.count,
        last_seq=last_seq,
        meta=found.meta,
        after=after,
        types=chosen,
        redactions=redactions_in(markers),
    )


def _beyond(found: FoundRun, after: int) -> CursorOutOfRange:
    return CursorOutOfRange(f"{found.name} has {found.count} events; there is nothing after seq {after} yet")


def follow(source: Source, agent: str, run: str, after: int) -> Steps[None]:
    """See ``Store.follow``: the events are among the requests, for whoever runs this to hand out."""
    check_ids(agent, run)
    check_after(after)
    settled = False
    while True:
        seen: int = yield Count(b"")
        found = yield from _read(source, agent, run, after, _FOLLOW_EVENTS)
        if after > found.count and settled:
            raise RunDeleted(f"{found.name} was cut to {found.count} events while it was followed, after seq {after}")
        if after > found.count:
            raise _beyond(found, after)
        if not settled:
            settled = True
            yield Settled()
        for event in found.events(after):
            after = event.seq
            yield event
        if not found.items:
            yield News(b"", seen)


def list_runs(
    source: Source, agent: str | None, limit: int, cursor: str | None, include_reserved: bool
) -> Steps[RunPage]:
    """See ``Store.list_runs``."""
    check_listing(agent, limit)
    where: Document = {}
    if agent is not None:
        where["agent_id"] = agent
    elif not include_reserved:
        where["agent_id"] = {"$not": {"$gte": "@", "$lt": "A"}}  # all that begins with an @ lies between
    if cursor is not None:
        # Unlike a plain $lt, this one compares ids of any two types.
        where["$expr"] = {"$lt": ["$_id", {"$literal": _decode_cursor(cursor)}]}
    limit = min(limit, _MOST_RUNS)
    pipeline: list[Document] = [
        {"$match": where},
        {"$sort": {"_id": -1}},
        {"$project": {"agent_id": 1, "run_id": 1, "meta": 1, "count": _COUNT, "first": _FIRST}},
        {"$match": {"count": {"$gt": 0}}},
        {"$limit": limit + 1},
    ]
    documents, more = yield from _aggregate(source, pipeline, limit + 1)
    page = documents[:limit]
    has_next = more or len(documents) > limit
    return RunPage(
        tuple(_info(source, document) for document in page),
        _encode_cursor(page[-1]["_id"]) if page and has_next else None,
    )


def _info(source: Source, document: Document) -> RunInfo:
    """A run as it is listed. Raises ``DecodeError`` for a document that names none."""
    agent, run = document.get("agent_id"), document.get("run_id")
    try:
        check_ids(cast("str", agent), cast("str", run))
    except InvalidEvent as error:
        raise DecodeError(
            f"{source.collection}: the document with the _id {describe(document['_id'])} names no run: {error}"
        ) from error
    where = f"{agent}/{run}"
    try:
        meta = _meta(document, where)
    except DecodeError:
        meta = {}  # reading the run says so; the others are to be listed all the same
    count = int(document["count"])
    return RunInfo(cast("str", agent), cast("str", run), count, _created(document), count, meta)


def _created(document: Document) -> datetime:
    """When the run's document was made, which its id says; of one with another kind of id, when its first event was."""
    made = document["_id"]
    first = made.generation_time if isinstance(made, ObjectId) else document.get("first")
    return first.astimezone(UTC) if isinstance(first, datetime) else from_microseconds(0)


def _encode_cursor(place: object) -> str:
    return base64.urlsafe_b64encode(BSON.encode({"_id": place})).decode()


def _decode_cursor(cursor: str) -> object:
    try:
        return BSON(base64.urlsafe_b64decode(cursor)).decode(BYTES)["_id"]
    except (binascii.Error, BSONError, KeyError, ValueError, TypeError) as error:
        raise CursorOutOfRange(f"{cursor!r} is not a cursor that list_runs returned") from error
