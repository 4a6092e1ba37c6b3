"""Checks the replayed clients: OpenAI's and Anthropic's SDKs read the same from the log as from the provider."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from agent_memory_log import Snapshot, open_sync_store
from agent_memory_log.errors import InvalidArgument, ReplayDivergence
from agent_memory_log.recording import SyncRunRecorder
from agent_memory_log.replay import Replayer, differences
from agent_memory_log.replay.clients.answers import answer_body
from agent_memory_log.replay.clients.streams import answer_stream
from agent_memory_log.transcript import build
from agent_memory_log.transcript.json_types import is_list, is_map, list_in, map_in
from tests.replay.test_traffic_replay import REPLAYED, problems_of
from tests.transcript.test_traffic import recorded
from tests.transcript.traffic import Exchange

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # vendors break OpenAI's types

WITH_SDK = [exchange for exchange in REPLAYED if exchange.provider != "bedrock"]
PLAIN = [exchange for exchange in WITH_SDK if isinstance(exchange.answer, dict)]
STREAMED = [exchange for exchange in WITH_SDK if isinstance(exchange.answer, list)]

Ask = Callable[[Any, list[Any]], Any]
"""Sends messages with a client and returns the SDK's object for the whole answer."""


def ask_chat(client: openai.OpenAI, messages: list[Any]) -> Any:
    return client.chat.completions.create(model="m", messages=messages)


def ask_responses(client: openai.OpenAI, messages: list[Any]) -> Any:
    return client.responses.create(model="m", input=messages)


def ask_anthropic(client: anthropic.Anthropic, messages: list[Any]) -> Any:
    return client.messages.create(model="m", max_tokens=1, messages=messages)


def stream_chat(client: openai.OpenAI, messages: list[Any]) -> Any:
    options: Any = {"include_usage": True}
    with client.chat.completions.stream(model="m", messages=messages, stream_options=options) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def stream_responses(client: openai.OpenAI, messages: list[Any]) -> Any:
    with client.responses.stream(model="m", input=messages) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def stream_anthropic(client: anthropic.Anthropic, messages: list[Any]) -> Any:
    with client.messages.stream(model="m", max_tokens=1, messages=messages) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


ASK: Mapping[str, tuple[Ask, Ask]] = {
    "openai-chat": (ask_chat, stream_chat),
    "openai-responses": (ask_responses, stream_responses),
    "anthropic": (ask_anthropic, stream_anthropic),
}
"""For each provider: how to ask without and with a stream."""


def client_of(replayer: Replayer) -> Any:
    return replayer.anthropic_client() if replayer.provider == "anthropic" else replayer.openai_client()


def wire_client(exchange: Exchange) -> Any:
    """Return a client of the SDK that reads the recorded answer of the provider itself."""
    kind, content = "application/json", json.dumps(exchange.answer)
    if isinstance(exchange.answer, list):
        kind = "text/event-stream"
        content = "".join(f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n" for event in exchange.answer)
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers={"content-type": kind}, content=content))
    sdk: Any = anthropic.Anthropic if exchange.provider == "anthropic" else openai.OpenAI
    return sdk(api_key="k", base_url="http://wire.invalid", http_client=httpx2.Client(transport=transport))


def facts(answer: Any) -> dict[str, Any]:
    """Return the fields of an answer that the log has, without empty values: SDKs and streams differ in them."""
    body: dict[str, Any] = answer.to_dict()
    fields: Any = {key: body.get(key) for key in ("id", "model", "content", "output", "status", "stop_reason", "usage")}
    for choice in body.get("choices", [])[:1]:
        fields["message"], fields["finish_reason"] = choice["message"], choice["finish_reason"]
    return dict(without_empty(fields))


def without_empty(value: Any) -> Any:
    if is_map(value):
        items = {key: without_empty(item) for key, item in value.items() if key != "index"}
        return {key: item for key, item in items.items() if item not in (None, [], "", {})}
    return [without_empty(item) for item in value] if is_list(value) else value


def at_the_answer(exchange: Exchange) -> Replayer:
    """Return a replayer whose next turn is the answer of the exchange."""
    replayer = Replayer(recorded(exchange).unanswered, exchange.provider, match="order")
    for _ in replayer._expected.turns[:-1]:
        replayer.model_turn()
    return replayer


