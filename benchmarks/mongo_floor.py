"""The floor of the MongoDB rows: raw pymongo, its payloads encoded beforehand, with the write concern that we ask for.

A document has an indexed key, a place and a binary payload; no index on event ids, no types, no order, no conflicts:
less than any log that keeps promises can do. *Growing* is the layout of one document for each run, with its events
pushed to an array: what other logs of this kind do.

The driver's writes are *retryable* unless it is told otherwise: the server remembers each for half an hour, to know it
again when a reply was lost. Ours are known again by their documents. The test server goes through all it remembers at
every write, so that a floor of many such writes would flatter us: it is measured on a server that remembers few, and
without.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.collection import Collection
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from agent_memory_log import Event
from agent_memory_log.events.registry import encode_payload

Document = dict[str, Any]

KEY = b"0123456789abcdef"
_CONCERN = WriteConcern("majority", j=True)
_READ_CONCERN = ReadConcern("majority")


def connect(server: str, *, retryable: bool = True) -> MongoClient[Document]:
    """A synchronous client; one that is ``retryable`` asks the server to know a write that comes twice."""
    return MongoClient(server, retryWrites=retryable)


def connect_async(server: str) -> AsyncMongoClient[Document]:
    """An asynchronous client, not retryable."""
    return AsyncMongoClient(server, retryWrites=False)


@contextmanager
def database(server: str) -> Generator[str]:
    """The URI of a new database on a server, dropped afterwards."""
    name = f"amlog_bench_{uuid.uuid4().hex}"
    parts = urlsplit(server)
    options = dict(parse_qsl(parts.query))
    if parts.path.strip("/") and "@" in parts.netloc:
        options.setdefault("authSource", parts.path.strip("/"))  # where the user of the server's URI is known
    try:
        yield parts._replace(path=f"/{name}", query=urlencode(options)).geturl()
    finally:
        with connect(server) as client:
            client.drop_database(name)


@contextmanager
def collection(server: str, *, retryable: bool = True) -> Generator[Collection[Document]]:
    """A new collection with its index, in a database of its own."""
    with database(server) as uri, connect(uri, retryable=retryable) as client:
        found: Collection[Document] = client.get_default_database().get_collection(
            "floor", write_concern=_CONCERN, read_concern=_READ_CONCERN
        )
        found.create_index([("k", 1), ("s", 1)])
        yield found


def asynchronous(client: AsyncMongoClient[Document]) -> AsyncCollection[Document]:
    """A collection of the client's default database, without an index yet."""
    return client.get_default_database().get_collection("floor", write_concern=_CONCERN)


def documents(events: Iterable[Event], key: bytes = KEY) -> list[Document]:
    """One document for each event."""
    return [{"k": key, "s": seq, "data": encode_payload(event.data)[0]} for seq, event in enumerate(events, 1)]


def lump(events: Sequence[Event], place: int) -> Document:
    """One document for all of the events, whose payloads are one: it keeps no event apart."""
    return {"k": KEY, "s": place, "data": b"".join(encode_payload(event.data)[0] for event in events)}


def load(found: Collection[Document], count: int) -> list[Document]:
    """The documents under the key in their order, as the driver makes them, in one reply."""
    return list(found.find({"k": KEY}, batch_size=count + 1).sort("s", 1))


def growing_document(key: bytes, events: Iterable[Event]) -> Document:
    """A run of these events as one document."""
    return {"k": key, "s": 0, "events": [pushed(event) for event in events]}


def pushed(event: Event) -> Document:
    """An event as an element of a growing document."""
    return {
        "type": event.type,
        "timestamp": event.timestamp,
        "data": msgspec.json.decode(encode_payload(event.data)[0]),
        "labels": event.labels,
    }
