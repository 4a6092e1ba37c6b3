"""The libraries that store in MongoDB, and our own store beside them. All wait for a majority and its journal."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from pymongo import AsyncMongoClient
from pymongo.collection import Collection

from agent_memory_log import Event
from benchmarks import mongo_floor
from benchmarks.peers.contract import Log, Peer
from benchmarks.peers.logs import OpenAiLog, open_own, open_own_async
from benchmarks.peers.messages import langchain_message

# Without retryable writes, for all: the server searches all remembered writes at every such write.
_DURABLE = "?w=majority&journal=true&retryWrites=false"


class _Floor:
    def __init__(self, collection: Collection[mongo_floor.Document]) -> None:
        self._collection = collection
        self._made = 0

    def messages(self, events: Sequence[Event]) -> list[mongo_floor.Document]:
        self._made += 1
        if len(events) > 1:
            return [mongo_floor.lump(events, self._made)]
        return [document | {"s": self._made} for document in mongo_floor.documents(events)]

    def append_each(self, batches: Sequence[list[mongo_floor.Document]]) -> None:
        for (document,) in batches:
            self._collection.insert_one(document)

    def load(self) -> int:
        return len(mongo_floor.load(self._collection, self._made))


@contextmanager
def _open_floor(uri: str) -> Generator[Log]:
    with mongo_floor.connect(uri, retryable=False) as client:
        collection = mongo_floor.durable(client.get_default_database())
        collection.create_index([("k", 1), ("s", 1)])
        yield _Floor(collection)


class _LangChain:
    def __init__(self, history: Any) -> None:  # noqa: ANN401  # it may not be installed
        self._history = history

    def messages(self, events: Sequence[Event]) -> list[Any]:
        return [langchain_message(event) for event in events]

    def append_each(self, batches: Sequence[list[Any]]) -> None:
        for batch in batches:
            self._history.add_messages(batch)

    def load(self) -> int:
        return len(self._history.messages)


@contextmanager
def _open_langchain(uri: str) -> Generator[Log]:
    history_class = import_module("langchain_mongodb").MongoDBChatMessageHistory
    history = history_class(uri + _DURABLE, "run", database_name=urlsplit(uri).path[1:])
    try:
        yield _LangChain(history)
    finally:
        history.client.close()


@contextmanager
def _open_openai(uri: str) -> Generator[Log]:
    session_class = import_module("agents.extensions.memory").MongoDBSession
    with asyncio.Runner() as runner:

        async def opened() -> tuple[Any, AsyncMongoClient[Any]]:
            client: AsyncMongoClient[Any] = AsyncMongoClient(uri + _DURABLE)
            return session_class("run", client=client, database=urlsplit(uri).path[1:]), client

        session, client = runner.run(opened())
        try:
            yield OpenAiLog(runner, session)
        finally:
            runner.run(client.close())


PEERS: tuple[Peer, ...] = (
    Peer("raw pymongo (the floor)", (), "encoded payloads, no checks, no index on ids", _open_floor),
    Peer("agent-memory-log", (), "typed, checked, idempotent, indexed by type; 100 events are one document", open_own),
    Peer("agent-memory-log, async", (), "the same", open_own_async),
    Peer(
        "LangChain, MongoDBChatMessageHistory",
        ("langchain_mongodb",),
        "typed, without order of its own; a retry stores twice, and 100 messages are 100 inserts",
        _open_langchain,
    ),
    Peer(
        "OpenAI Agents, MongoDBSession",
        ("agents.extensions.memory.mongodb_session",),
        "plain dicts, no version, two writes an append, 100 items in one document; a retry stores twice",
        _open_openai,
    ),
)
