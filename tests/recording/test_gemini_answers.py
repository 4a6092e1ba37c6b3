"""Tests what only Gemini's answers have: the client of Google's SDK, blocked prompts, streams of arguments."""

from __future__ import annotations

import base64
import json
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import Annotation, AssistantMessage, JsonValue, ToolCall, open_sync_store
from agent_memory_log.errors import DecodeError
from agent_memory_log.interchange.usage import usage_in
from agent_memory_log.recording import RecordedResponse, SyncRunRecorder
from agent_memory_log.recording.streams import joined
from agent_memory_log.replay import Replayer
from agent_memory_log.transcript import build, request, validate
from tests.recording.test_record_response import AGENT, GENERATED, RUN

MODEL = "gemini-3-pro-preview"
SIGNATURE = base64.b64encode(b"signed \xff\xfe").decode()
CALLING = {"functionCall": {"name": "find", "args": {"a": 1}}, "thoughtSignature": SIGNATURE}
USAGE = {
    "promptTokenCount": 10,
    "cachedContentTokenCount": 4,
    "toolUsePromptTokenCount": 3,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 2,
    "totalTokenCount": 20,
}


def answer(*parts: object, **fields: object) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", "index": 0}
    return {"candidates": [{**candidate, **fields}], "usageMetadata": USAGE, "modelVersion": MODEL, "responseId": "r"}


def record(response: object, provider: str | None = None) -> tuple[RecordedResponse, list[Any]]:
    """Return the recorded response and the contents to send back."""
    with open_sync_store("memory:") as store, SyncRunRecorder(store, AGENT, RUN) as recorder:
        recorded = recorder.record_response(response, provider=provider)
        return recorded, list(build(store.load_run(AGENT, RUN), "gemini"))


