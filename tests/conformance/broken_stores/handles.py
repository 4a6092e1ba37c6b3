"""Defects of handles."""

from __future__ import annotations

import asyncio
from types import TracebackType

from agent_memory_log import Snapshot
from agent_memory_log.errors import StoreClosed
from agent_memory_log_inmem import MemoryStore
from tests.conformance.broken_stores.base import BrokenStore, Load, caught_by


@caught_by(
    "test_14_a_closed_handle_raises_store_closed",
    "test_14_leaving_async_with_closes_the_handle",
    "test_9_a_waiting_follower_ends_when_its_handle_is_closed",
)
class StaysOpenAfterClosing(BrokenStore):
    async def aclose(self) -> None:
        """Does nothing."""


@caught_by("test_14_a_closed_handle_raises_store_closed")
class ReadsAfterClosing(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        return await MemoryStore(self._data).load_run(load.agent, load.run, after=load.after)


@caught_by("test_14_closing_a_closed_handle_does_nothing", "test_14_a_closed_handle_raises_store_closed")
class FailsToCloseTwice(BrokenStore):
    async def aclose(self) -> None:
        self._check_open()
        await super().aclose()


@caught_by("test_14_closing_a_handle_leaves_the_others_open")
class ClosesAllHandles(BrokenStore):
    async def aclose(self) -> None:
        self.notes["closed"] = True
        await super().aclose()

    async def loading(self, load: Load) -> Snapshot:
        if "closed" in self.notes:
            raise StoreClosed("another handle was closed")
        return await super().loading(load)


@caught_by("test_14_leaving_async_with_closes_the_handle")
class StaysOpenAfterTheBlock(BrokenStore):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Does nothing."""


@caught_by("test_14_a_call_on_another_event_loop_raises_store_closed")
class WorksOnAnyEventLoop(BrokenStore):
    def _check_open(self) -> None:
        self._loop = asyncio.get_running_loop()
        super()._check_open()


@caught_by("test_14_closing_on_another_event_loop_raises_store_closed")
class ClosesOnAnyEventLoop(BrokenStore):
    def _check_loop(self) -> None:
        if self._unusable is None:
            super()._check_loop()


@caught_by("test_14_a_handle_inherited_by_a_fork_raises_store_closed")
class WorksAfterAFork(BrokenStore):
    def _check_open(self) -> None:
        if self._unusable is not None and "fork" in self._unusable:
            self._unusable = None
            self._loop = asyncio.get_running_loop()
        super()._check_open()
