"""Defects of content: stores that change the content of events."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, timedelta, timezone
from typing import Any

import msgspec

from agent_memory_log import AppendResult, Event, EventData, JsonValue, Snapshot, UnknownPayload
from tests.conformance.broken_stores.base import Append, BrokenStore, Load, caught_by, changed_copy, with_data


class _ChangesEvents(BrokenStore):
    """A store that changes every event before it stores it. A subclass overrides ``change`` or ``stored``."""

    def change(self, value: JsonValue) -> JsonValue:
        return value

    def stored(self, event: Event) -> Event:
        return with_data(event, self.change)

    async def appending(self, append: Append) -> AppendResult:
        append.events = tuple(self.stored(event) for event in append.events)
        return await super().appending(append)


class _ChangesText(_ChangesEvents):
    """A store that changes every text in values, labels and keys."""

    def text(self, text: str) -> str:
        return text

    def change(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): inner for key, inner in value.items()}
        return value

    def stored(self, event: Event) -> Event:
        labels = {self.text(key): self.text(value) for key, value in event.labels.items()}
        return msgspec.structs.replace(super().stored(event), labels=labels)

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        return await super().redact_events(agent, run, seqs, reason=self.text(reason))


@caught_by(
    "test_10_any_text_comes_back_unchanged",
    "test_10_any_labels_come_back_unchanged",
    "test_10_any_redaction_reason_comes_back_unchanged",
    "test_10_large_content_comes_back_unchanged",
)
class EndsTextAtANul(_ChangesText):
    def text(self, text: str) -> str:
        return text.split("\x00", 1)[0]


@caught_by(
    "test_10_any_text_comes_back_unchanged",
    "test_10_any_json_value_comes_back_unchanged",
    "test_10_any_labels_come_back_unchanged",
)
class NormalizesText(_ChangesText):
    def text(self, text: str) -> str:
        return unicodedata.normalize("NFC", text)


@caught_by(
    "test_10_any_text_comes_back_unchanged",
    "test_10_any_labels_come_back_unchanged",
    "test_10_any_redaction_reason_comes_back_unchanged",
)
class TrimsText(_ChangesText):
    def text(self, text: str) -> str:
        return text.strip()


@caught_by("test_10_any_text_comes_back_unchanged", "test_10_large_content_comes_back_unchanged")
class LosesAstralCharacters(_ChangesText):
    def text(self, text: str) -> str:
        return "".join(character if character < "\U00010000" else "\ufffd" for character in text)


@caught_by("test_10_any_json_value_comes_back_unchanged", "test_13_an_unknown_type_comes_back_unchanged")
class TurnsLargeIntegersToFloats(_ChangesEvents):
    def change(self, value: JsonValue) -> JsonValue:
        if isinstance(value, int) and 2**63 <= abs(value) < 10**300:
            return float(value)
        return value


@caught_by("test_10_any_json_value_comes_back_unchanged", "test_13_an_unknown_type_comes_back_unchanged")
class TurnsIntegralFloatsToIntegers(_ChangesEvents):
    def change(self, value: JsonValue) -> JsonValue:
        return int(value) if isinstance(value, float) and value.is_integer() else value


@caught_by("test_10_any_json_value_comes_back_unchanged")
class LosesTheSignOfZero(_ChangesEvents):
    def change(self, value: JsonValue) -> JsonValue:
        return 0.0 if str(value) == "-0.0" else value


@caught_by("test_10_any_json_value_comes_back_unchanged", "test_13_an_unknown_type_comes_back_unchanged")
class EscapesDollarsAndDotsInKeys(_ChangesEvents):
    def change(self, value: JsonValue) -> JsonValue:
        if isinstance(value, dict):
            return {key.replace("$", "\uff04").replace(".", "\uff0e"): inner for key, inner in value.items()}
        return value


@caught_by("test_10_any_json_value_comes_back_unchanged", "test_13_an_unknown_type_comes_back_unchanged")
class LosesEmptyKeys(_ChangesEvents):
    def change(self, value: JsonValue) -> JsonValue:
        return {key: inner for key, inner in value.items() if key} if isinstance(value, dict) else value


@caught_by("test_10_every_payload_comes_back_unchanged", "test_10_any_json_value_comes_back_unchanged")
class StoresEmptyStructuredAsNone(_ChangesEvents):
    def stored(self, event: Event) -> Event:
        built = event.to_map()
        data: Any = built["data"]
        return Event.from_map({**built, "data": {**data, "structured": data.get("structured") or None}})


@caught_by("test_10_every_payload_comes_back_unchanged")
class StoresZeroTotalAsNone(_ChangesEvents):
    def change(self, value: JsonValue) -> JsonValue:
        return {**value, "Total": value["Total"] or None} if isinstance(value, dict) and "Total" in value else value


@caught_by("test_10_json_text_is_stored_byte_for_byte", "test_10_every_payload_comes_back_unchanged")
class RewritesJsonText(_ChangesEvents):
    def change(self, value: JsonValue) -> JsonValue:
        if isinstance(value, dict):
            return {
                key: self.rewrite(inner) if key in ("payload", "result_json", "server_data") else inner
                for key, inner in value.items()
            }
        return value

    def rewrite(self, text: JsonValue) -> JsonValue:
        try:
            return json.dumps(json.loads(str(text)), separators=(",", ":"))
        except (TypeError, ValueError):
            return text


@caught_by("test_10_large_content_comes_back_unchanged")
class CutsLongText(_ChangesText):
    def text(self, text: str) -> str:
        return text[:65_535]


@caught_by("test_10_json_nested_to_the_limit_comes_back_unchanged", "test_10_any_json_value_comes_back_unchanged")
class LosesDeeplyNestedValues(_ChangesEvents):
    def stored(self, event: Event) -> Event:
        built = event.to_map()
        return Event.from_map({**built, "data": _shallow(built["data"], 40)})


def _shallow(value: JsonValue, depth: int) -> JsonValue:
    if isinstance(value, dict):
        return {key: _shallow(inner, depth - 1) for key, inner in value.items()} if depth else {}
    if isinstance(value, list):
        return [_shallow(inner, depth - 1) for inner in value] if depth else []
    return value


@caught_by("test_10_any_bytes_come_back_unchanged", "test_10_every_payload_comes_back_unchanged")
class StoresBytesAsText(_ChangesEvents):
    def stored(self, event: Event) -> Event:
        redacted = getattr(event.data, "redacted", None)
        if not isinstance(redacted, bytes):
            return event
        text = redacted.decode(errors="replace").encode()
        return msgspec.structs.replace(event, data=msgspec.structs.replace(event.data, redacted=text))


@caught_by("test_10_times_keep_their_microseconds_in_utc", "test_1_an_append_stores_its_events_in_order")
class CutsTimesToMilliseconds(_ChangesEvents):
    def stored(self, event: Event) -> Event:
        time = event.timestamp
        return msgspec.structs.replace(event, timestamp=time.replace(microsecond=time.microsecond // 1000 * 1000))


@caught_by("test_10_times_keep_their_microseconds_in_utc")
class StoresTimesAsFloats(_ChangesEvents):
    def stored(self, event: Event) -> Event:
        epoch = event.timestamp.replace(year=1970, month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
        seconds = (event.timestamp - epoch).total_seconds()
        return msgspec.structs.replace(event, timestamp=epoch + timedelta(seconds=float(f"{seconds:.14g}")))


@caught_by("test_10_a_time_with_another_offset_is_stored_in_utc", "test_10_times_keep_their_microseconds_in_utc")
class ReturnsTimesInAnotherZone(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        current = timezone(timedelta(minutes=1))
        return changed_copy(
            snapshot,
            [
                msgspec.structs.replace(event, timestamp=event.timestamp.astimezone(current))
                if 1 < event.timestamp.year < 9999
                else event
                for event in snapshot.log
            ],
        )


@caught_by("test_10_a_time_with_another_offset_is_stored_in_utc")
class StoresLocalTimesAsUtc(_ChangesEvents):
    def stored(self, event: Event) -> Event:
        return msgspec.structs.replace(event, timestamp=event.timestamp.replace(tzinfo=UTC))


@caught_by("test_10_any_labels_come_back_unchanged", "test_1_an_append_returns_the_version_the_count_and_the_events")
class LosesLabels(_ChangesEvents):
    def stored(self, event: Event) -> Event:
        return msgspec.structs.replace(event, labels={})


@caught_by("test_10_any_redaction_reason_comes_back_unchanged", "test_12_a_redacted_event_keeps_its_seq_time_and_id")
class LosesTheReasonOfARedaction(BrokenStore):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        return await super().redact_events(agent, run, seqs, reason=reason and "-")


@caught_by(
    "test_13_an_unknown_type_comes_back_unchanged", "test_7_changing_a_loaded_snapshot_does_not_change_the_store"
)
class SkipsUnknownTypesOnReading(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, [event for event in snapshot.log if not isinstance(event.data, UnknownPayload)])

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        async for event in self.follow_correctly(agent, run, after):
            if not isinstance(event.data, UnknownPayload):
                yield event


@caught_by("test_13_an_unknown_type_can_be_selected_and_redacted")
class IgnoresUnknownTypesInSelections(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        if load.types is not None:
            load.types = [type_ for type_ in load.types if "." not in type_]
        return await super().loading(load)


@caught_by("test_13_a_registered_payload_comes_back_typed")
class ReturnsRegisteredPayloadsUntyped(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, [_untyped(event) for event in snapshot.log])


def _untyped(event: Event) -> Event:
    if type(event.data).__module__ == EventData.__module__:
        return event
    return msgspec.structs.replace(event, data=UnknownPayload(type=event.type, data=event.data.to_map()))
