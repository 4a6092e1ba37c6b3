"""Promise 10, first half: any content comes back unchanged, in every field that holds content."""

from __future__ import annotations

from datetime import timedelta, timezone

from agent_memory_log.backend_kit import MAX_LABEL_KEY_LENGTH, MAX_LABELS
from agent_memory_log.conformance.checks import check_exact, check_run
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import (
    AGENT,
    NOON,
    RUN,
    TEXTS,
    TIMES,
    VALUES,
    every_payload,
    nested,
    rich_event,
    unknown_event,
    user_message,
)
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import MAX_DEPTH, JsonValue
from agent_memory_log.events.nested import ToolTelemetry
from agent_memory_log.events.payloads import (
    AssistantMessage,
    RetryHint,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.store import Store

_JSON_TEXTS = (
    '{ "b":1,\n\t"a" : 1.0 ,"c":"\\u00e9\\/" }',
    '{"a":1,"a":2}',
    "[1E400, -0, 1.10, 12345678901234567890123]",
    "null",
    '"text"',
    "not json {",
    '{"cut": "off',
    '{"nul": "\x00", "astral": "\U0001f9ff"}',
)


@contract
class Content(Suite):
    """Tests of the content that a store accepts."""

    async def test_10_every_payload_comes_back_unchanged(self, open_handle: Handles) -> None:
        await _round_trip(open_handle, [*every_payload(), rich_event(), unknown_event()])

    async def test_10_any_text_comes_back_unchanged(self, open_handle: Handles) -> None:
        events: list[Event] = []
        for text in TEXTS.values():
            events += [
                user_message(text),
                new_event(Thinking(text=text, signature=text)),
                new_event(ToolCall(tool_call_id=text, tool_name=text, queue=text)),
                new_event(ToolResult(tool_call_id="", tool_name="", preview=text, error_message=text)),
                new_event(RetryHint(reason=text, missing_fields=(text, text), message=text)),
            ]
        await _round_trip(open_handle, events)

    async def test_10_any_json_value_comes_back_unchanged(self, open_handle: Handles) -> None:
        events: list[Event] = []
        for value in VALUES.values():
            shallow = value if _depth(value) < MAX_DEPTH - 1 else None
            as_map: dict[str, JsonValue] = {"value": shallow}
            events += [
                new_event(UserMessage(structured=value)),
                new_event(AssistantMessage(message="m", structured=value)),
                new_event(RetryHint(example_input=as_map, prior_input=as_map)),
                new_event(ToolResult(tool_call_id="", tool_name="", telemetry=ToolTelemetry(extra=as_map))),
                new_event(UnknownPayload(type="conformance.newer", data=as_map)),
            ]
        await _round_trip(open_handle, events)

    async def test_10_json_text_is_stored_byte_for_byte(self, store: Store) -> None:
        originals: list[Event] = []
        for text in _JSON_TEXTS:
            originals += [
                new_event(ToolCall(tool_call_id="1", tool_name="t", payload_json=text)),
                new_event(ToolResult(tool_call_id="1", tool_name="t", result_json=text, server_data=text)),
            ]
        await store.append_events(AGENT, RUN, *originals)
        log = (await store.load_run(AGENT, RUN)).log
        for index, text in enumerate(_JSON_TEXTS):
            call, result = log[2 * index].data, log[2 * index + 1].data
            assert isinstance(call, ToolCall)
            assert isinstance(result, ToolResult)
            assert (call.payload_json, result.result_json, result.server_data) == (text, text, text)

    async def test_10_large_content_comes_back_unchanged(self, open_handle: Handles) -> None:
        text = "1 MB: \x00\u00e9\U0001f9ff" * 75_000
        pairs: JsonValue = {f"key {number}": [number, str(number)] for number in range(4_000)}
        call = ToolCall(tool_call_id="1", tool_name="t", payload_json='{"a": "' + "x" * 1_000_000 + '"}')
        await _round_trip(open_handle, [user_message(text), user_message("", structured=pairs), new_event(call)])

    async def test_10_json_nested_to_the_limit_comes_back_unchanged(self, open_handle: Handles) -> None:
        hint = RetryHint(example_input={"a": nested(MAX_DEPTH - 2)})
        await _round_trip(open_handle, [user_message("", structured=nested(MAX_DEPTH)), new_event(hint)])

    async def test_10_any_bytes_come_back_unchanged(self, open_handle: Handles) -> None:
        blocks = [b"", b"\x00", b"\xff\xfe", bytes(range(256)) * 3, b"text"]
        await _round_trip(open_handle, [new_event(Thinking(redacted=block, content_index=9)) for block in blocks])

    async def test_10_times_keep_their_microseconds_in_utc(self, open_handle: Handles) -> None:
        await _round_trip(open_handle, [user_message(name, timestamp=time) for name, time in TIMES.items()])

    async def test_10_a_time_with_another_offset_is_stored_in_utc(self, open_handle: Handles) -> None:
        payload = UserMessage(message="made without new_event")
        east = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
        await _round_trip(open_handle, [Event(payload.event_type, east, payload, {}, "east")])

    async def test_10_any_labels_come_back_unchanged(self, open_handle: Handles) -> None:
        events = [user_message("", labels={text[:MAX_LABEL_KEY_LENGTH]: text}) for text in TEXTS.values()]
        events += [
            user_message("", labels=dict.fromkeys(("", "$set", "a.b", ".", "$", "_id", "a", "A", "a "), "")),
            user_message("", labels={str(number): "x" for number in range(MAX_LABELS)}),
            user_message("", labels={"\U0001f9ff" * MAX_LABEL_KEY_LENGTH: "y" * 10_000}),
            user_message("", labels={}),
        ]
        await _round_trip(open_handle, events)

    async def test_10_any_redaction_reason_comes_back_unchanged(self, store: Store) -> None:
        for number, (name, text) in enumerate(TEXTS.items()):
            run = f"run {number}"
            await store.append_events(AGENT, run, user_message("one"))
            await store.redact_events(AGENT, run, [1], reason=text)
            masked, marker = [event.data.to_map() for event in (await store.load_run(AGENT, run)).log]
            assert (masked.get("reason", ""), marker.get("reason", "")) == (text, text), name


async def _round_trip(open_handle: Handles, originals: list[Event]) -> None:
    """Store events in a batch and one by one, and compare them with a read through another handle."""
    writer, reader = await open_handle(), await open_handle()
    result = await writer.append_events(AGENT, RUN, *originals)
    assert len(result.events) == len(originals)
    snapshot = await reader.load_run(AGENT, RUN)
    check_run(snapshot, originals)
    for stored, loaded in zip(result.events, snapshot.log, strict=True):
        assert stored == loaded
        check_exact(stored.to_map(), loaded.to_map(), "the stored event")
    for event in originals[:20]:
        await writer.append_events(AGENT, "one by one", event)
    check_run(await reader.load_run(AGENT, "one by one"), originals[:20])
    assert (await writer.append_events(AGENT, RUN, *originals)).inserted == 0, (
        "the stored events differ from the originals"
    )


def _depth(value: JsonValue) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0
