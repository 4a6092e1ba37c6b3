"""Tests of a call without a server: its time limit, its pauses between retries, and its use on a thread."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import AutoReconnect, OperationFailure

from agent_memory_log.backend_kit import ChangeSignal
from agent_memory_log.errors import CursorOutOfRange, StoreUnavailable
from agent_memory_log_mongo import SCHEMA_VERSION, Settings, SyncMongoStore
from agent_memory_log_mongo.engine.call import Call, TryAgain
from agent_memory_log_mongo.engine.database import OpenDatabase
from agent_memory_log_mongo.engine.surface import Surface
from agent_memory_log_mongo.thread_handle import run_at_once

Document = dict[str, Any]


class Driver:
    """A fake client and database that returns or raises the prepared results of commands."""

    def __init__(self) -> None:
        self.answers: list[Document | Exception] = []
        self.sent: list[Document] = []

    def __getitem__(self, name: str) -> Driver:
        return self

    def command(self, command: Document, **_options: object) -> Document:
        self.sent.append(command)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the clock. Return a list whose only item is the current time, so that a test can change it."""
    now = [1000.0]
    monkeypatch.setattr("agent_memory_log_mongo.engine.clock.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def rests() -> list[float]:
    """Return a list that receives the pauses of a call, in seconds."""
    return []


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def call(driver: Driver, time: list[float], rests: list[float]) -> Call:
    def sleep(seconds: float) -> None:
        rests.append(seconds)
        time[0] += seconds + 0.001

    surface = Surface(object, lambda _lock, _seconds: True, sleep, ChangeSignal.wait, lambda _operation: None)
    return Call(OpenDatabase(driver, "agents", Settings(timeout_seconds=5), surface), lambda: None)


def test_temporary_failure_is_retried_until_the_time_is_up(call: Call, driver: Driver, rests: list[float]) -> None:
    driver.answers = [AutoReconnect("gone"), AutoReconnect("gone"), {"ok": 1}]
    assert run_at_once(call.ask({"ping": 1})) == {"ok": 1}
    assert len(driver.sent) == 3
    driver.answers = [AutoReconnect("still gone")]
    with pytest.raises(StoreUnavailable, match="did not finish within 5 s; last error: still gone") as caught:
        run_at_once(call.ask({"ping": 1}))
    assert isinstance(caught.value.__cause__, AutoReconnect)
    assert sum(rests) <= 5
    assert max(rests) <= 0.25


def test_rests_grow_from_two_milliseconds_to_a_quarter_of_a_second(
    call: Call, rests: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def longest(_low: float, high: float) -> float:
        return high

    monkeypatch.setattr("agent_memory_log_mongo.engine.clock.random.uniform", longest)
    for _ in range(10):
        run_at_once(call.pause())
    assert rests == [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.25, 0.25]


def test_permanent_failure_is_not_retried(call: Call, driver: Driver) -> None:
    driver.answers = [OperationFailure("not authorized", 13)]
    with pytest.raises(StoreUnavailable, match="MongoDB database agents: this user lacks a privilege"):
        run_at_once(call.ask({"ping": 1}))
    assert len(driver.sent) == 1


def test_command_sent_once_is_not_retried(call: Call, driver: Driver) -> None:
    driver.answers = [AutoReconnect("gone")]
    assert run_at_once(call.insert_once("commits", {})) is None
    assert len(driver.sent) == 1


def test_repeated_attempts_share_one_time_limit(call: Call) -> None:
    attempts = itertools.count()

    async def attempt() -> None:
        next(attempts)
        raise TryAgain

    with pytest.raises(StoreUnavailable, match="did not finish within 5 s; other writers kept changing"):
        run_at_once(call.until_done(attempt))
    assert next(attempts) > 20


def test_restart_renews_or_removes_the_time_limit(call: Call, time: list[float]) -> None:
    time[0] += 6
    with pytest.raises(StoreUnavailable):
        run_at_once(call.pause())
    call.restart()
    run_at_once(call.pause())
    call.restart(endless=True)
    time[0] += 1_000_000
    run_at_once(call.pause())


def test_thread_handle_refuses_an_operation_that_suspends() -> None:
    async def suspended() -> None:
        await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="suspended"):
        run_at_once(suspended())


class Client(MongoClient[Document]):
    """A client of the driver's class without a server."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(connect=False)
        self._driver = driver

    def __getitem__(self, name: str) -> Any:
        return self._driver


@pytest.fixture
def client(driver: Driver) -> Generator[Client]:
    client = Client(driver)
    yield client
    client.close()


async def test_synchronous_handle_works_on_an_event_loop_thread(client: Client, driver: Driver) -> None:
    info_documents: list[Document] = [{"_id": "schema", "version": SCHEMA_VERSION}]
    driver.answers = [
        {"ok": 1, "cursor": {"id": 0, "firstBatch": info_documents}},
        {"ok": 1, "cursor": {"id": 0, "firstBatch": []}},  # no collections, so opening creates the indexes
        *[{"ok": 1, "n": 1}] * 4,
        {"ok": 1, "cursor": {"id": 0, "firstBatch": []}},
    ]
    with SyncMongoStore.open(client, "agents", Settings(timeout_seconds=1)) as store:
        assert store.load_run("agent", "run").version == 0
        following = store.follow("agent", "run", after=1)
        with pytest.raises(CursorOutOfRange, match="at version 0"):
            next(following)
        assert list(store.check()) == []


def test_closing_a_stream_closes_its_operation(client: Client, driver: Driver) -> None:
    driver.answers = [{"ok": 1, "cursor": {"id": 0, "firstBatch": []}}]
    closed: list[str] = []

    async def numbers(_call: Call) -> AsyncGenerator[int]:
        try:
            for number in range(3):
                yield number
        finally:
            closed.append("closed")

    with SyncMongoStore.open(client, "agents") as store:
        stream = store._stream(numbers)
        assert next(stream) == 0
        assert not closed
        stream.close()
        assert closed == ["closed"]
        assert list(store._stream(numbers)) == [0, 1, 2]
        assert len(closed) == 2
