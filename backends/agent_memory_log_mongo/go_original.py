"""What the Go original (goa-ai / loom-mcp, v1.0.3) keeps in MongoDB, read for an import. Nothing there is changed.

Its collection holds one document for each run: ``agent_id``, ``run_id``, ``events``, a list of ``{type, timestamp,
data, labels}`` in append order, and beside them ``updated_at`` and, if somebody put it there, ``meta``. An event's seq
is its place in the list, and its id is derived from that, so that a second import stores nothing twice.

Documents stay bytes until each event is decoded by itself, since what one event holds (Go writes text that is not
UTF-8, and dates of any year) must not hide the others.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Iterator, Mapping
from datetime import datetime
from typing import Any, cast

import msgspec
import pymongo
from bson import BSON
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from agent_memory_log.backend_kit import check_ids
from agent_memory_log.errors import AgentMemoryLogError, DecodeError, InvalidEvent, SchemaTooNew
from agent_memory_log.events.event import Event, format_timestamp
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_map
from agent_memory_log.events.registry import payload_types
from agent_memory_log.transfer.importing import derived_event_id
from agent_memory_log_mongo.engine.call import BYTES
from agent_memory_log_mongo.engine.driver_errors import translated
from agent_memory_log_mongo.settings import Settings

DEFAULT_COLLECTION = "agent_memory"
"""Where the original keeps its runs unless it is configured otherwise."""

_LATER_COLLECTION = "_events"
"""What a later release appends to the collection's name for the one where it keeps each append by itself."""

_KIND = "go-original"
_DECODED: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


class GoOriginalRun(msgspec.Struct, frozen=True):
    """A ``SourceRun``: one document of the original's, its events and meta not decoded yet."""

    agent: str
    run: str
    items: list[object]
    stored_meta: object = None
    problem: str = ""

    def meta(self) -> dict[str, JsonValue]:
        """The run's meta. Raises ``DecodeError``, also where the whole document cannot be taken for the run's."""
        where = f"{self.agent}/{self.run}"
        if self.problem:
            raise DecodeError(f"{where}: {self.problem}")
        if self.stored_meta is None:
            return {}
        if not isinstance(self.stored_meta, RawBSONDocument):
            raise DecodeError(f"{where}: the run's meta must be a map, found {describe(self.stored_meta)}")
        try:
            return own_map(cast("dict[str, object]", _as_json(BSON(self.stored_meta.raw).decode(_DECODED))))
        except NotJson as error:
            raise DecodeError(f"{where}: the run's meta{error.path} {error}") from error
        except (BSONError, AgentMemoryLogError) as error:
            raise DecodeError(f"{where}: the run's meta cannot be read: {error}") from error

    def events(self) -> Iterator[Event]:
        """The run's events. Raises ``DecodeError`` naming run and seq."""
        for seq, item in enumerate(self.items, 1):
            try:
                event = _decode_event(item)
            except Exception as error:  # a registered payload may raise anything of its own
                raise DecodeError(f"{self.agent}/{self.run}: event {seq} cannot be read: {error}") from error
            yield msgspec.structs.replace(event, event_id=derived_event_id(_KIND, self.run, seq), seq=seq)


def _decode_event(item: object) -> Event:
    if not isinstance(item, RawBSONDocument):
        raise DecodeError(f"an event must be a map, found {describe(item)}")
    fields = BSON(item.raw).decode(_DECODED)
    data = fields.get("data")
    if isinstance(data, dict):
        # A known payload's own fields may be bytes: base64 of some, JSON text of others. Its reader knows which; but
        # ``structured`` holds any value.
        is_known = fields.get("type") in payload_types()
        fields["data"] = {
            name: value if is_known and name != "structured" and isinstance(value, bytes) else _as_json(value)
            for name, value in cast("dict[str, object]", data).items()
        }
    return Event.from_map(fields)


def _as_json(value: object) -> object:
    """A value as the original writes it in JSON, where BSON has a type of its own for it."""
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_as_json(item) for item in cast("list[object]", value)]
    if isinstance(value, datetime):
        return format_timestamp(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, ObjectId) else value


async def read_runs(
    client: AsyncMongoClient[Any], database: str, collection: str, settings: Settings
) -> AsyncGenerator[GoOriginalRun]:
    """Every run in the collection that holds events, the oldest document first. Of ``settings``, reading matters.

    Raises ``StoreUnavailable``; ``SchemaTooNew`` for what a later release of the original wrote; and ``DecodeError``
    for documents that name no run, after all others were given.
    """
    source = client[database]
    names: set[tuple[str, str]] = set()
    nameless: DecodeError | None = None
    try:
        await _check_release(source, collection, settings)
        documents = source.get_collection(collection, BYTES, read_concern=ReadConcern(settings.read_concern)).find(
            projection=["agent_id", "run_id", "events", "meta"], sort=[("_id", 1)]
        )
        while True:
            with pymongo.timeout(settings.timeout_seconds):
                document = await anext(documents, None)
            if document is None:
                break
            try:
                run = read_run(document, collection)
            except DecodeError as error:
                nameless = nameless or error
                continue
            name = (run.agent, run.run)
            if name in names:
                run = msgspec.structs.replace(
                    run,
                    problem=f"the collection {collection} has several documents of this run, of which the original "
                    "reads whichever it meets, and the oldest was imported; its unique index on agent_id and run_id "
                    "is missing",
                )
            if run.items:
                names.add(name)
                yield run
    except PyMongoError as error:
        raise translated(error, f"MongoDB database {database}") from error
    if nameless is not None:
        raise nameless


def read_run(document: Mapping[str, Any], collection: str) -> GoOriginalRun:
    """The run that a document of ``collection`` holds. Raises ``DecodeError`` for one that names none."""
    agent, run, events = document.get("agent_id"), document.get("run_id"), document.get("events")
    try:
        check_ids(cast("str", agent), cast("str", run))
    except InvalidEvent as error:
        raise DecodeError(
            f"{collection}: the document with the _id {describe(document.get('_id'))} names no run: {error}"
        ) from error
    # What should be a list and is none counts as one event, which cannot be read.
    items = cast("list[object]", events if isinstance(events, list) else [] if events is None else [events])
    return GoOriginalRun(cast("str", agent), cast("str", run), items, document.get("meta"))


async def _check_release(source: AsyncDatabase[Any], collection: str, settings: Settings) -> None:
    """Look whether the collection is all there is of the runs. Raises ``SchemaTooNew``."""
    later = collection + _LATER_COLLECTION
    with pymongo.timeout(settings.timeout_seconds):
        append = await source[later].find_one(projection=["agent_id", "run_id", "created_at"])
    if append is not None and {"agent_id", "run_id", "created_at"} <= append.keys():
        raise SchemaTooNew(
            f"the collection {later} holds what a later release of the original than v1.0.3 appended, each append in a "
            "document of its own; this release does not read it, and without it the runs would be cut short",
            actual=2,
            supported=1,
        )
