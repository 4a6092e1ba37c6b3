"""The engine that runs operations: what an error leaves behind."""

from __future__ import annotations

import gc
import weakref

import pytest

from agent_memory_log import open_store, open_sync_store
from agent_memory_log.errors import CursorOutOfRange
from agent_memory_log.steps import Steps, load, run_async, run_sync


class Large:
    """What an operation holds while it runs."""


def fails(held: list[weakref.ref[Large]]) -> Steps[None]:
    large = Large()
    held.append(weakref.ref(large))
    yield from load("agent", "run", after=1)


def test_an_error_that_was_handled_holds_nothing_of_its_operation() -> None:
    held: list[weakref.ref[Large]] = []
    with open_sync_store("memory:") as store:
        gc.disable()
        try:
            with pytest.raises(CursorOutOfRange) as caught:
                run_sync(fails(held), store)
            del caught
            assert held[0]() is None
        finally:
            gc.enable()


async def test_an_error_that_was_handled_holds_nothing_where_a_store_awaits() -> None:
    held: list[weakref.ref[Large]] = []
    async with open_store("memory:") as store:
        gc.disable()
        try:
            with pytest.raises(CursorOutOfRange) as caught:
                await run_async(fails(held), store)
            del caught
            assert held[0]() is None
        finally:
            gc.enable()
