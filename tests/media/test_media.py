"""Tests that media is checked when it is created, and crosses between providers unchanged, or as a loss with a name."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    Event,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import InvalidArgument, InvalidEvent
from agent_memory_log.events.jsonvalue import JsonValue, encode_canonical, json_or_text
from agent_memory_log.events.payloads import EventData
from agent_memory_log.interchange.atif import from_atif, to_atif
from agent_memory_log.media import FORMATS, MAX_CONTENT_BYTES, Audio, Document, Image, Media, Video
from agent_memory_log.media.formats import NEUTRAL, read_any, read_media
from agent_memory_log.media.media_format import SHORT_NAMES
from agent_memory_log.recording import RunRecorder, SyncRunRecorder
from agent_memory_log.transcript import build, parse, parts_of, provider_names, validate
from tests.effort import EXAMPLES
from tests.transcript.test_transcripts import CASES
from tests.transcript.traffic import Exchange, exchanges
from tests.transcript.transcripts import Message, snapshot_of

PIXEL = base64.b64decode("iVBORw0KGgo=")
PROVIDERS = [name for name in provider_names() if name in FORMATS]
JUDGES = {name: CASES[name].judge for name in PROVIDERS}
every_pair = pytest.mark.parametrize(("source", "target"), list(itertools.permutations(PROVIDERS, 2)))
every_provider = pytest.mark.parametrize("provider", PROVIDERS)

TYPES: dict[type[Media], list[str]] = {
    Image: ["image/png", "image/jpeg", "image/gif", "image/webp", "image/tiff"],
    Document: ["application/pdf", "text/plain", "text/csv", "application/msword", "application/json"],
    Audio: ["audio/wav", "audio/mpeg", "audio/flac"],
    Video: ["video/mp4", "video/x-matroska"],
}

names = st.from_regex(r"[a-zA-Z][a-zA-Z0-9]{0,8}", fullmatch=True)
words = st.text("abc é\n", min_size=1, max_size=8).filter(lambda text: not text.isspace())


@st.composite
def media(draw: st.DrawFn) -> Media:
    """Draw media with data that may be text, or with a URL."""
    kind = draw(st.sampled_from(list(TYPES)))
    media_type = draw(st.sampled_from(TYPES[kind]))
    name = draw(names) if kind is Document else ""
    ending = SHORT_NAMES.get(media_type)
    if ending and draw(st.booleans()):
        return kind.from_url(f"https://example.com/{draw(names)}.{ending}?x=1", name=name)
    return kind.from_bytes(draw(st.text(min_size=1)).encode(), media_type, name=name)


contents = st.lists(words | media(), min_size=1, max_size=5).filter(
    lambda parts: any(isinstance(part, Media) for part in parts)
)


def recorded(content: Sequence[str | Media]) -> list[Event]:
    """Return a run in which the user sends the content, and a tool returns it."""
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "a", "r") as recorder:
        recorder.user("Begin.")
        recorder.assistant("Go on.")
        recorder.user(content)
        recorder.assistant("Yes.")
        with recorder.tool_call("f", {}) as call:
            call.result(list(content))
        return list(store.load_run("a", "r").log)


def contents_of(events: Sequence[Event]) -> tuple[list[str | Media], list[str | Media]]:
    """Return the parts of the user's messages after the first, and of the results.

    A provider may send the text of a result as JSON.
    """
    users = [part for event in events if not isinstance(event.data, ToolResult) for part in parts_of(event.data)]
    results = [part for event in events if isinstance(event.data, ToolResult) for part in parts_of(event.data)]
    texts = [str(json_or_text(part)) if isinstance(part, str) else part for part in results]
    return users[1:], [part for part in texts if part]


def is_accepted(part: str | Media, provider: str, *, in_result: bool) -> bool:
    if isinstance(part, str):
        return True
    try:
        FORMATS[provider].written(part, set(), in_result=in_result)
    except ValueError:
        return False
    return True


def essence(part: str | Media, *providers: str) -> object:
    """Return the text, or the type and the content of media. Every text file is plain text for Anthropic."""
    if isinstance(part, str):
        return part
    media_type = part.media_type
    if "anthropic" in providers and media_type.startswith("text/"):
        media_type = "text/plain"
    return type(part), media_type, part.data, part.url


@every_pair
@settings(max_examples=EXAMPLES // 2)
@given(content=contents)
def test_media_that_both_providers_accept_is_unchanged(source: str, target: str, content: list[str | Media]) -> None:
    first = build(snapshot_of(recorded(content)), source)
    JUDGES[source](first)
    parsed = parse(first, source)
    second = build(snapshot_of(parsed), target)
    JUDGES[target](second)
    crossed = contents_of(parse(second, target))
    lost = 0
    for in_result, parts in enumerate(crossed):
        sent = [part for part in content if is_accepted(part, source, in_result=bool(in_result))]
        both = [part for part in sent if is_accepted(part, target, in_result=bool(in_result))]
        assert texts_joined([essence(part, source, target) for part in parts]) == texts_joined(
            [essence(part, source, target) for part in both]
        )
        lost += len(sent) - len(both)
    assert len([loss for loss in second.losses if loss.reason == "media"]) == lost


def texts_joined(parts: Sequence[object]) -> list[object]:
    """Return the parts, with the texts that follow each other joined. Chat Completions joins the texts of results."""
    joined: list[object] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += f"\n{part}"
        else:
            joined.append(part)
    return joined


@every_provider
@given(content=contents)
def test_recorded_media_is_written_in_the_form_of_each_provider(provider: str, content: list[str | Media]) -> None:
    events = recorded(content)
    assert contents_of(events) == (content, content)
    built = build(snapshot_of(events), provider)
    JUDGES[provider](built)
    assert validate(built, provider) == []
    again = build(snapshot_of(parse(built, provider)), provider)
    assert encode_canonical(again) == encode_canonical(built)
    lost = sum(not is_accepted(part, provider, in_result=in_result) for part in content for in_result in (False, True))
    assert [loss.reason for loss in built.losses] == ["media"] * lost


def exchanges_with_media() -> list[Exchange]:
    return [
        exchange
        for exchange in exchanges()
        if exchange.status == 200 and any(media_in(parse(exchange.messages, exchange.provider)))
    ]


def media_in(events: Sequence[Event]) -> list[Media]:
    return [part for event in events for part in parts_of(event.data) if isinstance(part, Media)]


@pytest.mark.parametrize("exchange", exchanges_with_media(), ids=lambda exchange: exchange.name)
def test_media_of_real_traffic_crosses_or_is_named(exchange: Exchange) -> None:
    events = parse(exchange.messages, exchange.provider)
    sent = media_in(events)
    for target in PROVIDERS:
        if target == exchange.provider:
            continue
        built = build(snapshot_of(events), target)
        JUDGES[target](built)
        received = media_in(parse(built, target))
        assert len(received) + sum(loss.reason == "media" for loss in built.losses) == len(sent)
        assert {part.data for part in received} <= {part.data for part in sent}


# Each provider's form.

PDF = Document.from_bytes(b"%PDF", "application/pdf", name="report")
IMAGE = Image.from_bytes(PIXEL, "image/png")


def only_part(provider: str, payload: EventData) -> Any:
    (message,) = build(snapshot_of([new_event(payload)]), provider)
    (part,) = message["content"]
    return part


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("anthropic", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE.data}}),
        ("openai-chat", {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE.data}"}}),
        (
            "openai-responses",
            {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{IMAGE.data}"},
        ),
        ("bedrock", {"image": {"format": "png", "source": {"bytes": IMAGE.data}}}),
    ],
)
def test_image_of_the_user(provider: str, expected: JsonValue) -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "a", "r") as recorder:
        event = recorder.user(IMAGE)
    assert only_part(provider, event.data) == expected
    assert read_any(only_part(provider, event.data)) in (IMAGE, Image.from_bytes(PIXEL, "image/png", detail="auto"))


def user(part: Message, provider: str) -> UserMessage:
    return UserMessage("", {provider: {"parts": [{"part": part}]}})


def test_text_of_a_document_becomes_a_text_document() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Größe"}
    part: Message = {"type": "document", "title": "Notes.txt", "source": source}
    assert only_part("bedrock", user(part, "anthropic")) == {
        "document": {"format": "txt", "name": "Notes", "source": {"bytes": base64.b64encode("Größe".encode()).decode()}}
    }
    assert only_part("anthropic", user(only_part("bedrock", user(part, "anthropic")), "bedrock"))["source"] == source


def test_documents_of_one_transcript_have_different_names_on_bedrock() -> None:
    part: Message = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF.data},
    }
    titled = [{**part, "title": title} for title in ("a_b.pdf", "A  b", "é")]
    built = build(snapshot_of([new_event(user(block, "anthropic")) for block in [part, *titled, part]]), "bedrock")
    blocks = [block["document"]["name"] for message in built for block in message["content"]]
    assert blocks == ["Document", "a b", "A b 2", "Document 2", "Document 3"]
    assert all(re.fullmatch(r"[a-zA-Z0-9\s()\[\]-]{1,200}", name) for name in blocks)


@pytest.mark.parametrize(
    ("part", "source", "target", "message"),
    [
        (
            {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/k"}}}},
            "bedrock",
            "anthropic",
            "bedrock",
        ),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "anthropic", "bedrock", "file at anthropic"),
        ({"type": "image", "source": {"type": "url", "url": "https://x.y/z"}}, "anthropic", "bedrock", "no URL"),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            "openai-chat",
            "anthropic",
            "audio",
        ),
        ({"image": {"format": "bmp", "source": {"bytes": "AAAA"}}}, "bedrock", "anthropic", "cannot be read"),
    ],
)
def test_loss_says_what_where_and_why(part: Message, source: str, target: str, message: str) -> None:
    built = build(snapshot_of([new_event(user(part, source))]), target)
    ((reason, text, seq, kind),) = [(loss.reason, loss.message, loss.seq, loss.type) for loss in built.losses]
    assert (reason, seq, kind) == ("media", 1, "user_message")
    assert message in text
    assert built == []


def test_fields_beside_the_media_are_named() -> None:
    part: Message = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
        "context": "A contract.",
        "cache_control": {"type": "ephemeral"},
    }
    built = build(snapshot_of([new_event(user(part, "anthropic"))]), "openai-chat")
    assert [(loss.reason, loss.message) for loss in built.losses] == [
        ("other_provider", "context, which only Anthropic accepts in this form")
    ]
    assert len(built) == 1


def test_computer_call_returns_a_screenshot() -> None:
    item: Message = {
        "type": "computer_call",
        "call_id": "c",
        "id": "i",
        "action": {"type": "screenshot"},
        "pending_safety_checks": [],
        "status": "completed",
    }
    with open_sync_store("memory:") as store:
        store.append_events("a", "r", *parse([item], "openai-responses"))
        with SyncRunRecorder(store, "a", "r") as recorder:
            (event,) = [event for event in store.load_run("a", "r").log if isinstance(event.data, ToolCall)]
            with recorder.tool_call(event) as call:
                call.result([IMAGE, PDF])
        built = build(store.load_run("a", "r"), "openai-responses")
    assert built[1]["output"] == {"type": "computer_screenshot", "image_url": IMAGE.data_url}
    assert [loss.reason for loss in built.losses] == ["media"]
    CASES["openai-responses"].judge(built)


def test_failed_result_keeps_its_media() -> None:
    block: Message = {
        "type": "tool_result",
        "tool_use_id": "c",
        "is_error": True,
        "content": [
            {"type": "text", "text": "broken"},
            {"type": "image", "source": {"type": "url", "url": "http://x/a"}},
        ],
    }
    call: Message = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    events = parse([call, {"role": "user", "content": [block]}], "anthropic")
    output = build(snapshot_of(events), "openai-responses")[1]["output"]
    assert output == [
        {"type": "input_text", "text": "broken"},
        {"type": "input_image", "detail": "auto", "image_url": "http://x/a"},
    ]


# Refusals.


@pytest.mark.parametrize(
    ("create", "field"),
    [
        (lambda: Image.from_bytes(b"", "image/png"), "data"),
        (lambda: Image.from_bytes("text", "image/png"), "data"),  # type: ignore[arg-type]
        (lambda: Image.from_bytes(b"x", ""), "media_type"),
        (lambda: Image.from_bytes(b"x", "audio/wav"), "media_type"),
        (lambda: Document.from_bytes(b"x", "image/png"), "media_type"),
        (lambda: Audio.from_bytes(b"x", "audio/\n"), "media_type"),
        (lambda: Image(media_type="image/png", data="A"), "data"),
        (lambda: Image(media_type="image/png", data="AB=="), "data"),
        (lambda: Image(media_type="image/png", data="AA AA"), "data"),
        (lambda: Image(media_type="image/png", data="ÄÄÄÄ"), "data"),
        (lambda: Image(media_type="image/png", data=b"AAAA"), "data"),  # type: ignore[arg-type]
        (Image, "data"),
        (lambda: Image.from_url("file:///etc/passwd"), "url"),
        (lambda: Image.from_url("x" * 10_000), "url"),
        (lambda: Image.from_url(7), "url"),  # type: ignore[arg-type]
        (lambda: Image(file_id="f"), "provider"),
        (lambda: Image.from_url("https://x.y/z", detail="most"), "detail"),
        (lambda: Image.from_url("https://x.y/z", name="n" * 10_000), "name"),
        (lambda: Image.from_bytes(bytes(MAX_CONTENT_BYTES + 1), "image/png"), "data"),
        (lambda: Image.from_bytes(bytes(MAX_CONTENT_BYTES * 3 // 4 + 3), "image/png"), "data"),
    ],
)
def test_media_that_is_not_valid_is_refused_with_the_field(create: Callable[[], Media], field: str) -> None:
    with pytest.raises(InvalidArgument, match=field):
        create()


def test_content_that_is_not_valid_is_refused_with_the_field() -> None:
    half = Image.from_bytes(bytes(MAX_CONTENT_BYTES // 2), "image/png")
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "a", "r") as recorder:
        bad: list[Any] = [IMAGE, 7]
        with pytest.raises(InvalidEvent, match=r"message\[1\] must be text or media, got int 7"):
            recorder.user(bad)
        with pytest.raises(InvalidEvent, match=r"message has .* the limit is 33,554,432"):
            recorder.user([half, half])
        with pytest.raises(InvalidArgument, match="structured"):
            recorder.user([IMAGE], structured={"a": 1})
        assert store.load_run("a", "r").log == ()
        with recorder.tool_call("f") as call:
            with pytest.raises(InvalidEvent, match=r"result_json\[1\] must be text or media"):
                call.result(bad)
            call.result(["list", "of texts"])
        assert [
            event.data.result_json for event in store.load_run("a", "r").log if isinstance(event.data, ToolResult)
        ] == ['["list","of texts"]']


async def test_async_recorder_takes_media() -> None:
    async with await open_store("memory:") as store, RunRecorder(store, "a", "r") as recorder:
        event = await recorder.user(["Look", IMAGE], key="ask")
        assert (await recorder.user(["Look", IMAGE], key="ask")).seq == event.seq
    assert parts_of(event.data) == ["Look", IMAGE]
    assert isinstance(event.data, UserMessage)
    assert event.data.message == "Look"


# Stored content that is damaged, and other uses.


@pytest.mark.parametrize(
    "structured",
    [
        {NEUTRAL: 7},
        {NEUTRAL: {"parts": 7}},
        {NEUTRAL: {"parts": [9]}},
        {NEUTRAL: {"parts": [{"part": {"type": "image", "data": 7}}]}},
        {NEUTRAL: {"parts": [{"part": {"type": "image"}}]}},
        {NEUTRAL: {"parts": [{"part": 7}]}},
        {"anthropic": {"parts": [{"part": {"type": "image", "source": 7}}]}},
        {"openai-chat": {"fields": {"content": 7}}},
        {"openai-responses": {"fields": {"content": [{"type": "input_file"}]}}},
    ],
)
def test_damaged_media_never_raises(structured: JsonValue) -> None:
    data = UserMessage("text", structured)
    assert all(isinstance(part, str) for part in parts_of(data))
    for provider in provider_names():
        build(snapshot_of([new_event(data)]), provider)


def test_reader_of_each_form_never_raises_another_error() -> None:
    content: JsonValue = {"type": "content", "content": [7]}
    odd_values: list[JsonValue] = [None, 7, "x", [], {}, {"source": 7}, {"source": content}, content]
    for media_format in FORMATS.values():
        for kind in ("image", "document", "image_url", "input_image", "input_file", "input_audio", "file", "audio"):
            for value in odd_values:
                part: dict[str, Any] = {"type": kind, kind: value, "source": value}
                with suppress(ValueError):
                    read_media(part, media_format)


def test_images_are_exported_to_atif_and_come_back() -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "a", "r") as recorder:
        recorder.user(["See", IMAGE, PDF])
        document = to_atif(store.load_run("a", "r"))
        steps: Any = document["steps"]
        assert steps[0]["message"] == [
            {"type": "text", "text": "See"},
            {"type": "image", "source": {"media_type": "image/png", "path": IMAGE.data_url}},
        ]
        assert [event.data for event in from_atif(document).events] == [
            event.data for event in store.load_run("a", "r").log
        ]


def test_images_of_a_trajectory_are_sent_to_models() -> None:
    image = {"type": "image", "source": {"media_type": "image/png", "path": "https://x.y/z"}}
    step = {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "See"}, image]}
    run = from_atif(
        {"schema_version": "ATIF-v1.5", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": [step]}
    )
    built = build(snapshot_of(run.events), "anthropic")
    assert not built.losses
    assert built[0]["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image", "source": {"type": "url", "url": "https://x.y/z"}},
    ]


def test_payloads_without_parts() -> None:
    assert parts_of(UserMessage("text")) == ["text"]
    assert parts_of(ToolResult("c", "f", error_message="broken")) == ["broken"]
    assert parts_of(UserMessage()) == []
    assert parts_of(SystemMessage("text")) == []


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"inlineData": {"mimeType": "image/png", "data": "-_8"}}, Image(media_type="image/png", data="+/8=")),
        ({"inline_data": {"mime_type": "audio/wav", "data": "AAAA"}}, Audio(media_type="audio/wav", data="AAAA")),
        ({"fileData": {"fileUri": "https://x.y/z.mp4"}}, Video.from_url("https://x.y/z.mp4", "video/mp4")),
        (
            {"fileData": {"fileUri": "gs://b/k", "mimeType": "video/mp4"}},
            Video.from_file_id("gs://b/k", "gemini", "video/mp4"),
        ),
        ({"text": "t"}, None),
    ],
)
def test_parts_of_gemini_are_read(part: Message, expected: Media | None) -> None:
    assert read_media(part, FORMATS["gemini"]) == expected


def test_blank_text_beside_media_is_left_out_for_other_providers() -> None:
    url = {"url": "https://x.y/z.png"}
    content: list[JsonValue] = [
        {"type": "text", "text": " "},
        {"type": "image_url", "image_url": url},
        {"type": "text", "text": "See"},
    ]
    events = parse([{"role": "user", "content": content}], "openai-chat")
    built = build(snapshot_of(events), "anthropic")
    assert [block["type"] for block in built[0]["content"]] == ["image", "text"]
    assert validate(built, "anthropic") == []
    assert not built.losses
