"""The floor of the MongoDB rows: raw pymongo with encoded payloads and with the write concern of our side.

A document has an indexed key, a position and a binary payload. There is no index on event ids. The floor checks no
types and detects no conflicts, so a log that keeps its promises does more work. *Growing* is the layout of other logs
of this kind: one document for each run, with its events pushed to an array.

By default the driver's writes are *retryable*: the server remembers each write for half an hour, and recognizes it when
a reply was lost. The library's own writes are recognized by their documents. The test server searches all remembered
writes at every write, which would slow down the floor. So the floor is measured on a server that remembers few writes,
and also without retryable writes.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from agent_memory_log import Event
from agent_memory_log.events.registry import encode_payload

Document = dict[str, Any]

KEY = b"0123456789abcdef"
_CONCERN = WriteConcern("majority", j=True)
_READ_CONCERN = ReadConcern("majority")
RAW = CodecOptions(RawBSONDocument)
"""The codec options that leave each document as bytes."""


def connect(server: str, *, retryable: bool = True) -> MongoClient[Document]:
    """Return a synchronous client. If it is ``retryable``, it asks the server to recognize repeated writes."""
    return MongoClient(server, retryWrites=retryable)


def connect_async(server: str) -> AsyncMongoClient[Document]:
    """Return an asynchronous client that is not retryable."""
    return AsyncMongoClient(server, retryWrites=False)


@contextmanager
def database(server: str) -> Generator[str]:
    """Yield the URI of a new database on a server, and drop it afterwards."""
    name = f"amlog_bench_{uuid.uuid4().hex}"
    parts = urlsplit(server)
    options = dict(parse_qsl(parts.query))
    if parts.path.strip("/") and "@" in parts.netloc:
        options.setdefault("authSource", parts.path.strip("/"))  # the database that knows the URI's user
    try:
        yield parts._replace(path=f"/{name}", query=urlencode(options)).geturl()
    finally:
        with connect(server) as client:
            client.drop_database(name)


@contextmanager
def collection(server: str, *, retryable: bool = True) -> Generator[Collection[Document]]:
    """Yield a new collection with its index, in a database of its own."""
    with database(server) as uri, connect(uri, retryable=retryable) as client:
        collection = durable(client.get_default_database())
        collection.create_index([("k", 1), ("s", 1)])
        yield collection


def durable(database: Database[Document]) -> Collection[Document]:
    """Return a collection with the concerns of our side, without an index yet."""
    return database.get_collection("floor", write_concern=_CONCERN, read_concern=_READ_CONCERN)


def asynchronous(client: AsyncMongoClient[Document]) -> AsyncCollection[Document]:
    """Return a collection of the client's default database, without an index yet."""
    return client.get_default_database().get_collection("floor", write_concern=_CONCERN)


def documents(events: Iterable[Event], key: bytes = KEY) -> list[Document]:
    """Return one document for each event."""
    return [{"k": key, "s": seq, "data": encode_payload(event.data)[0]} for seq, event in enumerate(events, 1)]


def lump(events: Sequence[Event], place: int) -> Document:
    """Return one document with the payloads of all events joined."""
    return {"k": KEY, "s": place, "data": b"".join(encode_payload(event.data)[0] for event in events)}


def load(collection: Collection[Document], count: int) -> list[Document]:
    """Return the ``count`` documents with the key ``KEY`` in order, from one reply."""
    return list(collection.find({"k": KEY}, batch_size=count + 1).sort("s", 1))


def growing_document(key: bytes, events: Iterable[Event]) -> Document:
    """Return a run of these events as one document."""
    return {"k": key, "s": 0, "events": [pushed(event) for event in events]}


def pushed(event: Event) -> Document:
    """Return an event as an element of a growing document."""
    return {
        "type": event.type,
        "timestamp": event.timestamp,
        "data": msgspec.json.decode(encode_payload(event.data)[0]),
        "labels": event.labels,
    }