@pytest.mark.parametrize("asked_as_stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("is_own_host", [True, False], ids=["own hosts", "vendors"])
def test_sdk_reads_the_same_from_the_log_as_from_the_provider(asked_as_stream: bool, is_own_host: bool) -> None:
    def check(exchange: Exchange) -> None:
        was_stream = isinstance(exchange.answer, list)
        expected = facts(ASK[exchange.provider][was_stream](wire_client(exchange), []))
        answer = facts(ASK[exchange.provider][asked_as_stream](client_of(at_the_answer(exchange)), []))
        # The log may have more than the SDK keeps of a stream, and than some vendors send.
        is_known = was_stream or not is_own_host
        assert not [item for item in differences(expected, answer) if not (is_known and item.only == "right")]

    exchanges = [exchange for exchange in WITH_SDK if exchange.is_own_host == is_own_host]
    problems = problems_of(exchanges, check)
    assert len(exchanges) > 90
    # OpenAI's SDK itself joins some vendors' streams wrongly, and its helper refuses answers that are too long.
    assert len(problems) <= (0 if is_own_host else 0.15 * len(exchanges)), "\n".join(problems)


@pytest.mark.parametrize("asked_as_stream", [False, True], ids=["plain", "stream"])
def test_agent_on_a_client_is_replayed_strictly(asked_as_stream: bool) -> None:
    def check(exchange: Exchange) -> None:
        snapshot = recorded(exchange).run
        transcript = build(snapshot, exchange.provider)
        with Replayer(snapshot, exchange.provider) as replayer:
            client = client_of(replayer)
            for expected in replayer._expected.turns:
                joined = replayer._expected.joined(expected)
                messages = [*transcript[: expected.prefix], *([] if joined is None else [joined])]
                ASK[exchange.provider][asked_as_stream](client, messages)

    without_limit = [exchange for exchange in WITH_SDK[::3] if "length" not in json.dumps(exchange.answer)]
    assert not problems_of(without_limit, check)


# An agent that uses the SDK directly, and runs its own tools.

USE = {"type": "tool_use", "id": "toolu_1", "name": "orders--find", "input": {"id": 7}}
QUESTION: list[Any] = [{"role": "user", "content": "Where is my order?"}]


def answer_of(*content: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "model": "m", "content": list(content), **fields}


def recorded_run(*answers: object, provider: str | None = None) -> Snapshot:
    """Record answers. Each call of an answer has the result ``sent``."""
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.user("Where is my order?")
        for answer in answers:
            for event in recorder.record_response(answer, provider=provider).tool_calls:
                with recorder.tool_call(event) as call:
                    call.result("sent")
        return store.load_run("agent", "run")


TWO_TURNS = recorded_run(answer_of(USE), answer_of({"type": "text", "text": "It was sent."}, id="msg_2"))


def run_agent(client: anthropic.Anthropic, result: str = "sent") -> str:
    messages = list(QUESTION)
    while True:
        answer = client.messages.create(model="m", max_tokens=9, messages=messages)
        messages.append({"role": "assistant", "content": answer.content})
        uses = [block for block in answer.content if block.type == "tool_use"]
        if not uses:
            return "".join(block.text for block in answer.content if block.type == "text")
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": result} for use in uses]
        messages.append({"role": "user", "content": results})


def test_agent_that_runs_its_own_tools_is_replayed() -> None:
    with Replayer(TWO_TURNS) as replayer:
        assert run_agent(replayer.anthropic_client()) == "It was sent."


def test_divergence_leaves_the_client_unchanged() -> None:
    replayer = Replayer(TWO_TURNS)
    with pytest.raises(ReplayDivergence, match='content: recorded "sent", now "lost"') as raised:
        run_agent(replayer.anthropic_client(), "lost")
    assert raised.value.reason == "other_messages"
    with pytest.raises(ReplayDivergence):
        replayer.finish()
    with pytest.raises(ReplayDivergence, match="Where is my order"), Replayer(TWO_TURNS, "openai-chat") as replayer:
        ask_chat(replayer.openai_client(), [{"role": "user", "content": "Where?"}])
    with pytest.raises(ReplayDivergence, match="continues with model turn 2 of 2"), Replayer(TWO_TURNS) as replayer:
        ask_anthropic(replayer.anthropic_client(), QUESTION)
    replayer = Replayer(TWO_TURNS)
    run_agent(replayer.anthropic_client())
    with pytest.raises(ReplayDivergence, match="the recording ends after turn 2"):
        ask_anthropic(replayer.anthropic_client(), list(build(TWO_TURNS, "anthropic")))


async def test_async_clients_are_replayed_and_diverge() -> None:
    async with Replayer(TWO_TURNS) as replayer:
        client = replayer.async_anthropic_client()
        transcript: Any = build(TWO_TURNS, "anthropic")
        await client.messages.create(model="m", max_tokens=9, messages=transcript[:1])
        async with client.messages.stream(model="m", max_tokens=9, messages=transcript[:3]) as stream:
            assert await stream.get_final_text() == "It was sent."
    with pytest.raises(ReplayDivergence, match="before model turn 1"):
        await Replayer(TWO_TURNS).async_anthropic_client().messages.create(model="m", max_tokens=9, messages=[])
    openai_client = Replayer(TWO_TURNS, "openai-responses").async_openai_client()
    response = await openai_client.responses.create(model="m", input="Where is my order?")
    assert [item.type for item in response.output] == ["function_call"]
    with pytest.raises(ReplayDivergence):
        await openai_client.responses.create(model="m", input="Never recorded.")


def test_lenient_replay_does_not_compare_messages() -> None:
    with Replayer(TWO_TURNS, match="order") as replayer:
        assert run_agent(replayer.anthropic_client(), "lost") == "It was sent."


def test_calls_of_the_agents_own_code_are_replayed() -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.user("Where is my order?")
        for text in ("Wait.", "It was sent."):
            with recorder.tool_call("orders.find") as call, recorder.tool_call("db.query") as inner:
                inner.result([7])
                call.result("sent")
            recorder.record_response(answer_of({"type": "text", "text": text}))
        with recorder.tool_call("orders.close") as call:
            call.result("closed")
        snapshot = store.load_run("agent", "run")
    transcript: Any = build(snapshot, "anthropic")
    with Replayer(snapshot) as replayer:
        client = replayer.anthropic_client()
        ask_anthropic(client, transcript[:3])
        ask_anthropic(client, transcript[:5])
    with pytest.raises(ReplayDivergence, match="continues with model turn"), Replayer(snapshot) as replayer:
        ask_anthropic(replayer.anthropic_client(), transcript[:3])


@pytest.mark.parametrize("continued", ["previous_response_id", "conversation"])
def test_input_may_continue_an_earlier_response(continued: str) -> None:
    with Replayer(TWO_TURNS, "openai-responses") as replayer:
        client: Any = replayer.openai_client()
        first_more: Any = {"conversation": "conv_1"} if continued == "conversation" else {}
        first = client.responses.create(model="m", input="Where is my order?", **first_more)
        output: Any = {"type": "function_call_output", "call_id": "toolu_1", "output": "sent"}
        more: Any = {continued: "conv_1" if continued == "conversation" else first.id}
        second = client.responses.create(model="m", input=[output], **more)
        assert (second.output_text, second.id) == ("It was sent.", "msg_2")
    client = Replayer(TWO_TURNS, "openai-responses").openai_client()
    with pytest.raises(ReplayDivergence, match="continues the answer 'resp_0', which it has not received"):
        client.responses.create(model="m", input="Where is my order?", previous_response_id="resp_0")


def test_other_requests_are_refused() -> None:
    client = Replayer(TWO_TURNS, "openai-chat").openai_client()
    with pytest.raises(InvalidArgument, match=r"no answer for GET /v1/models; .* POST /chat/completions"):
        client.models.list()
    with pytest.raises(InvalidArgument, match="a request of openai-responses, but the replayer has"):
        client.responses.create(model="m", input="Hi")
    with pytest.raises(InvalidArgument, match="no answer for POST /v1/messages/count_tokens"):
        Replayer(TWO_TURNS).anthropic_client().messages.count_tokens(model="m", messages=QUESTION)
    with pytest.raises(InvalidArgument, match="an openai client needs messages of 'openai-chat' or 'openai-responses'"):
        Replayer(TWO_TURNS).openai_client()
    with pytest.raises(InvalidArgument, match="an anthropic client needs messages of 'anthropic'"):
        Replayer(TWO_TURNS, "bedrock").anthropic_client()


def test_missing_sdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(InvalidArgument, match="pip install anthropic"):
        Replayer(TWO_TURNS).anthropic_client()


def test_texts_and_inputs_are_streamed_as_deltas() -> None:
    """An agent that shows an answer while it arrives reads the deltas and not the whole blocks."""
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    cited: dict[str, Any] = {"type": "text", "text": "Yes.", "citations": [{"type": "page_location"}]}
    client: Any = Replayer(recorded_run(answer_of(thinking, cited, USE))).anthropic_client()
    with client.messages.stream(model="m", max_tokens=9, messages=QUESTION) as stream:
        deltas = [event.delta.type for event in stream if event.type == "content_block_delta"]
    assert deltas == ["thinking_delta", "signature_delta", "citations_delta", "text_delta", "input_json_delta"]
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": [{"type": "file_citation"}]}],
        },
        {"type": "message", "id": "msg_2", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "g", "input": "x"},
    ]
    client = Replayer(recorded_run({"id": "resp_1", "status": "completed", "output": items})).openai_client()
    events = list(client.responses.create(model="m", input=QUESTION, stream=True))
    assert [event.type.removeprefix("response.") for event in events if hasattr(event, "delta")] == [
        "reasoning_summary_text.delta",
        "output_text.delta",
        "refusal.delta",
        "function_call_arguments.delta",
        "custom_tool_call_input.delta",
    ]
    assert "response.output_text.annotation.added" in {event.type for event in events}
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [item.to_dict() for item in events[-1].response.output] == items


