"""Runs the contract suite on a server over sockets. The server has SQLite stores.

``make torture`` runs it with synchronous clients, on MongoDB, and with cut connections.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from agent_memory_log import open_store
from agent_memory_log.conformance import OpenHandle, StoreConformance
from tests.service.servers import ManyStores


@pytest.fixture
def served_url(many_stores: ManyStores, tmp_path: Path) -> Generator[str]:
    with many_stores.serving(f"sqlite:///{tmp_path}/store.db?durability=os") as path:
        yield many_stores.url(path)


@pytest.fixture
def grpc_url(many_stores: ManyStores, tmp_path: Path) -> Generator[str]:
    with many_stores.serving(f"sqlite:///{tmp_path}/store.db?durability=os", grpc=True) as path:
        yield many_stores.url(path)


class TestRemote(StoreConformance):
    @pytest.fixture
    def open_handle(self, served_url: str) -> OpenHandle:
        return lambda: open_store(served_url)


class TestGrpc(StoreConformance):
    @pytest.fixture
    def open_handle(self, grpc_url: str) -> OpenHandle:
        return lambda: open_store(grpc_url)
