"""Reads the runs that the Go original (goa-ai / loom-mcp, v1.0.3) stored in MongoDB, without changing them.

Its collection has one document for each run, with the fields ``agent_id``, ``run_id``, ``events``, ``updated_at`` and
sometimes ``meta``. ``events`` is a list of ``{type, timestamp, data, labels}`` in append order. An event's seq is its
position in that list. Its id is derived from the seq, so that a second import stores no event twice.

The driver returns the documents as bytes, and each event is decoded separately. Go writes text that is not UTF-8 and
dates of any year, and one such event must not hide the others.
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
"""The original's default collection."""

_LATER_COLLECTION = "_events"
"""The suffix of the second collection of later releases, which has one document for each append."""

_KIND = "go-original"
_DECODED: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


class GoOriginalRun(msgspec.Struct, frozen=True):
    """A ``SourceRun`` for one document of the original. Its events and meta are decoded on demand.

    Attributes:
        agent: the agent id.
        run: the run id.
        items: the events as the driver returned them.
        stored_meta: the meta as the driver returned it.
        problem: the reason why the document cannot be imported, or ``""``.
    """

    agent: str
    run: str
    items: list[object]
    stored_meta: object = None
    problem: str = ""

    def meta(self) -> dict[str, JsonValue]:
        """Return the run's meta.

        Raises ``DecodeError`` if the meta cannot be read, or if the document has a ``problem``.
        """
        where = f"{self.agent}/{self.run}"
        if self.problem:
            raise DecodeError(f"{where}: {self.problem}")
        if self.stored_meta is None:
            return {}
        if not isinstance(self.stored_meta, RawBSONDocument):
            raise DecodeError(f"{where}: the run's meta must be a map, got {describe(self.stored_meta)}")
        try:
            return own_map(cast("dict[str, object]", _as_json(BSON(self.stored_meta.raw).decode(_DECODED))))
        except NotJson as error:
            raise DecodeError(f"{where}: the run's meta{error.path} {error}") from error
        except (BSONError, AgentMemoryLogError) as error:
            raise DecodeError(f"{where}: the run's meta cannot be read: {error}") from error

    def events(self) -> Iterator[Event]:
        """Yield the run's events. Raises ``DecodeError`` with the run and the seq of an unreadable event."""
        for seq, item in enumerate(self.items, 1):
            try:
                event = _decode_event(item)
            except Exception as error:  # a registered payload may raise any exception
                raise DecodeError(f"{self.agent}/{self.run}: event {seq} cannot be read: {error}") from error
            yield msgspec.structs.replace(event, event_id=derived_event_id(_KIND, self.run, seq), seq=seq)


def _decode_event(item: object) -> Event:
    if not isinstance(item, RawBSONDocument):
        raise DecodeError(f"an event must be a map, got {describe(item)}")
    fields = BSON(item.raw).decode(_DECODED)
    data = fields.get("data")
    if isinstance(data, dict):
        # A field of a known payload may be bytes, which mean base64 or JSON text. The payload's decoder knows which.
        # ``structured`` holds any JSON value, so its bytes are always base64.
        is_known = fields.get("type") in payload_types()
        fields["data"] = {
            name: value if is_known and name != "structured" and isinstance(value, bytes) else _as_json(value)
            for name, value in cast("dict[str, object]", data).items()
        }
    return Event.from_map(fields)


def _as_json(value: object) -> object:
    """Return a value as the original writes it in JSON, if it has a type that only BSON has."""
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
    """Yield every run of the collection that has events, the oldest document first.

    Args:
        client: the client, which stays open.
        database: the name of the database.
        collection: the name of the collection.
        settings: the read concern and the timeout; the other settings are not used.

    Raises:
        StoreUnavailable: the server cannot be reached, or it refused the read.
        SchemaTooNew: a later release of the original wrote the collection.
        DecodeError: a document names no run. It is raised after all other runs were yielded.
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
                    problem=f"the collection {collection} has several documents for this run, because its unique index "
                    "on agent_id and run_id is missing; only the oldest was imported",
                )
            if run.items:
                names.add(name)
                yield run
    except PyMongoError as error:
        raise translated(error, f"MongoDB database {database}") from error
    if nameless is not None:
        raise nameless


def read_run(document: Mapping[str, Any], collection: str) -> GoOriginalRun:
    """Return the run of a document of ``collection``. Raises ``DecodeError`` if the document names no run."""
    agent, run, events = document.get("agent_id"), document.get("run_id"), document.get("events")
    try:
        check_ids(cast("str", agent), cast("str", run))
    except InvalidEvent as error:
        raise DecodeError(
            f"{collection}: the document with the _id {describe(document.get('_id'))} names no run: {error}"
        ) from error
    # A value that is not a list counts as one event, which then cannot be read.
    items = cast("list[object]", events if isinstance(events, list) else [] if events is None else [events])
    return GoOriginalRun(cast("str", agent), cast("str", run), items, document.get("meta"))


async def _check_release(source: AsyncDatabase[Any], collection: str, settings: Settings) -> None:
    """Raise ``SchemaTooNew`` if a second collection has events of these runs."""
    later = collection + _LATER_COLLECTION
    with pymongo.timeout(settings.timeout_seconds):
        append = await source[later].find_one(projection=["agent_id", "run_id", "created_at"])
    if append is not None and {"agent_id", "run_id", "created_at"} <= append.keys():
        raise SchemaTooNew(
            f"the collection {later} holds events that a release of the original after v1.0.3 appended; this release "
            "cannot read them, and without them the imported runs would be incomplete",
            actual=2,
            supported=1,
        )
