"""Runs the contract suite on the in-memory and SQLite backends, asynchronous and synchronous."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from agent_memory_log import open_store, open_sync_store
from agent_memory_log.conformance import OpenHandle, StoreConformance

_numbers = itertools.count()


class TestMemory(StoreConformance):
    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        url = f"memory:conformance-{next(_numbers)}"
        return lambda: open_store(url)


class TestMemorySync(StoreConformance):
    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        url = f"memory:conformance-{next(_numbers)}"
        return lambda: open_sync_store(url)


class TestSqlite(StoreConformance):
    @pytest.fixture
    def open_handle(self, tmp_path: Path) -> OpenHandle:
        return lambda: open_store(f"sqlite:///{tmp_path}/store.db")


class TestSqliteSync(StoreConformance):
    @pytest.fixture
    def open_handle(self, tmp_path: Path) -> OpenHandle:
        return lambda: open_sync_store(f"sqlite:///{tmp_path}/store.db")
