"""Defects of idempotency by event id."""

from __future__ import annotations

import hashlib

import msgspec

from agent_memory_log import AppendResult, Event, VersionConflict
from agent_memory_log.errors import EventConflict
from agent_memory_log.events.event import new_event_id, same_body
from agent_memory_log.events.payloads import Redacted
from tests.conformance.broken_stores.base import Append, BrokenStore, caught_by


def _with_new_id(event: Event) -> Event:
    return msgspec.structs.replace(event, event_id=new_event_id())


class _ComparesBodies(BrokenStore):
    """A store that compares bodies with ``equal``. It replaces an equal event with the stored event."""

    def equal(self, stored: Event, original: Event) -> bool:
        return same_body(stored, original)

    async def appending(self, append: Append) -> AppendResult:
        log = (await self.read(append.agent, append.run)).log
        stored = {event.event_id: event for event in log if not isinstance(event.data, Redacted)}
        events: list[Event] = []
        for event in append.events:
            stored_event = stored.get(event.event_id)
            if stored_event is not None and not self.equal(stored_event, event):
                raise EventConflict("another body", event_id=event.event_id, seq=stored_event.seq)
            events.append(event if stored_event is None else stored_event)
        append.events = tuple(events)
        return await super().appending(append)


@caught_by(
    "test_4_appending_again_stores_nothing_and_returns_the_stored_seqs",
    "test_4_stored_events_in_another_order_store_nothing",
    "test_4_an_event_twice_in_a_batch_is_stored_once",
    "test_4_an_event_with_the_id_of_a_redacted_one_stores_nothing",
    "test_2_idempotency_survives_closing_all_handles",
    "test_9_a_repeated_append_delivers_no_event_twice",
    "test_12_a_run_accepts_events_after_a_redaction",
)
class IgnoresEventIds(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.events = tuple(_with_new_id(event) for event in append.events)
        return await super().appending(append)


@caught_by("test_4_a_retry_ignores_expected_version", "test_2_idempotency_survives_closing_all_handles")
class ChecksTheVersionBeforeTheIds(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        version = (await self.read(append.agent, append.run)).version
        if append.expected_version not in (None, version):
            raise VersionConflict("stale", expected=append.expected_version or 0, actual=version)
        return await super().appending(append)


@caught_by("test_4_new_events_in_a_partly_stored_batch_are_appended")
class DropsNewEventsOfAPartlyStoredBatch(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        stored_ids = {event.event_id for event in (await self.read(append.agent, append.run)).log}
        append.events = tuple(event for event in append.events if event.event_id in stored_ids) or append.events
        return await super().appending(append)


@caught_by("test_4_expected_version_applies_to_a_partly_stored_batch")
class IgnoresTheVersionForAPartlyStoredBatch(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        stored_ids = {event.event_id for event in (await self.read(append.agent, append.run)).log}
        if any(event.event_id in stored_ids for event in append.events):
            append.expected_version = None
        return await super().appending(append)


@caught_by(
    "test_4_another_body_for_a_stored_id_is_a_conflict", "test_1_a_batch_with_a_conflicting_event_stores_nothing"
)
class AcceptsAnyBodyForAStoredId(_ComparesBodies):
    def equal(self, stored: Event, original: Event) -> bool:
        return bool(stored) and bool(original)


@caught_by("test_4_one_id_with_two_bodies_in_a_batch_is_a_conflict")
class AcceptsTwoBodiesForAnIdInABatch(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.events = tuple({event.event_id: event for event in append.events}.values())
        return await super().appending(append)


@caught_by("test_4_an_event_twice_in_a_batch_is_stored_once")
class StoresARepeatedEventOfABatchTwice(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        earlier_ids: set[str] = set()
        events: list[Event] = []
        for event in append.events:
            events.append(_with_new_id(event) if event.event_id in earlier_ids else event)
            earlier_ids.add(event.event_id)
        append.events = tuple(events)
        return await super().appending(append)


@caught_by("test_4_events_with_another_timestamp_have_the_same_body")
class ComparesTimes(_ComparesBodies):
    def equal(self, stored: Event, original: Event) -> bool:
        return stored.timestamp == original.timestamp and same_body(stored, original)


@caught_by("test_4_events_with_another_timestamp_have_the_same_body")
class ReturnsTheTimeOfTheRepeatedAppend(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        events = [
            msgspec.structs.replace(stored, timestamp=original.timestamp)
            for stored, original in zip(result.events, append.events, strict=True)
        ]
        return msgspec.structs.replace(result, events=tuple(events))


@caught_by("test_4_another_body_for_a_stored_id_is_a_conflict")
class IgnoresLabelsInBodies(_ComparesBodies):
    def equal(self, stored: Event, original: Event) -> bool:
        return same_body(stored, msgspec.structs.replace(original, labels=stored.labels))


@caught_by("test_4_another_body_for_a_stored_id_is_a_conflict")
class NamesNoSeqInAConflict(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        try:
            return await super().appending(append)
        except EventConflict as conflict:
            raise EventConflict(str(conflict), event_id=conflict.event_id, seq=0) from conflict


@caught_by("test_4_events_with_another_key_order_have_the_same_body")
class ComparesBodiesAsText(_ComparesBodies):
    def equal(self, stored: Event, original: Event) -> bool:
        return str(stored.data.to_map()) == str(original.data.to_map())


@caught_by("test_4_numbers_of_different_types_are_different_bodies")
class ComparesNumbersOfDifferentTypesAsEqual(_ComparesBodies):
    def equal(self, stored: Event, original: Event) -> bool:
        return (stored.data, stored.labels) == (original.data, original.labels)


@caught_by("test_4_an_event_with_the_id_of_a_redacted_one_stores_nothing")
class KeepsADigestOfRedactedEvents(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        digests = self.notes.setdefault("digests", {})
        for event in append.events:
            digest = hashlib.sha256(str(event.data.to_map()).encode()).digest()
            if digests.setdefault((append.agent, append.run, event.event_id), digest) != digest:
                raise EventConflict("another body", event_id=event.event_id, seq=1)
        return await super().appending(append)


@caught_by("test_4_event_ids_are_unique_only_within_their_run")
class RequiresUniqueIdsAcrossRuns(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        owners = self.notes.setdefault("owners", {})
        for event in append.events:
            if owners.setdefault(event.event_id, (append.agent, append.run)) != (append.agent, append.run):
                raise EventConflict("in another run", event_id=event.event_id, seq=1)
        return await super().appending(append)


@caught_by("test_4_events_without_an_id_get_unique_ids")
class GivesEqualEventsEqualIds(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.events = tuple(
            event if event.event_id else msgspec.structs.replace(event, event_id=f"of {event.data!r}"[:512])
            for event in append.events
        )
        return await super().appending(append)


@caught_by("test_4_two_calls_of_new_event_make_two_events", "test_3_many_tasks_on_one_handle_leave_no_gap")
class StoresEqualBodiesOnce(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        ids_by_body: dict[str, str] = self.notes.setdefault("seen", {})
        append.events = tuple(
            msgspec.structs.replace(event, event_id=ids_by_body.setdefault(str(event.data)[:20], event.event_id))
            for event in append.events
        )
        return await super().appending(append)
