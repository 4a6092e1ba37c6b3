"""The contract suite on a server with a MongoDB store, over gRPC, and on a network that cuts connections.

Only requests are cut: after a lost answer, no client can distinguish the events that its own lost append stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from pathlib import Path

import pytest

from agent_memory_log import open_store, open_sync_store
from agent_memory_log.conformance import OpenHandle, StoreConformance
from tests.service.cutting_proxy import CuttingProxy
from tests.service.servers import ManyStores

_seeds = itertools.count()


@pytest.fixture(scope="module")
def many_stores() -> Generator[ManyStores]:
    with ManyStores() as server:
        yield server


@pytest.fixture
def mongo_url(many_stores: ManyStores, mongo_uri: str) -> Generator[str]:
    with many_stores.serving(mongo_uri) as path:
        yield many_stores.url(path)


@pytest.fixture
def cut_url(many_stores: ManyStores, tmp_path: Path) -> Generator[str]:
    store = many_stores.serving(f"sqlite:///{tmp_path}/store.db?durability=os")
    with store as path, CuttingProxy(many_stores.port, seed=next(_seeds), request_bytes=4_000) as proxy:
        yield many_stores.url(path, proxy.port)


class TestMongo(StoreConformance):
    @pytest.fixture
    def open_handle(self, mongo_url: str) -> OpenHandle:
        return lambda: open_store(mongo_url)


class TestMongoSync(StoreConformance):
    @pytest.fixture
    def open_handle(self, mongo_url: str) -> OpenHandle:
        return lambda: open_sync_store(mongo_url)


class TestCut(StoreConformance):
    patience = 120.0  # each cut costs a rest

    @pytest.fixture
    def open_handle(self, cut_url: str) -> OpenHandle:
        return lambda: open_store(cut_url)


class TestCutSync(StoreConformance):
    patience = 120.0  # each cut costs a rest

    @pytest.fixture
    def open_handle(self, cut_url: str) -> OpenHandle:
        return lambda: open_sync_store(cut_url)


@pytest.fixture
def grpc_url(many_stores: ManyStores, tmp_path: Path) -> Generator[str]:
    with many_stores.serving(f"sqlite:///{tmp_path}/store.db?durability=os", grpc=True) as path:
        yield many_stores.url(path)


class TestGrpcSync(StoreConformance):
    @pytest.fixture
    def open_handle(self, grpc_url: str) -> OpenHandle:
        return lambda: open_sync_store(grpc_url)
