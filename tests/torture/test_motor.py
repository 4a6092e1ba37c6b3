"""Runs the contract suite on MongoDB with Motor, which uses the same code of the backend as the client of PyMongo."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from motor.motor_asyncio import AsyncIOMotorClient

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
