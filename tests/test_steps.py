"""Tests that an error of an operation keeps no reference to the operation's objects."""

from __future__ import annotations

import gc
import weakref

import pytest

from agent_memory_log import open_store, open_sync_store
from agent_memory_log.errors import CursorOutOfRange
from agent_memory_log.steps import Steps, load, run_async, run_sync


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
