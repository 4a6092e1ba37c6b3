"""Defects of refusals: stores that accept invalid content, or do not name the wrong field."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from typing import Any

import msgspec

from agent_memory_log import Annotation, AppendResult, Event, new_event
from agent_memory_log.errors import InvalidEvent
from tests.conformance.broken_stores.base import Append, BrokenStore, caught_by


class _RepairsInvalidEvents(BrokenStore):
    """A store that repairs and stores an invalid event if ``accepts`` returns true for the error."""

    def accepts(self, error: InvalidEvent) -> bool:
        return bool(error.field)

    def repaired(self, event: Event) -> Event:
        return msgspec.structs.replace(event, data=_replacement(), labels={})

    async def appending(self, append: Append) -> AppendResult:
        try:
            return await super().appending(append)
        except InvalidEvent as error:
            if not self.accepts(error):
                raise
            append.events = tuple(self.repaired(event) for event in append.events)
            return await super().appending(append)


def _replacement() -> Annotation:
    return Annotation(message="repaired")


class _RepairsInvalidPayloads(_RepairsInvalidEvents):
    word = ""

    def accepts(self, error: InvalidEvent) -> bool:
        return self.word in str(error) and error.field.startswith("data")

    def repaired(self, event: Event) -> Event:
        return msgspec.structs.replace(event, type="annotation", data=_replacement())


@caught_by("test_10_append_refuses_lone_surrogates_in_payloads", "test_1_a_batch_with_an_invalid_event_stores_nothing")
class AcceptsLoneSurrogates(_RepairsInvalidPayloads):
    word = "surrogate"


@caught_by(
    "test_10_append_refuses_numbers_that_json_cannot_write", "test_1_a_batch_with_an_invalid_event_stores_nothing"
)
class AcceptsNan(_RepairsInvalidPayloads):
    word = "nan"


@caught_by("test_10_append_refuses_json_nested_too_deeply")
class AcceptsAnyDepth(_RepairsInvalidPayloads):
    word = "deep"


@caught_by("test_10_append_refuses_wrong_types_in_payload_fields")
class AcceptsWrongTypes(_RepairsInvalidPayloads):
    def accepts(self, error: InvalidEvent) -> bool:
        return error.field == "data.message"


@caught_by("test_10_append_refuses_values_that_are_not_events")
class DropsValuesThatAreNotEvents(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.events = tuple(event for event in append.events if isinstance(event, Event))
        return await super().appending(append)


@caught_by("test_10_append_refuses_times_that_utc_cannot_hold")
class StoresNaiveTimesAsUtc(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.events = tuple(
            msgspec.structs.replace(event, timestamp=event.timestamp.replace(tzinfo=UTC)) for event in append.events
        )
        return await super().appending(append)


@caught_by("test_11_append_refuses_labels_that_are_not_text_or_too_large")
class AcceptsAnyLabels(_RepairsInvalidEvents):
    def accepts(self, error: InvalidEvent) -> bool:
        return error.field.startswith("labels")

    def repaired(self, event: Event) -> Event:
        return msgspec.structs.replace(event, labels={})


@caught_by("test_10_append_refuses_meta_that_is_not_json")
class AcceptsAnyMeta(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        try:
            return await super().appending(append)
        except InvalidEvent:
            append.meta = None
            return await super().appending(append)


@caught_by("test_10_redact_refuses_a_reason_that_is_not_text")
class AcceptsAnyReason(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: Any = "") -> AppendResult:
        text = str(reason).encode(errors="replace").decode()
        return await super().redact_events(agent, run, seqs, reason=text)


@caught_by("test_10_redact_refuses_a_reason_that_is_not_text")
class RedactsBeforeCheckingTheReason(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        requested = list(seqs)
        try:
            return await super().redact_events(agent, run, requested, reason=reason)
        except InvalidEvent:
            await super().redact_events(agent, run, requested)
            raise


@caught_by(
    "test_10_append_refuses_lone_surrogates_in_payloads",
    "test_10_append_refuses_numbers_that_json_cannot_write",
    "test_10_append_refuses_json_nested_too_deeply",
    "test_10_append_refuses_wrong_types_in_payload_fields",
    "test_10_append_refuses_times_that_utc_cannot_hold",
    "test_11_append_refuses_labels_that_are_not_text_or_too_large",
    "test_11_append_refuses_wrong_event_ids",
    "test_11_every_method_refuses_wrong_run_and_agent_ids",
)
class NamesNoField(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        try:
            return await super().appending(append)
        except InvalidEvent as error:
            raise InvalidEvent(str(error), field="") from error


@caught_by(
    "test_10_append_refuses_lone_surrogates_in_payloads", "test_10_append_refuses_numbers_that_json_cannot_write"
)
class CreatesTheRunBeforeCheckingEvents(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        try:
            return await super().appending(append)
        except InvalidEvent:
            await super().appending(Append(append.agent, append.run, (new_event(Annotation()),)))
            raise
