"""Tests that an operation that ends with an error, or is cancelled, keeps nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import cast

import pytest

from agent_memory_log import Store, open_store, open_sync_store
from agent_memory_log.errors import CursorOutOfRange
from agent_memory_log.steps import Steps, load, on, run_async, run_sync, work


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
