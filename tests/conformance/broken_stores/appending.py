"""Defects of appends, seqs, versions and concurrency."""

from __future__ import annotations

import asyncio

import msgspec

from agent_memory_log import AppendResult, Snapshot, VersionConflict, new_event
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.payloads import Annotation
from agent_memory_log_inmem import MemoryStore
from tests.conformance.broken_stores.base import Append, BrokenStore, Load, caught_by, changed_copy


@caught_by(
    "test_1_an_append_stores_its_events_in_order",
    "test_1_an_append_returns_the_version_the_count_and_the_events",
    "test_3_seqs_start_at_1_and_have_no_gaps",
    "test_9_follow_delivers_stored_events_then_new_ones",
)
class DropsAnEvent(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.events = append.events[:1] + append.events[2:]
        return await super().appending(append)


@caught_by("test_1_a_large_batch_is_stored_whole")
class CutsLargeBatches(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.events = append.events[:1000]
        return await super().appending(append)


@caught_by(
    "test_1_an_append_stores_its_events_in_order", "test_1_an_append_returns_the_version_the_count_and_the_events"
)
class ReversesBatches(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.events = append.events[::-1]
        return await super().appending(append)


@caught_by("test_1_an_append_stores_its_events_in_order", "test_6_log_is_in_append_order_and_events_by_time_then_seq")
class SortsBatchesByTime(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.events = tuple(sorted(append.events, key=lambda event: event.timestamp))
        return await super().appending(append)


@caught_by(
    "test_1_a_batch_with_an_invalid_event_stores_nothing",
    "test_1_a_batch_with_a_conflicting_event_stores_nothing",
    "test_11_append_refuses_wrong_event_ids",
    "test_4_one_id_with_two_bodies_in_a_batch_is_a_conflict",
)
class KeepsPartOfARefusedBatch(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        for event in append.events[:-1]:
            await super().appending(msgspec.structs.replace(append, events=(event,)))
            append.expected_version = append.first_seq = None
        return await super().appending(append)


@caught_by("test_1_a_batch_at_a_stale_version_stores_nothing")
class ChecksTheVersionAfterWriting(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        version = (await self.read(append.agent, append.run)).version
        result = await super().appending(msgspec.structs.replace(append, expected_version=None))
        if append.expected_version not in (None, version) and result.inserted:
            raise VersionConflict("stale", expected=append.expected_version or 0, actual=version)
        return result


@caught_by("test_1_no_reader_sees_part_of_a_batch")
class ShowsABatchInParts(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        for event in append.events:
            await super().appending(msgspec.structs.replace(append, events=(event,)))
            await asyncio.sleep(0)
        return await super().appending(append)


@caught_by("test_1_an_empty_append_creates_no_run", "test_1_an_empty_append_changes_nothing_in_a_run")
class ChecksTheVersionOfAnEmptyAppend(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        version = (await self.read(append.agent, append.run)).version
        if not append.events and append.expected_version not in (None, version):
            raise VersionConflict("stale", expected=append.expected_version or 0, actual=version)
        return await super().appending(append)


@caught_by("test_1_an_append_returns_the_version_the_count_and_the_events")
class ReportsOnlyTheLastEvent(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        return msgspec.structs.replace(result, events=result.events[-1:])


@caught_by(
    "test_2_appended_events_survive_closing_all_handles",
    "test_2_redactions_and_deletions_survive_closing_all_handles",
    "test_2_idempotency_survives_closing_all_handles",
    "test_14_closing_a_handle_leaves_the_others_open",
)
class ForgetsEverythingOnClosing(BrokenStore):
    async def aclose(self) -> None:
        self._data.reset()
        await super().aclose()


@caught_by("test_3_seqs_start_at_1_and_have_no_gaps", "test_6_after_leaves_out_events_up_to_that_seq")
class CountsFromZero(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, [msgspec.structs.replace(event, seq=event.seq - 1) for event in snapshot.log])


@caught_by("test_3_each_run_has_its_own_seqs", "test_3_runs_written_at_once_keep_their_own_seqs")
class MergesAllRunsOfAnAgent(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.run = "shared"
        return await super().appending(append)

    async def loading(self, load: Load) -> Snapshot:
        return await super().loading(msgspec.structs.replace(load, run="shared"))


@caught_by("test_3_a_refused_append_leaves_no_gap", "test_5_a_version_conflict_names_the_actual_version")
class LeavesAGapAfterARefusedAppend(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        try:
            return await super().appending(append)
        except VersionConflict:
            await super().appending(Append(append.agent, append.run, (new_event(Annotation()),)))
            raise


@caught_by("test_3_append_ignores_the_seq_of_an_event")
class TrustsTheCallersSeqs(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.events = tuple(sorted(append.events, key=lambda event: event.seq))
        return await super().appending(append)


@caught_by(
    "test_3_first_seq_sets_the_first_seq_of_an_empty_run",
    "test_3_append_refuses_first_seq_for_a_run_with_events",
    "test_3_append_refuses_first_seq_up_to_the_version_of_a_deleted_run",
    "test_3_append_refuses_a_first_seq_that_is_not_a_positive_integer",
    "test_15_list_runs_describes_a_run_that_does_not_begin_at_1",
)
class IgnoresFirstSeq(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.first_seq = None
        return await super().appending(append)


@caught_by("test_3_first_seq_1_is_the_same_as_the_default", "test_3_first_seq_sets_the_first_seq_of_an_empty_run")
class AddsOneToFirstSeq(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        if append.first_seq is not None:
            append.first_seq += 1
        return await super().appending(append)


@caught_by("test_3_a_repeated_import_with_first_seq_stores_nothing")
class ChecksFirstSeqBeforeIds(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        version = (await self.read(append.agent, append.run)).version
        if append.first_seq is not None and append.first_seq <= version:
            raise VersionConflict("taken", expected=append.first_seq - 1, actual=version)
        return await super().appending(append)


@caught_by(
    "test_3_many_tasks_on_one_handle_leave_no_gap",
    "test_3_many_tasks_on_many_handles_leave_no_gap",
    "test_3_many_threads_leave_no_gap",
    "test_3_runs_written_at_once_keep_their_own_seqs",
    "test_9_a_follower_gets_the_events_of_many_writers_in_seq_order",
)
class LosesConcurrentAppends(BrokenStore):
    """A store that reads, waits and writes. It loses its own events if another writer appends during the wait."""

    async def appending(self, append: Append) -> AppendResult:
        version = (await self.read(append.agent, append.run)).version
        await asyncio.sleep(0.001)
        if (await self.read(append.agent, append.run)).version == version:
            return await super().appending(append)
        stored = [msgspec.structs.replace(event, seq=version + 1 + n) for n, event in enumerate(append.events)]
        return AppendResult(version + len(stored), len(stored), tuple(stored))


@caught_by("test_4_the_same_event_from_many_writers_is_stored_once")
class LooksUpIdsBeforeItWaits(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        stored_ids = {event.event_id for event in (await self.read(append.agent, append.run)).log}
        await asyncio.sleep(0)
        events = tuple(new_event(event.data) if event.event_id not in stored_ids else event for event in append.events)
        return await super().appending(msgspec.structs.replace(append, events=events))


@caught_by("test_5_exactly_one_of_many_writers_at_one_version_succeeds")
class ChecksTheVersionBeforeItWaits(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        version = (await self.read(append.agent, append.run)).version
        if append.expected_version not in (None, version):
            raise VersionConflict("stale", expected=append.expected_version or 0, actual=version)
        await asyncio.sleep(0)
        return await super().appending(msgspec.structs.replace(append, expected_version=None))


@caught_by(
    "test_5_a_version_conflict_names_the_actual_version",
    "test_5_an_append_on_another_handle_makes_a_version_stale",
    "test_5_versions_from_before_a_redaction_or_deletion_are_stale",
    "test_5_exactly_one_of_many_writers_at_one_version_succeeds",
    "test_1_a_batch_at_a_stale_version_stores_nothing",
)
class AcceptsAStaleVersion(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.expected_version = None
        return await super().appending(append)


@caught_by("test_5_append_accepts_the_current_version")
class ExpectsTheVersionAfterTheAppend(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        if append.expected_version is not None:
            append.expected_version -= 1
        return await super().appending(append)


@caught_by("test_5_a_version_conflict_names_the_actual_version")
class ReportsTheExpectedVersionAsTheActualVersion(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        try:
            return await super().appending(append)
        except VersionConflict as conflict:
            raise VersionConflict(str(conflict), expected=conflict.expected, actual=conflict.expected) from conflict


@caught_by(
    "test_5_an_append_on_another_handle_makes_a_version_stale",
    "test_5_versions_from_before_a_redaction_or_deletion_are_stale",
)
class RemembersTheVersionPerHandle(BrokenStore):
    _last_versions: dict[tuple[str, str], int]

    async def appending(self, append: Append) -> AppendResult:
        last_versions = self.__dict__.setdefault("_last_versions", {})
        if (
            append.expected_version is not None
            and last_versions.get((append.agent, append.run)) == append.expected_version
        ):
            append.expected_version = None
        result = await super().appending(append)
        last_versions[append.agent, append.run] = result.version
        return result


@caught_by("test_5_append_refuses_a_version_that_is_not_a_natural_number")
class AcceptsAnyExpectedVersion(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        try:
            return await super().appending(append)
        except InvalidArgument:
            return await super().appending(msgspec.structs.replace(append, expected_version=None))


@caught_by(
    "test_3_many_tasks_on_one_handle_leave_no_gap",
    "test_1_an_append_returns_the_version_the_count_and_the_events",
    "test_10_any_text_comes_back_unchanged",
)
class ReversesTheReturnedEvents(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        return msgspec.structs.replace(result, events=result.events[::-1])


@caught_by(
    "test_15_meta_is_stored_with_the_run", "test_15_any_meta_comes_back_unchanged", "test_15_list_runs_describes_a_run"
)
class LosesMeta(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.meta = None
        return await super().appending(append)


@caught_by("test_15_meta_of_later_appends_is_ignored", "test_1_an_empty_append_changes_nothing_in_a_run")
class OverwritesMeta(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        if append.meta is not None:
            self.notes[append.agent, append.run] = dict(append.meta)
        return await super().appending(append)

    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, meta=self.notes.get((load.agent, load.run), snapshot.meta))


@caught_by("test_7_changing_appended_meta_does_not_change_the_store")
class SharesMeta(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        if append.meta is not None:
            self.notes.setdefault((append.agent, append.run), append.meta)
        return await super().appending(append)

    async def loading(self, load: Load) -> Snapshot:
        snapshot = await MemoryStore.load_run(self, load.agent, load.run, after=load.after)
        return changed_copy(snapshot, meta=self.notes.get((load.agent, load.run), snapshot.meta))
