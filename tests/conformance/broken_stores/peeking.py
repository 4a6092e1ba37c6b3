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


class _Look(msgspec.Struct):
    """A requested run, its head, and its stored data."""

    name: tuple[str, str]
    head: RunHead | None
    kept: _Run


class _Peeks(BrokenStore):
    """A store that returns the result of ``head`` for each run."""

    async def peek_runs(self, runs: Runs) -> Heads:
        requested = list(runs) if isinstance(runs, Iterable) else runs
        heads = await super().peek_runs(requested)
        kept = self._data._runs
        looks = (_Look(one, head, kept.get(one, _Run())) for one, head in zip(requested, heads, strict=True))
        return tuple(map(self.head, looks))

    def head(self, look: _Look) -> RunHead | None:
        return look.head


@caught_by("test_17_every_handle_sees_every_change_of_a_run")
class PeeksAtWhatThisHandleKnows(_Peeks):
    """Sees the changes of other handles only at its first peek at a run."""

    def head(self, look: _Look) -> RunHead | None:
        return cast("RunHead | None", self.notes.setdefault((id(self), look.name), look.head))


@caught_by("test_17_every_handle_sees_every_change_of_a_run")
class SeesNoRedaction(_Peeks):
    def head(self, look: _Look) -> RunHead | None:
        markers = sum(isinstance(event.data, Redaction) for event in look.kept.events)
        return None if look.head is None else RunHead(look.head.version - markers, look.head.first_seq)


@caught_by(
    "test_17_every_handle_sees_every_change_of_a_run",
    "test_17_a_run_created_again_has_another_head",
    "test_17_peek_runs_returns_the_first_seq_of_a_run",
)
class SeesNoDeletion(_Peeks):
    def head(self, look: _Look) -> RunHead | None:
        return None if look.head is None else RunHead(look.head.version, 1)


@caught_by("test_17_a_run_created_again_has_another_head", "test_17_calls_that_store_nothing_leave_the_head_unchanged")
class CountsEvents(_Peeks):
    """Forgets a deletion, so that the run looks like one that was never deleted, or never existed."""

    def head(self, look: _Look) -> RunHead | None:
        count = sum(not isinstance(event.data, Redaction) for event in look.kept.events)
        return None if look.head is None else RunHead(count, 1)


@caught_by("test_17_calls_that_store_nothing_leave_the_head_unchanged")
class CountsWhatTheStoreHolds(_Peeks):
    def head(self, look: _Look) -> RunHead | None:
        if look.head is None or not look.kept.events:
            return look.head
        return RunHead(look.head.version + len(self._data._runs) - 1, look.head.first_seq)


@caught_by("test_17_every_handle_sees_every_change_of_a_run", "test_17_an_expired_run_has_no_head")
class TakesADeletedRunForOneThatNeverWas(_Peeks):
    def head(self, look: _Look) -> RunHead | None:
        return look.head if look.kept.events else RunHead(0, 1)


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class SaysNothingOfUnknownRuns(_Peeks):
    def head(self, look: _Look) -> RunHead | None:
        return look.head if look.kept.version else None


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class LeavesOutUnknownRuns(_Peeks):
    async def peek_runs(self, runs: Runs) -> Heads:
        return tuple(head for head in await super().peek_runs(runs) if head != RunHead(0, 1))


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class AnswersEachRunOnce(_Peeks):
    async def peek_runs(self, runs: Runs) -> Heads:
        return await super().peek_runs(dict.fromkeys(runs))


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class AnswersInTheOrderOfNames(_Peeks):
    async def peek_runs(self, runs: Runs) -> Heads:
        return await super().peek_runs(sorted(runs))


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class AnswersWithAList(_Peeks):
    async def peek_runs(self, runs: Runs) -> Heads:
        return cast("Heads", list(await super().peek_runs(runs)))


