"""Defects of ``erasures``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from agent_memory_log import AppendResult
from agent_memory_log.errors import InvalidArgument, StoreClosed
from agent_memory_log.store import Erasure, Erasures, ExpireResult
from tests.conformance.broken_stores.base import Append, BrokenStore, caught_by

Runs = Iterable[tuple[str, str]] | None

_MOST_RUNS = 1_000


class _ReadsTheJournal(BrokenStore):
    """A store that returns the result of ``journal`` for a call of ``erasures``."""

    async def erasures(self, *, after: int = 0, runs: Runs = None, limit: int | None = None) -> Erasures:
        return await self.journal(after, runs if runs is None or isinstance(runs, int | str) else list(runs), limit)

    async def journal(self, after: int, runs: Runs, limit: int | None) -> Erasures:
        return await super().erasures(after=after, runs=runs, limit=limit)


@caught_by("test_12_a_new_store_has_an_empty_journal")
class BeginsTheJournalAtOne(_ReadsTheJournal):
    async def journal(self, after: int, runs: Runs, limit: int | None) -> Erasures:
        read = await super().journal(after, runs, limit)
        return msgspec.structs.replace(read, position=read.position + 1)


@caught_by("test_12_the_journal_names_redactions_and_deletions")
class LeavesDeletionsOutOfTheJournal(_ReadsTheJournal):
    async def journal(self, after: int, runs: Runs, limit: int | None) -> Erasures:
        read = await super().journal(after, runs, limit)
        return msgspec.structs.replace(read, entries=tuple(entry for entry in read.entries if not entry.up_to))


@caught_by("test_12_the_journal_can_be_read_on_from_a_position")
class ReadsTheJournalFromItsBeginning(_ReadsTheJournal):
    async def journal(self, after: int, runs: Runs, limit: int | None) -> Erasures:
        return await super().journal(0 if isinstance(after, int) and after > 0 else after, runs, limit)


@caught_by("test_12_the_journal_can_be_read_for_some_runs")
class ReadsTheJournalOfAllRuns(_ReadsTheJournal):
    async def journal(self, after: int, runs: Runs, limit: int | None) -> Erasures:
        return await super().journal(after, None if runs else runs, limit)


@caught_by("test_12_the_journal_can_be_read_for_any_number_of_runs")
class LooksUpTheFirstRunsInTheJournal(_ReadsTheJournal):
    async def journal(self, after: int, runs: Runs, limit: int | None) -> Erasures:
        return await super().journal(after, runs[:_MOST_RUNS] if isinstance(runs, list) else runs, limit)


@caught_by("test_12_calls_that_remove_nothing_are_not_in_the_journal")
class NotesEveryDeletion(BrokenStore):
    async def delete_run(self, agent: str, run: str) -> None:
        before = len(self._data._journal)
        await super().delete_run(agent, run)
        if len(self._data._journal) == before:
            self._data._journal.append(Erasure(before + 1, agent, run, up_to=1))


@caught_by("test_12_an_appended_marker_is_in_the_journal")
class LeavesAppendedMarkersOutOfTheJournal(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        before = len(self._data._journal)
        result = await super().appending(append)
        del self._data._journal[before:]
        return result


@caught_by("test_12_an_expiry_is_not_in_the_journal")
class NotesExpiries(BrokenStore):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        result = await super().expire_runs(before=before, dry_run=dry_run)
        self._data._journal.append(Erasure(len(self._data._journal) + 1, "agent", "run", up_to=result.events))
        return result


@caught_by("test_12_many_writers_leave_no_gap_in_the_journal")
class LeavesGapsInTheJournal(_ReadsTheJournal):
    async def journal(self, after: int, runs: Runs, limit: int | None) -> Erasures:
        read = await super().journal(after, runs, limit)
        entries = tuple(msgspec.structs.replace(entry, position=2 * entry.position) for entry in read.entries)
        return Erasures(2 * read.position, entries)


@caught_by("test_12_erasures_refuses_invalid_arguments")
class AcceptsAnyPositionInTheJournal(_ReadsTheJournal):
    async def journal(self, after: int, runs: Runs, limit: int | None) -> Erasures:
        try:
            return await super().journal(after, runs, limit)
        except InvalidArgument:
            return Erasures(0)


@caught_by("test_12_erasures_on_a_closed_handle_raises_store_closed")
class ReadsTheJournalWhenClosed(_ReadsTheJournal):
    async def journal(self, after: int, runs: Runs, limit: int | None) -> Erasures:
        try:
            return await super().journal(after, runs, limit)
        except StoreClosed:
            return Erasures(0)