ODD: list[Any] = [None, 7, "x", [], {}, {"type": []}, {"type": {}}, {"type": "text"}, {"type": "text", "text": None}]

ODD_ANSWERS: list[dict[str, Any]] = [
    answer_of(*ODD, {"type": "thinking", "thinking": None, "signature": 7}, {"type": "tool_use", "input": []}),
    {"id": "a", "choices": [{"message": {"role": "assistant", "tool_calls": ODD}, "finish_reason": "stop"}]},
    {"id": "r", "status": "completed", "output": [{"type": [], "content": ODD}, {"type": "message", "content": ODD}]},
]
"""Answers with parts of shapes that no provider sends today."""


@pytest.mark.parametrize("answer", ODD_ANSWERS, ids=["anthropic", "openai-chat", "openai-responses"])
def test_parts_of_any_shape_are_streamed(answer: dict[str, Any]) -> None:
    turn = Replayer(recorded_run(answer)).model_turn()
    provider = turn.events[0].labels["provider"]
    assert answer_stream(answer_body(turn, provider, "m"), provider, with_usage=True, partial="", error="")


def read_stream(client: Any, provider: str) -> tuple[str, Exception | None]:
    """Read the raw events of a stream. Return the text, and the error that the SDK raises."""
    options: Any = {"model": "m", "stream": True}
    if provider == "anthropic":
        stream = client.messages.create(messages=QUESTION, max_tokens=9, **options)
    elif provider == "openai-chat":
        stream = client.chat.completions.create(messages=QUESTION, **options)
    else:
        stream = client.responses.create(input=QUESTION, **options)
    texts: list[str] = []
    try:
        for event in stream:
            data: dict[str, Any] = event.to_dict()
            if data.get("type") == "error":  # the SDK raises the errors of the other providers itself
                return "".join(texts), RuntimeError(data["message"])
            deltas = [data.get("delta"), *[choice["delta"] for choice in list_in(data.get("choices"))]]
            texts += [delta for delta in deltas if isinstance(delta, str)]
            texts += [map_in(delta).get("text") or map_in(delta).get("content") or "" for delta in deltas]
    except (anthropic.APIError, openai.APIError) as error:
        return "".join(texts), error
    return "".join(texts), None


def test_partial_answer_is_cut_off_again() -> None:
    events: list[Any] = [
        {"type": "message_start", "message": answer_of(usage={"input_tokens": 1, "output_tokens": 1})},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It w"}},
    ]
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    for sent, partial in ((events, "cut_off"), ([*events, error], "error")):
        snapshot = recorded_run(sent)
        for provider in ("anthropic", "openai-chat", "openai-responses"):
            with Replayer(snapshot, provider) as replayer:
                texts, failure = read_stream(client_of(replayer), provider)
            assert texts == "It w"
            assert (failure is not None) == (partial == "error"), provider
            assert failure is None or "Overloaded" in str(failure)
