"""Defects of ``peek_runs``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from agent_memory_log import PlannerNote, new_event
from agent_memory_log.errors import InvalidArgument, InvalidEvent, RunExpired
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.store import RunHead
from agent_memory_log_inmem import MemoryStore
from agent_memory_log_inmem.data import _Run
from tests.conformance.broken_stores.base import BrokenStore, caught_by

Runs = Iterable[tuple[str, str]]
Heads = tuple[RunHead | None, ...]


class _PeekedRun(msgspec.Struct):
    """A requested run, its head, and its stored data."""

    name: tuple[str, str]
    head: RunHead | None
    stored: _Run


class _PeeksAtEachRun(BrokenStore):
    """A store that returns the result of ``head`` for each run."""

    async def peek_runs(self, runs: Runs) -> Heads:
        requested = list(runs) if isinstance(runs, Iterable) else runs
        heads = await super().peek_runs(requested)
        stored_runs = self._data._runs
        peeked_runs = (
            _PeekedRun(name, head, stored_runs.get(name, _Run())) for name, head in zip(requested, heads, strict=True)
        )
        return tuple(map(self.head, peeked_runs))

    def head(self, peeked: _PeekedRun) -> RunHead | None:
        return peeked.head


@caught_by("test_17_every_handle_sees_every_change_of_a_run")
class CachesHeadsPerHandle(_PeeksAtEachRun):
    """A store that returns the head of the first peek forever, so that later changes are not visible."""

    def head(self, peeked: _PeekedRun) -> RunHead | None:
        return cast("RunHead | None", self.notes.setdefault((id(self), peeked.name), peeked.head))


@caught_by("test_17_every_handle_sees_every_change_of_a_run")
class LeavesMarkersOutOfTheHead(_PeeksAtEachRun):
    def head(self, peeked: _PeekedRun) -> RunHead | None:
        markers = sum(isinstance(event.data, Redaction) for event in peeked.stored.events)
        return None if peeked.head is None else RunHead(peeked.head.version - markers, peeked.head.first_seq)


@caught_by(
    "test_17_every_handle_sees_every_change_of_a_run",
    "test_17_a_run_created_again_has_another_head",
    "test_17_peek_runs_returns_the_first_seq_of_a_run",
)
class LeavesDeletionsOutOfTheHead(_PeeksAtEachRun):
    def head(self, peeked: _PeekedRun) -> RunHead | None:
        return None if peeked.head is None else RunHead(peeked.head.version, 1)


@caught_by("test_17_a_run_created_again_has_another_head", "test_17_calls_that_store_nothing_leave_the_head_unchanged")
class ReturnsTheEventCountAsTheVersion(_PeeksAtEachRun):
    """A store that returns the number of events as the version, which hides deletions and redactions."""

    def head(self, peeked: _PeekedRun) -> RunHead | None:
        count = sum(not isinstance(event.data, Redaction) for event in peeked.stored.events)
        return None if peeked.head is None else RunHead(count, 1)


@caught_by("test_17_calls_that_store_nothing_leave_the_head_unchanged")
class AddsTheNumberOfRunsToTheVersion(_PeeksAtEachRun):
    def head(self, peeked: _PeekedRun) -> RunHead | None:
        if peeked.head is None or not peeked.stored.events:
            return peeked.head
        return RunHead(peeked.head.version + len(self._data._runs) - 1, peeked.head.first_seq)


@caught_by("test_17_every_handle_sees_every_change_of_a_run", "test_17_an_expired_run_has_no_head")
class ReturnsTheHeadOfAnUnknownRunForADeletedRun(_PeeksAtEachRun):
    def head(self, peeked: _PeekedRun) -> RunHead | None:
        return peeked.head if peeked.stored.events else RunHead(0, 1)


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class ReturnsNoneForUnknownRuns(_PeeksAtEachRun):
    def head(self, peeked: _PeekedRun) -> RunHead | None:
        return peeked.head if peeked.stored.version else None


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class LeavesOutUnknownRuns(_PeeksAtEachRun):
    async def peek_runs(self, runs: Runs) -> Heads:
        return tuple(head for head in await super().peek_runs(runs) if head != RunHead(0, 1))


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class ReturnsOneHeadForARepeatedRun(_PeeksAtEachRun):
    async def peek_runs(self, runs: Runs) -> Heads:
        return await super().peek_runs(dict.fromkeys(runs))


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class ReturnsHeadsInTheOrderOfNames(_PeeksAtEachRun):
    async def peek_runs(self, runs: Runs) -> Heads:
        return await super().peek_runs(sorted(runs))


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class ReturnsHeadsAsAList(_PeeksAtEachRun):
    async def peek_runs(self, runs: Runs) -> Heads:
        return cast("Heads", list(await super().peek_runs(runs)))


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class CreatesUnknownRunsOnPeeking(_PeeksAtEachRun):
    async def peek_runs(self, runs: Runs) -> Heads:
        requested = list(runs)
        heads = await super().peek_runs(requested)
        for (agent, run), head in zip(requested, heads, strict=True):
            if head == RunHead(0, 1):
                await self.append_events(agent, run, new_event(PlannerNote(note="n")))
                self._data._runs[agent, run].base = -1  # so that the next head is RunHead(0, 0)
        return heads


@caught_by("test_17_ids_are_compared_exactly")
class ComparesJoinedAgentAndRunIds(_PeeksAtEachRun):
    async def peek_runs(self, runs: Runs) -> Heads:
        joined = {"".join(name): name for name in self._data._runs}
        return await super().peek_runs([joined.get("".join(name), name) for name in runs])


@caught_by("test_17_ids_are_compared_exactly")
class ComparesIdsUpToANul(_PeeksAtEachRun):
    async def peek_runs(self, runs: Runs) -> Heads:
        return await super().peek_runs([(agent, run.partition("\0")[0]) for agent, run in runs])


@caught_by("test_17_peek_runs_accepts_any_number_of_runs")
class PeeksAtOnlyAThousandRuns(_PeeksAtEachRun):
    async def peek_runs(self, runs: Runs) -> Heads:
        heads = await super().peek_runs(runs)
        return (*heads[:1000], *(RunHead(0, 1) for _ in heads[1000:]))


@caught_by("test_17_peek_runs_accepts_any_number_of_runs")
class RefusesTooManyRuns(_PeeksAtEachRun):
    async def peek_runs(self, runs: Runs) -> Heads:
        requested = list(runs) if isinstance(runs, Iterable) else runs
        if isinstance(requested, list) and len(requested) > 999:
            raise InvalidArgument("too many variables")
        return await super().peek_runs(requested)


@caught_by("test_17_an_expired_run_has_no_head")
class PeeksAtExpiredRuns(_PeeksAtEachRun):
    def head(self, peeked: _PeekedRun) -> RunHead | None:
        return RunHead(peeked.stored.version, peeked.stored.base + 1)


@caught_by("test_17_an_expired_run_has_no_head")
class PeeksAtExpiredRunsItHasPeekedAtBefore(_PeeksAtEachRun):
    """A store that returns the head of an expired run if it peeked at the run before the end."""

    def head(self, peeked: _PeekedRun) -> RunHead | None:
        if peeked.head is not None:
            self.notes[peeked.name] = peeked.head
        return peeked.head or cast("RunHead | None", self.notes.get(peeked.name))


@caught_by("test_17_an_expired_run_has_no_head")
class RaisesForAnExpiredRun(_PeeksAtEachRun):
    async def peek_runs(self, runs: Runs) -> Heads:
        heads = await super().peek_runs(runs)
        if None in heads:
            raise RunExpired("one of the runs")
        return heads


@caught_by("test_17_an_expired_run_has_no_head")
class ReturnsNoneForEveryRunWithAnEnd(_PeeksAtEachRun):
    def head(self, peeked: _PeekedRun) -> RunHead | None:
        return peeked.head if peeked.stored.expires_at is None else None


@caught_by("test_17_peek_runs_refuses_invalid_arguments")
class AcceptsAnyRuns(BrokenStore):
    async def peek_runs(self, runs: Runs) -> Heads:
        try:
            return await super().peek_runs(runs)
        except InvalidArgument:
            return ()


@caught_by("test_17_peek_runs_refuses_invalid_arguments")
class AcceptsTextAsAPair(BrokenStore):
    async def peek_runs(self, runs: Runs) -> Heads:
        if isinstance(runs, Iterable):
            pairs: list[Any] = [tuple(pair) if isinstance(pair, str) else pair for pair in runs]
            return await super().peek_runs(pairs)
        return await super().peek_runs(runs)


@caught_by("test_17_peek_runs_refuses_invalid_arguments")
class PeeksAtInvalidIds(BrokenStore):
    async def peek_runs(self, runs: Runs) -> Heads:
        try:
            return await super().peek_runs(runs)
        except InvalidEvent:
            return ()


@caught_by("test_17_peek_runs_refuses_invalid_arguments")
class NamesNoFieldOfAnInvalidId(BrokenStore):
    async def peek_runs(self, runs: Runs) -> Heads:
        try:
            return await super().peek_runs(runs)
        except InvalidEvent as error:
            raise InvalidEvent(str(error), field="") from error


@caught_by("test_17_peek_runs_on_a_closed_handle_raises_store_closed")
class PeeksAfterClosing(BrokenStore):
    async def peek_runs(self, runs: Runs) -> Heads:
        return await MemoryStore(self._data).peek_runs(runs)


@caught_by("test_17_peek_runs_on_a_closed_handle_raises_store_closed")
class AcceptsAnEmptyPeekAfterClosing(BrokenStore):
    async def peek_runs(self, runs: Runs) -> Heads:
        return await super().peek_runs(runs) if runs else ()
