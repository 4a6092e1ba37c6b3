"""Tests that an operation that ends with an error, or is cancelled, keeps nothing, and that it refuses other stores."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from agent_memory_log import Reader, Snapshot, Store, open_store, open_sync_store
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.interchange.atif import to_atif
from agent_memory_log.interchange.opentelemetry import spans_of
from agent_memory_log.memory import MemoryClient, SyncMemoryClient
from agent_memory_log.processor import LoopMemory, SyncLoopMemory
from agent_memory_log.recording import RunRecorder, SyncRunRecorder
from agent_memory_log.replay import Replayer, diff
from agent_memory_log.steps import Steps, load, on, run_async, run_sync, work
from agent_memory_log.transcript import build, import_transcript, import_transcript_sync, model_request, request
from agent_memory_log.transfer.forking import fork_run, fork_run_sync


class Large:
    """An object that an operation uses."""


def fail(references: list[weakref.ref[Large]]) -> Steps[None]:
    large = Large()
    references.append(weakref.ref(large))
    yield from load("agent", "run", after=1)


def test_handled_error_releases_the_objects_of_its_operation() -> None:
    references: list[weakref.ref[Large]] = []
    with open_sync_store("memory:") as store:
        gc.disable()
        try:
            with pytest.raises(CursorOutOfRange) as caught:
                run_sync(fail(references), store)
            del caught
            assert references[0]() is None
        finally:
            gc.enable()


async def test_handled_error_releases_the_objects_of_an_awaited_operation() -> None:
    references: list[weakref.ref[Large]] = []
    async with open_store("memory:") as store:
        gc.disable()
        try:
            with pytest.raises(CursorOutOfRange) as caught:
                await run_async(fail(references), store)
            del caught
            assert references[0]() is None
        finally:
            gc.enable()


async def test_cancelled_operation_ends_at_once() -> None:
    began, given_back = threading.Event(), False

    def hold() -> Steps[None]:
        nonlocal given_back
        try:
            yield from work(began.set)
            yield from on(never, load("agent", "run"))
        finally:
            given_back = True

    class Never:
        async def load_run(self, *_arguments: object, **_options: object) -> None:
            await asyncio.Event().wait()

    never = cast("Store", Never())
    async with open_store("memory:") as store:
        task = asyncio.create_task(run_async(hold(), store))
        await asyncio.to_thread(began.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert given_back
        del caught


TAKES_A_STORE: dict[str, Callable[[Any], object]] = {
    "MemoryClient": MemoryClient,
    "LoopMemory": lambda store: LoopMemory(store, MemoryClient()),
    "RunRecorder": lambda store: RunRecorder(store, "agent", "run"),
    "fork_run": lambda store: fork_run(store, "agent", "run", 1, "new"),
    "import_transcript": lambda store: import_transcript(store, "agent", "run", [], "anthropic"),
}
TAKES_A_SYNC_STORE: dict[str, Callable[[Any], object]] = {
    "SyncMemoryClient": SyncMemoryClient,
    "SyncLoopMemory": lambda store: SyncLoopMemory(store, SyncMemoryClient()),
    "SyncRunRecorder": lambda store: SyncRunRecorder(store, "agent", "run"),
    "fork_run_sync": lambda store: fork_run_sync(store, "agent", "run", 1, "new"),
    "import_transcript_sync": lambda store: import_transcript_sync(store, "agent", "run", [], "anthropic"),
}


@pytest.mark.parametrize("name", TAKES_A_STORE)
async def test_sync_store_is_refused_where_a_store_is_needed(name: str) -> None:
    async def use(store: Any) -> None:
        result = TAKES_A_STORE[name](store)
        if isinstance(result, Awaitable):
            await result

    refused = pytest.raises(InvalidArgument, match=r"expected a Store, .* for a SyncStore, use the class that begins")
    with open_sync_store("memory:") as store, refused:
        await use(store)


@pytest.mark.parametrize("name", TAKES_A_SYNC_STORE)
async def test_store_is_refused_where_a_sync_store_is_needed(name: str) -> None:
    async with open_store("memory:") as store:
        with pytest.raises(InvalidArgument, match=r"expected a SyncStore, .* for a Store, use the class without Sync"):
            TAKES_A_SYNC_STORE[name](store)


@pytest.mark.parametrize(
    ("value", "advice"), [(open_store("memory:"), "await it first"), ("memory:", "open the store first")]
)
def test_value_that_is_no_open_store_is_refused(value: Any, advice: str) -> None:
    with pytest.raises(InvalidArgument, match=f"expected a Store, .*: {advice}"):
        MemoryClient(value)
    with pytest.raises(InvalidArgument, match=f"expected a SyncStore, .*: {advice}"):
        SyncRunRecorder(value, "agent", "run")


TAKES_A_SNAPSHOT: dict[str, Callable[[Any], object]] = {
    "Reader": Reader,
    "Replayer": Replayer,
    "build": lambda snapshot: build(snapshot, "anthropic"),
    "diff": lambda snapshot: diff(snapshot, snapshot),
    "model_request": lambda snapshot: model_request(snapshot, "anthropic", model="m"),
    "request": lambda snapshot: request(snapshot, "anthropic"),
    "spans_of": spans_of,
    "to_atif": to_atif,
    "update": lambda snapshot: build(Snapshot("agent", "run", []), "anthropic").update(snapshot),
}


@pytest.mark.parametrize("name", TAKES_A_SNAPSHOT)
async def test_forgotten_await_of_a_snapshot_is_named(name: str) -> None:
    async with open_store("memory:") as store:
        loading = store.load_run("agent", "run")
        with pytest.raises(InvalidArgument, match=r"expected a Snapshot, got coroutine .*: await it first"):
            TAKES_A_SNAPSHOT[name](loading)
        with pytest.raises(InvalidArgument, match="expected a Snapshot, got str 'run': load the run with load_run"):
            TAKES_A_SNAPSHOT[name]("run")
        await loading