class Server:
    """Answers the requests of Google's client, and keeps their bodies."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.bodies: list[dict[str, Any]] = []

    def client(self) -> Any:
        httpx = import_module("httpx2")  # google-genai requires it

        def respond(sent: Any) -> Any:
            self.bodies.append(json.loads(sent.content))
            text = json.dumps(self.answers.pop(0))
            if "alt=sse" in str(sent.url):
                return httpx.Response(200, text=f"data: {text}\r\n\r\n", headers={"content-type": "text/event-stream"})
            return httpx.Response(200, text=text, headers={"content-type": "application/json"})

        transport = httpx.Client(transport=httpx.MockTransport(respond))
        genai = import_module("google.genai")
        return genai.Client(api_key="x", http_options=genai.types.HttpOptions(httpx_client=transport))


def next_answer(client: Any, recorder: SyncRunRecorder, store: Any, *, streams: bool) -> RecordedResponse:
    """Send the recorded request, and record the answer."""
    config = request(store.load_run(AGENT, RUN), "gemini")
    contents, name = list(config.pop("contents")), config.pop("model")
    send = client.models.generate_content_stream if streams else client.models.generate_content
    return recorder.record_response(send(model=name, contents=contents, config=config))


@pytest.mark.parametrize("streams", [False, True])
def test_conversation_with_the_client_of_the_sdk_is_exact(streams: bool) -> None:
    server = Server(answer(CALLING, CALLING), answer({"text": "Done.", "thoughtSignature": SIGNATURE}))
    tools: JsonValue = [{"functionDeclarations": [{"name": "find", "parametersJsonSchema": {"type": "object"}}]}]
    with open_sync_store("memory:") as store, SyncRunRecorder(store, AGENT, RUN) as recorder:
        recorder.request("gemini", MODEL, system={"parts": [{"text": "Be kind."}]}, tools=tools)
        recorder.user("Find it.")
        client = server.client()
        for call_event in reversed(next_answer(client, recorder, store, streams=streams).tool_calls):
            assert isinstance(call_event.data, ToolCall)
            with recorder.tool_call(call_event) as call:
                call.result({"of": call_event.data.tool_call_id})
        next_answer(client, recorder, store, streams=streams)
        snapshot = store.load_run(AGENT, RUN)
    transcript = build(snapshot, "gemini")
    responses = [
        {"functionResponse": {"name": "find", "response": {"of": f"gemini_call_{number}"}}} for number in (1, 2)
    ]
    assert list(transcript) == [
        {"role": "user", "parts": [{"text": "Find it."}]},
        {"role": "model", "parts": [CALLING, CALLING]},
        {"role": "user", "parts": responses},
        {"role": "model", "parts": [{"text": "Done.", "thoughtSignature": SIGNATURE}]},
    ]
    assert validate(transcript, "gemini", request={"model": MODEL}) == []
    sent = json.dumps(server.bodies[1]).replace("_-", "/+")  # the SDK writes the other alphabet of base64
    assert sent.count(SIGNATURE) == 2
    assert "Be kind." in sent
    with Replayer(snapshot) as replayer:
        replayer.expect_messages(transcript[:1])
        turn = replayer.model_turn()
        assert list(turn.messages) == [transcript[1]]
        for call_event in reversed(turn.tool_calls):
            replayer.tool_result(call_event)
        replayer.expect_messages(transcript[:3])
        last = replayer.model_turn()
        assert (last.text, list(last.messages)) == ("Done.", [transcript[3]])


def test_answer_as_a_python_dump_of_the_sdk_is_recorded() -> None:
    objects = import_module("google.genai.types").GenerateContentResponse.model_validate_json(json.dumps(GENERATED))
    recorded, _ = record(objects.model_dump())
    assert [event.type for event in recorded.events] == [
        "thinking",
        "assistant_message",
        "tool_call",
        "tool_call",
    ]
    expected = {"model": "gemini-3-pro", "response_id": "resp_1", "stop_reason": "STOP"}
    assert expected.items() <= recorded.events[0].labels.items()
    assert "usage" in recorded.events[0].labels


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USAGE}, "PROHIBITED_CONTENT"),
        ({"candidates": [{"finishReason": "MAX_TOKENS", "content": {"role": "model"}}]}, "MAX_TOKENS"),
        ({"candidates": [{"finishReason": "SAFETY", "index": 0}]}, "SAFETY"),
        ([{"promptFeedback": {"blockReason": "SAFETY"}}], "SAFETY"),
        ([answer({"text": ""}, finishReason="MALFORMED_FUNCTION_CALL")], "MALFORMED_FUNCTION_CALL"),
    ],
)
def test_answer_without_content_is_empty_and_names_its_reason(response: Any, reason: str) -> None:
    recorded, contents = record(response)
    assert contents == []
    (event,) = recorded.events
    assert isinstance(event.data, Annotation)
    assert (event.labels["provider"], event.labels["stop_reason"]) == ("gemini", reason)


def test_metadata_of_an_answer_is_no_part_of_the_transcript() -> None:
    fields: dict[str, Any] = {
        "groundingMetadata": {"webSearchQueries": ["x"]},
        "urlContextMetadata": {"urlMetadata": []},
    }
    image = {"inlineData": {"mimeType": "image/png", "data": SIGNATURE}}
    recorded, contents = record(answer({"text": "See "}, image, {"text": "this."}, **fields))
    assert contents == [{"role": "model", "parts": [{"text": "See "}, image, {"text": "this."}]}]
    assert recorded.text == "See this."
    usage = usage_in(recorded.events)
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read, usage.reasoning) == (13, 7, 4, 2)


REFUSED: list[tuple[Any, str]] = [
    ({"candidates": [{"content": {}}, {"content": {}}]}, "one candidate, got 2"),
    ({"candidates": []}, "one candidate, got 0"),
    ([{"candidates": [{"index": 1, "content": {"parts": [{"text": "B"}]}}]}], "several candidates"),
]


@pytest.mark.parametrize(("response", "message"), REFUSED)
def test_answer_with_several_candidates_is_refused(response: Any, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        record(response)


# Streams.


def streamed(*parts: dict[str, Any]) -> list[Any]:
    """Return the parts of the answer that a stream with one part in each chunk makes up."""
    contents: list[Any] = joined([answer(part) for part in parts], "gemini").answer["candidates"][0]["content"]["parts"]
    return contents


def test_texts_are_joined_and_signed_parts_stay_alone() -> None:
    thought = {"text": "b", "thought": True, "thoughtSignature": SIGNATURE}
    last = {"text": "", "thoughtSignature": SIGNATURE}
    parts: list[dict[str, Any]] = [
        {"text": "a", "thought": True},
        {"text": "a", "thought": True},
        thought,
        {"text": "c"},
        {"text": "d"},
        last,
    ]
    assert streamed(*parts) == [{"text": "aa", "thought": True}, thought, {"text": "cd"}, last]


def piece(path: str, **value: object) -> dict[str, Any]:
    return {"jsonPath": path, **value}


def chunk(*pieces: dict[str, Any], goes_on: bool = True, **fields: object) -> dict[str, Any]:
    more: dict[str, Any] = {"willContinue": True} if goes_on else {}
    return {"functionCall": {**fields, **({"partialArgs": list(pieces)} if pieces else {}), **more}}


def test_arguments_that_stream_in_pieces_make_up_a_call() -> None:
    parts: list[dict[str, Any]] = [
        {**chunk(name="find", id="c1"), "thoughtSignature": SIGNATURE},
        chunk(piece("$.place.name", stringValue="New "), piece("$.n", numberValue=2)),
        chunk(piece("$.place.name", stringValue="York"), piece("$.tags[0]", stringValue="a")),
        chunk(piece("$.tags[0]", stringValue="b"), piece("$.tags[1].x", boolValue=False)),
        chunk(piece("$['odd.key']", nullValue="NULL_VALUE"), goes_on=False),
        {"functionCall": {"name": "other", "args": {}}},
    ]
    arguments = {"place": {"name": "New York"}, "n": 2, "tags": ["ab", {"x": False}], "odd.key": None}
    call = {"functionCall": {"id": "c1", "name": "find", "args": arguments}, "thoughtSignature": SIGNATURE}
    assert streamed(*parts) == [call, parts[-1]]
    assert streamed(parts[0], chunk(goes_on=False)) == [
        {"functionCall": {"id": "c1", "name": "find", "args": {}}, "thoughtSignature": SIGNATURE}
    ]


@pytest.mark.parametrize("path", ["", "$", "$.a[99999999999]", "$[0]", "$.a.b", "$" + ".a" * 2000, 5, None])
def test_argument_at_an_impossible_path_is_refused(path: Any) -> None:
    with pytest.raises(DecodeError, match="without a valid path"):
        streamed(chunk(piece("$.a", stringValue="x"), name="f"), chunk(piece(path, stringValue="y")))


@given(st.lists(st.sampled_from(["a", "b", "", "cc"]), min_size=1, max_size=6), st.integers(0, 6))
def test_text_does_not_depend_on_the_chunks(texts: list[str], end: int) -> None:
    chunks = [answer({"text": text}) for text in texts]
    recorded, contents = record(chunks, "gemini")
    assert recorded.text == "".join(texts)
    assert [len(content["parts"]) for content in contents] == ([1] if recorded.text else [])
    for event in chunks:
        event["candidates"][0].pop("finishReason")
    if "".join(texts[:end]):
        partial, _ = record(chunks[:end], "gemini")
        assert partial.partial == "cut_off"
        assert partial.events[0].data == AssistantMessage("".join(texts[:end]), partial.events[0].data.structured)  # type: ignore[attr-defined]  # an AssistantMessage's