@caught_by("test_17_peek_runs_returns_heads_in_the_order_of_its_argument")
class CreatesWhatItPeeksAt(_Peeks):
    async def peek_runs(self, runs: Runs) -> Heads:
        requested = list(runs)
        heads = await super().peek_runs(requested)
        for (agent, run), head in zip(requested, heads, strict=True):
            if head == RunHead(0, 1):
                await self.append_events(agent, run, new_event(PlannerNote(note="n")))
                self._data._runs[agent, run].base = -1  # so that the next head is RunHead(0, 0)
        return heads


@caught_by("test_17_ids_are_compared_exactly")
class PutsTheIdsOfARunTogether(_Peeks):
    async def peek_runs(self, runs: Runs) -> Heads:
        joined = {"".join(one): one for one in self._data._runs}
        return await super().peek_runs([joined.get("".join(one), one) for one in runs])


@caught_by("test_17_ids_are_compared_exactly")
class ComparesIdsUpToANul(_Peeks):
    async def peek_runs(self, runs: Runs) -> Heads:
        return await super().peek_runs([(agent, run.partition("\0")[0]) for agent, run in runs])


@caught_by("test_17_peek_runs_accepts_any_number_of_runs")
class LooksAtTheFirstThousand(_Peeks):
    async def peek_runs(self, runs: Runs) -> Heads:
        heads = await super().peek_runs(runs)
        return (*heads[:1000], *(RunHead(0, 1) for _ in heads[1000:]))


@caught_by("test_17_peek_runs_accepts_any_number_of_runs")
class RefusesTooManyRuns(_Peeks):
    async def peek_runs(self, runs: Runs) -> Heads:
        requested = list(runs) if isinstance(runs, Iterable) else runs
        if isinstance(requested, list) and len(requested) > 999:
            raise InvalidArgument("too many variables")
        return await super().peek_runs(requested)


@caught_by("test_17_an_expired_run_has_no_head")
class PeeksAtExpiredRuns(_Peeks):
    def head(self, look: _Look) -> RunHead | None:
        return RunHead(look.kept.version, look.kept.base + 1)


@caught_by("test_17_an_expired_run_has_no_head")
class KnowsTheEndOfWhatItSawLiving(_Peeks):
    """Treats a run as alive if it peeked at the run before its end."""

    def head(self, look: _Look) -> RunHead | None:
        if look.head is not None:
            self.notes[look.name] = look.head
        return look.head or cast("RunHead | None", self.notes.get(look.name))


@caught_by("test_17_an_expired_run_has_no_head")
class RaisesWhereARunHasExpired(_Peeks):
    async def peek_runs(self, runs: Runs) -> Heads:
        heads = await super().peek_runs(runs)
        if None in heads:
            raise RunExpired("one of them")
        return heads


@caught_by("test_17_an_expired_run_has_no_head")
class TakesAnyEndForOneThatHasCome(_Peeks):
    def head(self, look: _Look) -> RunHead | None:
        return look.head if look.kept.expires_at is None else None


@caught_by("test_17_peek_runs_refuses_invalid_arguments")
class TakesAnythingForRuns(BrokenStore):
    async def peek_runs(self, runs: Runs) -> Heads:
        try:
            return await super().peek_runs(runs)
        except InvalidArgument:
            return ()


@caught_by("test_17_peek_runs_refuses_invalid_arguments")
class TakesTextOfTwoForAPair(BrokenStore):
    async def peek_runs(self, runs: Runs) -> Heads:
        if isinstance(runs, Iterable):
            pairs: list[Any] = [tuple(one) if isinstance(one, str) else one for one in runs]
            return await super().peek_runs(pairs)
        return await super().peek_runs(runs)


@caught_by("test_17_peek_runs_refuses_invalid_arguments")
class TakesAnyIds(BrokenStore):
    async def peek_runs(self, runs: Runs) -> Heads:
        try:
            return await super().peek_runs(runs)
        except InvalidEvent:
            return ()


@caught_by("test_17_peek_runs_refuses_invalid_arguments")
class NamesNoFieldOfAWrongId(BrokenStore):
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
class AnswersNothingForNothingWhenClosed(BrokenStore):
    async def peek_runs(self, runs: Runs) -> Heads:
        return await super().peek_runs(runs) if runs else ()
