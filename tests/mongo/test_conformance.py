"""Runs the contract suite on MongoDB, and tests who closes a client. ``make torture`` runs it with other clients."""

from __future__ import annotations

from typing import Any

import pytest
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import InvalidOperation

from agent_memory_log import PlannerNote, new_event, open_store
from agent_memory_log.conformance import OpenHandle, StoreConformance
from agent_memory_log.errors import StoreClosed
from agent_memory_log_mongo import MongoStore, SyncMongoStore
from tests.waiting import PATIENCE


class Patient(StoreConformance):
    """The contract suite with more patience, because a busy machine answers thousands of requests slowly."""

    patience = 4.0 * PATIENCE


class TestMongo(Patient):
    @pytest.fixture
    def open_handle(self, mongo_uri: str) -> OpenHandle:
        return lambda: open_store(mongo_uri)


async def test_closing_a_store_leaves_a_callers_client_open(mongo_uri: str, mongo_database: str) -> None:
    motor: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(mongo_uri)
    with MongoClient[dict[str, Any]](mongo_uri) as synchronous:
        async with AsyncMongoClient[dict[str, Any]](mongo_uri) as asynchronous:
            for client in (asynchronous, motor):
                for _ in range(2):
                    async with await MongoStore.open(client, mongo_database) as store:
                        await store.append_events("agent", "run", new_event(PlannerNote(note="n")))
                    await client["admin"].command("ping")
            for version in (5, 6):
                with SyncMongoStore.open(synchronous, mongo_database) as sync_store:
                    result = sync_store.append_events("agent", "run", new_event(PlannerNote(note="n")))
                    assert result.version == version
                synchronous["admin"].command("ping")
    motor.close()


async def test_closed_client_raises_store_closed(mongo_uri: str, mongo_database: str) -> None:
    motor: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(mongo_uri)
    asynchronous: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_uri)
    synchronous: MongoClient[dict[str, Any]] = MongoClient(mongo_uri)
    stores = [await MongoStore.open(asynchronous, mongo_database), await MongoStore.open(motor, mongo_database)]
    sync_store = SyncMongoStore.open(synchronous, mongo_database)
    await asynchronous.close()
    motor.close()
    synchronous.close()
    for store in stores:
        async with store:
            with pytest.raises(StoreClosed, match="client") as caught:
                await store.load_run("agent", "run")
            assert isinstance(caught.value.__cause__, InvalidOperation)
    with sync_store, pytest.raises(StoreClosed, match="client"):
        sync_store.load_run("agent", "run")
