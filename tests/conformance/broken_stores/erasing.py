"""Defects of redaction and deletion."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any

import msgspec

from agent_memory_log import AppendResult, Event, Redacted, Snapshot, new_event
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, InvalidEvent
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.store import RunPage
from tests.conformance.broken_stores.base import Append, BrokenStore, Listing, Load, caught_by, changed_copy


class _ChangesRedactedEvents(BrokenStore):
    """A store that remembers the original events. A subclass changes redacted events when they are read."""

    def mask(self, masked: Event, original: Event) -> Event | None:
        return masked if original is not masked else original

    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        for event in result.events:
            self.notes.setdefault((append.agent, append.run, event.seq), event)
        return result

    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        log = [
            self.mask(event, self.notes.get((load.agent, load.run, event.seq), event))
            if isinstance(event.data, Redacted)
            else event
            for event in snapshot.log
        ]
        return changed_copy(snapshot, [event for event in log if event is not None])


@caught_by(
    "test_12_no_handle_returns_redacted_content",
    "test_12_a_redacted_event_keeps_its_seq_time_and_id",
    "test_2_redactions_and_deletions_survive_closing_all_handles",
)
class KeepsTheContentOfRedactedEvents(_ChangesRedactedEvents):
    def mask(self, masked: Event, original: Event) -> Event | None:
        return original if masked.seq == original.seq else masked


@caught_by("test_12_a_redacted_event_keeps_its_seq_time_and_id")
class KeepsTheLabelsOfRedactedEvents(_ChangesRedactedEvents):
    def mask(self, masked: Event, original: Event) -> Event | None:
        return msgspec.structs.replace(masked, labels=original.labels)


@caught_by(
    "test_12_a_redacted_event_keeps_its_seq_time_and_id", "test_12_a_redacted_event_is_selected_by_the_type_redacted"
)
class RemovesRedactedEvents(_ChangesRedactedEvents):
    def mask(self, masked: Event, original: Event) -> Event | None:
        return masked if original is masked else None


@caught_by(
    "test_12_a_redacted_event_keeps_its_seq_time_and_id", "test_12_a_redacted_event_keeps_its_position_in_time_order"
)
class GivesARedactedEventTheTimeOfTheRedaction(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        log = list(snapshot.log)
        times = {seq: event.timestamp for event in log if isinstance(event.data, Redaction) for seq in event.data.seqs}
        return changed_copy(
            snapshot,
            [msgspec.structs.replace(event, timestamp=times.get(event.seq, event.timestamp)) for event in log],
        )


@caught_by("test_12_no_handle_returns_redacted_content")
class ReturnsRedactedContentFromARepeatedAppend(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        events = [
            msgspec.structs.replace(stored, data=original.data)
            for stored, original in zip(result.events, append.events, strict=True)
        ]
        return msgspec.structs.replace(result, events=tuple(events))


@caught_by(
    "test_12_a_redaction_appends_one_marker_with_the_seqs",
    "test_9_a_waiting_follower_receives_a_redaction_marker",
    "test_6_extending_past_a_redaction_masks_the_redacted_events",
)
class AppendsNoMarker(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        result = await super().redact_events(agent, run, seqs, reason=reason)
        if not result.inserted:
            return result
        stored_run = self._data._runs[agent, run]
        marker = stored_run.events.pop()
        del stored_run.seqs[marker.event_id]
        return AppendResult(result.version - 1, 0, ())


@caught_by("test_12_a_redaction_appends_one_marker_with_the_seqs")
class AppendsAMarkerForEachEvent(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        result = AppendResult(0, 0, ())
        for seq in seqs:
            result = await super().redact_events(agent, run, [seq], reason=reason)
        return result


@caught_by("test_12_redacting_a_redacted_event_again_changes_nothing")
class AppendsAMarkerForARepeatedRedaction(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        requested = tuple(seqs)
        result = await super().redact_events(agent, run, requested, reason=reason)
        if result.inserted:
            return result
        return await self.append_events(agent, run, new_event(Redaction(seqs=requested, reason=reason)))


@caught_by("test_12_one_missing_seq_prevents_the_whole_redaction", "test_12_every_handle_sees_a_deleted_run_as_empty")
class IgnoresMissingSeqs(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        stored_seqs = {event.seq for event in (await self.read(agent, run)).log}
        return await super().redact_events(agent, run, [seq for seq in seqs if seq in stored_seqs], reason=reason)


@caught_by("test_12_one_missing_seq_prevents_the_whole_redaction")
class RedactsUpToAMissingSeq(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        requested = list(seqs)
        for seq in requested[:-1]:
            await super().redact_events(agent, run, [seq], reason=reason)
        return await super().redact_events(agent, run, requested, reason=reason)


@caught_by("test_12_one_missing_seq_prevents_the_whole_redaction")
class AcceptsAnySeqs(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[Any], *, reason: str = "") -> AppendResult:
        try:
            return await super().redact_events(agent, run, seqs, reason=reason)
        except InvalidArgument:
            return AppendResult(0, 0, ())


@caught_by("test_12_append_refuses_a_marker_for_events_that_are_not_redacted")
class AcceptsForgedMarkers(BrokenStore):
    async def append_events(self, agent: str, run: str, *events: Event, **options: Any) -> AppendResult:
        try:
            return await super().append_events(agent, run, *events, **options)
        except InvalidEvent:
            forged = [new_event(Redaction(seqs=())) if event.type == "redaction" else event for event in events]
            return await super().append_events(agent, run, *forged, **options)


@caught_by("test_12_redacting_a_marker_moves_its_seqs_to_the_new_marker")
class DoesNotRedactMarkers(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        markers = {event.seq for event in (await self.read(agent, run)).log if event.type == "redaction"}
        return await super().redact_events(agent, run, [seq for seq in seqs if seq not in markers], reason=reason)


@caught_by("test_12_a_redacted_event_is_selected_by_the_type_redacted")
class SelectsByTheOriginalType(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        if load.types is None:
            return await super().loading(load)
        types = frozenset(load.types)
        snapshot = await super().loading(Load(load.agent, load.run, load.after))
        selected = [
            event
            for event in snapshot.log
            if (event.data.original_type if isinstance(event.data, Redacted) else event.type) in types
        ]
        return changed_copy(snapshot, selected, types=types)


@caught_by("test_12_a_redaction_leaves_other_runs_unchanged")
class RedactsTheSeqsInEveryRun(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        requested = list(seqs)
        result = await super().redact_events(agent, run, requested, reason=reason)
        for info in (await self.list_runs()).runs:
            if (info.agent, info.run) != (agent, run):
                await super().redact_events(info.agent, info.run, requested, reason=reason)
        return result


@caught_by("test_12_a_run_accepts_events_after_a_redaction", "test_10_any_redaction_reason_comes_back_unchanged")
class RefusesAppendsAfterARedaction(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        log = (await self.read(append.agent, append.run)).log
        if any(event.type == "redaction" for event in log):
            raise InvalidEvent("closed", field="run")
        return await super().appending(append)

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        return await super().redact_events(agent, run, seqs, reason=reason[:5])


class _RemembersDeletedRuns(BrokenStore):
    """A store that remembers deleted runs. A subclass uses some of their data."""

    async def delete_run(self, agent: str, run: str) -> None:
        self.notes.setdefault((agent, run), await self.read(agent, run))
        await super().delete_run(agent, run)


@caught_by(
    "test_12_every_handle_sees_a_deleted_run_as_empty",
    "test_2_redactions_and_deletions_survive_closing_all_handles",
    "test_12_a_redacted_run_can_be_deleted",
)
class DeletesNothing(BrokenStore):
    async def delete_run(self, agent: str, run: str) -> None:
        """Do nothing, so that the run is not deleted."""


@caught_by(
    "test_3_a_deleted_run_keeps_its_version",
    "test_3_a_deleted_run_continues_its_seqs",
    "test_3_old_cursors_of_a_deleted_run_stay_valid",
    "test_12_deleting_an_empty_run_changes_nothing",
    "test_3_append_refuses_first_seq_up_to_the_version_of_a_deleted_run",
    "test_9_a_run_created_again_can_be_followed_from_its_old_seqs",
    "test_15_list_runs_describes_a_run_that_does_not_begin_at_1",
)
class StartsAgainAt1AfterADeletion(BrokenStore):
    async def delete_run(self, agent: str, run: str) -> None:
        await super().delete_run(agent, run)
        self._data._runs.pop((agent, run), None)


@caught_by("test_3_a_deleted_run_forgets_its_event_ids")
class RemembersIdsOfADeletedRun(_RemembersDeletedRuns):
    async def appending(self, append: Append) -> AppendResult:
        deleted = self.notes.get((append.agent, append.run))
        deleted_ids = {event.event_id for event in deleted.log} if deleted is not None else set[str]()
        append.events = tuple(event for event in append.events if event.event_id not in deleted_ids)
        return await super().appending(append)


@caught_by("test_12_a_run_deleted_by_another_handle_can_be_imported_again")
class IgnoresFirstSeqInARunItAppendedTo(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        appended: set[tuple[str, str]] = self.__dict__.setdefault("_appended", set())
        if (append.agent, append.run) in appended:
            append.first_seq = None
        appended.add((append.agent, append.run))
        return await super().appending(append)


@caught_by("test_12_a_deleted_run_forgets_its_meta")
class RemembersTheMetaOfADeletedRun(_RemembersDeletedRuns):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        deleted = self.notes.get((load.agent, load.run))
        return changed_copy(snapshot, meta=deleted.meta) if deleted is not None else snapshot


@caught_by("test_12_every_handle_sees_a_deleted_run_as_empty", "test_12_a_deletion_leaves_other_runs_unchanged")
class ListsDeletedRuns(BrokenStore):
    async def delete_run(self, agent: str, run: str) -> None:
        for info in (await self.list_runs()).runs:
            self.notes.setdefault((info.agent, info.run), info)
        await super().delete_run(agent, run)

    async def listing(self, listing: Listing) -> RunPage:
        page = await super().listing(listing)
        listed = {(info.agent, info.run) for info in page.runs}
        deleted = [info for name, info in self.notes.items() if name not in listed]
        return RunPage((*page.runs, *deleted), page.cursor)


@caught_by("test_12_a_deletion_leaves_other_runs_unchanged", "test_11_agent_and_run_ids_are_kept_apart")
class DeletesAllRunsOfTheAgent(BrokenStore):
    async def delete_run(self, agent: str, run: str) -> None:
        for run_to_delete in [run, *(info.run for info in (await self.list_runs(agent)).runs)]:
            await super().delete_run(agent, run_to_delete)


@caught_by(
    "test_12_deleting_an_empty_run_changes_nothing", "test_11_erasing_a_run_leaves_runs_with_similar_ids_unchanged"
)
class FailsToDeleteAnEmptyRun(BrokenStore):
    async def delete_run(self, agent: str, run: str) -> None:
        if not (await self.read(agent, run)).log or run == "%":
            raise CursorOutOfRange("nothing to delete")
        await super().delete_run(agent, run)


@caught_by("test_12_deleting_an_empty_run_changes_nothing")
class CountsADeletionInTheVersion(BrokenStore):
    async def delete_run(self, agent: str, run: str) -> None:
        await super().delete_run(agent, run)
        stored_run = self._data._runs.get((agent, run))
        if stored_run is not None:
            stored_run.base += 1


@caught_by("test_3_old_cursors_of_a_deleted_run_stay_valid")
class RefusesCursorsFromBeforeADeletion(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        if 0 < load.after < snapshot.first_seq - 1:
            raise CursorOutOfRange("deleted")
        return snapshot


@caught_by("test_12_a_redacted_run_can_be_deleted")
class KeepsRedactedRuns(BrokenStore):
    async def delete_run(self, agent: str, run: str) -> None:
        if not any(event.type == "redaction" for event in (await self.read(agent, run)).log):
            await super().delete_run(agent, run)


@caught_by("test_9_a_slow_follower_receives_redacted_events_masked", "test_12_no_handle_returns_redacted_content")
class DeliversRedactedContentToFollowers(_ChangesRedactedEvents):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        async for event in self.follow_correctly(agent, run, after):
            yield self.notes.get((agent, run, event.seq), event)
