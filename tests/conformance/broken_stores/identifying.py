"""Defects of ids: stores that confuse two ids, or accept an invalid id."""

from __future__ import annotations

import fnmatch
import unicodedata
from typing import Any

import msgspec

from agent_memory_log import AppendResult, Snapshot
from agent_memory_log.errors import InvalidEvent
from agent_memory_log.store import RunPage
from tests.conformance.broken_stores.base import Append, BrokenStore, Listing, Load, caught_by


class _ChangesIds(BrokenStore):
    """A store that changes names and ids before it uses them."""

    def key(self, name: str) -> str:
        return name

    def keys(self, agent: str, run: str) -> tuple[str, str]:
        return self.key(agent), self.key(run)

    async def appending(self, append: Append) -> AppendResult:
        append.agent, append.run = self.keys(append.agent, append.run)
        append.events = tuple(
            msgspec.structs.replace(event, event_id=self.key(event.event_id)) for event in append.events
        )
        return await super().appending(append)

    async def loading(self, load: Load) -> Snapshot:
        load.agent, load.run = self.keys(load.agent, load.run)
        return await super().loading(load)

    async def delete_run(self, agent: str, run: str) -> None:
        await super().delete_run(*self.keys(agent, run))


_ALL_IDS = (
    "test_11_run_ids_are_compared_exactly",
    "test_11_agent_ids_are_compared_exactly",
    "test_11_event_ids_are_compared_exactly",
)


@caught_by(*_ALL_IDS, "test_11_erasing_a_run_leaves_runs_with_similar_ids_unchanged")
class IgnoresCaseInIds(_ChangesIds):
    def key(self, name: str) -> str:
        return name.lower()


@caught_by(*_ALL_IDS)
class TrimsIds(_ChangesIds):
    def key(self, name: str) -> str:
        return name.rstrip(" ") or name


@caught_by(*_ALL_IDS)
class NormalizesIds(_ChangesIds):
    def key(self, name: str) -> str:
        return unicodedata.normalize("NFC", name)


@caught_by(*_ALL_IDS)
class EndsIdsAtANul(_ChangesIds):
    def key(self, name: str) -> str:
        return name.split("\x00", 1)[0] or name


@caught_by(*_ALL_IDS)
class CutsIdsAt255(_ChangesIds):
    def key(self, name: str) -> str:
        return name[:255]


@caught_by("test_11_agent_and_run_ids_are_kept_apart")
class JoinsAgentAndRun(_ChangesIds):
    def keys(self, agent: str, run: str) -> tuple[str, str]:
        return "all", f"{agent}/{run}"


@caught_by("test_11_agent_ids_are_compared_exactly")
class ListsAgentsByPattern(BrokenStore):
    async def listing(self, listing: Listing) -> RunPage:
        page = await super().listing(Listing(None, limit=1000, include_reserved=True))
        requested = listing.agent or "*"
        return RunPage(tuple(info for info in page.runs if fnmatch.fnmatchcase(info.agent, requested)), None)


@caught_by(
    "test_11_erasing_a_run_leaves_runs_with_similar_ids_unchanged", "test_12_a_deletion_leaves_other_runs_unchanged"
)
class DeletesByPattern(BrokenStore):
    async def delete_run(self, agent: str, run: str) -> None:
        for info in (await self.list_runs(agent, limit=1000)).runs:
            if fnmatch.fnmatchcase(info.run, run if run != "run" else "*"):
                await super().delete_run(agent, info.run)


class _RepairsInvalidIds(BrokenStore):
    def key(self, name: Any) -> str:
        return str(name).encode(errors="replace").decode()[:512] or "none"


@caught_by("test_11_every_method_refuses_wrong_run_and_agent_ids")
class AcceptsAnyRunId(_RepairsInvalidIds):
    async def loading(self, load: Load) -> Snapshot:
        load.run = self.key(load.run)
        return await super().loading(load)


@caught_by("test_11_every_method_refuses_wrong_run_and_agent_ids")
class DeletesAnyRunId(_RepairsInvalidIds):
    async def delete_run(self, agent: str, run: str) -> None:
        await super().delete_run(self.key(agent), self.key(run))


@caught_by("test_11_append_refuses_wrong_event_ids")
class AcceptsAnyEventId(_RepairsInvalidIds):
    async def appending(self, append: Append) -> AppendResult:
        append.events = tuple(
            msgspec.structs.replace(event, event_id=self.key(event.event_id)) for event in append.events
        )
        return await super().appending(append)


@caught_by("test_11_list_runs_refuses_wrong_agent_ids")
class ListsNothingForAWrongAgentId(BrokenStore):
    async def listing(self, listing: Listing) -> RunPage:
        try:
            return await super().listing(listing)
        except InvalidEvent:
            return RunPage((), None)
