"""Defects of ``check``."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agent_memory_log.store import Flaw
from tests.conformance.broken_stores.base import BrokenStore, caught_by


@caught_by("test_19_check_finds_no_flaws_in_an_intact_store")
class ReportsExpiredRunsAsFlaws(BrokenStore):
    async def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncIterator[Flaw]:
        async for flaw in super().check(agent_id, run_id):
            yield flaw
        for agent, run in self._data._runs:
            if await self.peek_runs([(agent, run)]) == (None,):
                yield Flaw(agent, run, None, "the run cannot be read")


@caught_by("test_19_check_refuses_a_run_without_an_agent", "test_19_check_on_a_closed_handle_raises_store_closed")
class ChecksWithoutValidatingItsArguments(BrokenStore):
    async def check(self, agent_id: str | None = None, run_id: str | None = None) -> AsyncIterator[Flaw]:
        for run in self._data._runs:
            if run == (agent_id, run_id):
                yield Flaw(agent_id, run_id, None, "an intact run")
