"""Runs the contract suite on MongoDB with Motor and with a synchronous client, which share the backend's code."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from motor.motor_asyncio import AsyncIOMotorClient

from agent_memory_log import open_sync_store
from agent_memory_log.conformance import OpenHandle
from agent_memory_log_mongo import MongoStore
from tests.mongo.test_conformance import Patient


class TestMotor(Patient):
    @pytest.fixture
    def open_handle(self, mongo_uri: str, mongo_database: str) -> Generator[OpenHandle]:
        clients: list[AsyncIOMotorClient[dict[str, Any]]] = []

        async def open_handle() -> MongoStore:
            clients.append(AsyncIOMotorClient(mongo_uri))
            return await MongoStore.open(clients[-1], mongo_database)

        yield open_handle
        for client in clients:
            client.close()


class TestMongoSync(Patient):
    @pytest.fixture
    def open_handle(self, mongo_uri: str) -> OpenHandle:
        return lambda: open_sync_store(mongo_uri)
