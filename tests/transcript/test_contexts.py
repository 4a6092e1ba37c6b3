"""Tests of injected contexts, compactions and checkpoints in transcripts, replays, exports and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses.compacted_response import CompactedResponse
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agent_memory_log import (
    AssistantMessage,
    Checkpoint,
    Compaction,
    EventData,
    InjectedContext,
    ModelRequest,
    Snapshot,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import ReplayDivergence
from agent_memory_log.events.nested import EventPlace
from agent_memory_log.interchange.atif import from_atif, to_atif
from agent_memory_log.interchange.opentelemetry import export_spans
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.recording import RunRecorder, SyncRunRecorder
from agent_memory_log.replay import Replayer
from agent_memory_log.transcript import Transcript, build, provider_names, request, validate, window
from tests.amlog import Amlog
from tests.transcript.transcripts import run_of

CONTEXT = InjectedContext("language: english", records=("rec-1",), token_count=3, source="pre_task")
CHECKPOINT = Checkpoint("cp-1", location="bucket")
COMPACTED: dict[str, Any] = {
    "id": "resp_c",
    "object": "response.compaction",
    "created_at": 1764720000,
    "output": [
        {"id": "msg_1", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "U1"}]},
        {"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAA"},
    ],
    "usage": {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 11,
    },
}
OPEN = Compaction(structured={"openai-responses": {"items": COMPACTED["output"]}})

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # OpenAI's types lack user messages

every_provider = pytest.mark.parametrize("provider", provider_names())


def answer(text: str, number: int) -> dict[str, Any]:
    content: list[Any] = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "id": f"resp_{number}",
        "object": "response",
        "status": "completed",
        "model": "gpt-5",
        "output": [{"id": f"m_{number}", "type": "message", "role": "assistant", "content": content}],
    }


def texts(transcript: Sequence[Any]) -> str:
    return repr(list(transcript))


# Transcripts.


@every_provider
def test_injected_context_is_sent_where_it_was_recorded(provider: str) -> None:
    head: list[EventData] = [UserMessage("U"), AssistantMessage("A"), UserMessage("V")]
    built = build(run_of(*head, CONTEXT, InjectedContext(), CHECKPOINT, AssistantMessage("B")), provider)
    assert list(built) == list(build(run_of(*head, UserMessage(CONTEXT.text), AssistantMessage("B")), provider))
    assert list(built.losses) == []
    assert validate(built, provider) == []
    assert CONTEXT.text in texts(window(built, provider, max_events=3).transcript)


@every_provider
@pytest.mark.parametrize("up_to", [0, 3])
def test_compaction_replaces_the_events_before_it(provider: str, up_to: int) -> None:
    events: list[EventData] = [
        SystemMessage("S"),
        UserMessage("U1"),
        AssistantMessage("A1"),
        UserMessage("U2"),
        AssistantMessage("A2"),
    ]
    snapshot = run_of(*events, Compaction("short", up_to=up_to), UserMessage("U3"))
    built = build(snapshot, provider)
    later_events = events[3:] if up_to else []
    expected = build(run_of(SystemMessage("S"), UserMessage("short"), *later_events, UserMessage("U3")), provider)
    assert list(built) == list(expected)
    assert [data.message for data in built.leading] == [data.message for data in expected.leading]
    assert list(built.losses) == []
    grown = Transcript.build(run_of(*events), provider, _builder_of(provider), None)
    grown.update(snapshot)
    assert list(grown) == list(built)
    later = run_of(*events, Compaction("short", up_to=up_to), UserMessage("U3"), Compaction("shorter"))
    assert "short'" not in texts(build(later, provider))
    assert "shorter" in texts(build(later, provider))


def _builder_of(provider: str) -> Any:
    from agent_memory_log.transcript.providers import find_provider  # noqa: PLC0415  # only here

    return find_provider(provider).builder


@every_provider
def test_provider_that_cannot_read_a_compaction_gets_the_events(provider: str) -> None:
    events: list[EventData] = [UserMessage("U1"), AssistantMessage("A1")]
    built = build(run_of(*events, OPEN, UserMessage("U2")), provider)
    if provider == "openai-responses":
        assert list(built) == [*COMPACTED["output"], {"role": "user", "content": "U2"}]
        assert validate(built, provider) == []
        built[0]["content"] = "changed"
        assert COMPACTED["output"][0]["content"] != "changed"
    else:
        assert list(built) == list(build(run_of(*events, UserMessage("U2")), provider))
    assert list(built.losses) == []


# Recording and replay.


async def test_inject_records_a_text() -> None:
    async with open_store("memory:") as store, RunRecorder(store, "agent", "run") as recorder:
        event = await recorder.inject("some text", source="pre_task", key="k")
        assert event is not None
        assert event.data == InjectedContext("some text", source="pre_task")
        assert await recorder.inject("some text", source="pre_task", key="k") == event
        assert await recorder.inject("") is None
        assert (await store.load_run("agent", "run")).version == 1


def test_forgetting_redacts_an_injected_context() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal(tenant="acme", scopes={"user": "42"}))
        me.remember(key="language", value="english")
        with SyncRunRecorder(store, "agent", "run") as recorder:
            recorder.user("Which language do I speak?")
            me.link_run("agent", "run")
            context = me.context("Which language do I speak?")
            event = recorder.inject(context, source="pre_task")
        assert event is not None
        place = EventPlace(agent="agent", run="run", seq=1, event_id=store.load_run("agent", "run").log[0].event_id)
        assert event.data == InjectedContext(context.text, context.records, (place,), context.tokens, "pre_task")
        assert me.forget(key="language", evidence=True).evidence == 1
        assert "english" not in repr(store.load_run("agent", "run").log)


def _compacted_run(*, as_sdk: bool = False) -> Snapshot:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.request("openai-responses", "gpt-5", system="Be kind.")
        recorder.user("U1")
        recorder.record_response(answer("A1", 1))
        compacted = CompactedResponse.construct(**COMPACTED) if as_sdk else COMPACTED
        recorded = recorder.record_response(compacted, key="compact")
        assert recorder.record_response(compacted, key="compact").was_recorded
        (event,) = recorded.events
        assert isinstance(event.data, Compaction)
        assert event.data.up_to == 3
        assert (recorded.text, recorded.tool_calls, recorded.partial) == ("", (), "")
        recorder.user("U2")
        recorder.inject("background")
        recorder.record_response(answer("A2", 2))
        return store.load_run("agent", "run")


@pytest.mark.parametrize("as_sdk", [False, True])
def test_answer_of_responses_compact_replaces_the_history(*, as_sdk: bool) -> None:
    sent = request(_compacted_run(as_sdk=as_sdk), "openai-responses")["input"]
    assert sent[:2] == COMPACTED["output"]
    assert [item.get("role") for item in sent[2:]] == ["user", "user", "assistant"]


def test_replayed_client_answers_the_compaction() -> None:
    snapshot = _compacted_run()
    replayer = Replayer(snapshot)
    with replayer:
        client: openai.OpenAI = replayer.openai_client()
        history: list[Any] = [{"role": "user", "content": "U1"}]
        first: Any = client.responses.create(model="gpt-5", input=history).to_dict()
        history += first["output"]
        compacted = client.responses.compact(model="gpt-5", input=history)
        assert {**compacted.to_dict(), "created_at": COMPACTED["created_at"]} == COMPACTED
        after: list[Any] = [item.to_dict() for item in compacted.output]
        after += [{"role": "user", "content": text} for text in ("U2", "background")]
        assert client.responses.create(model="gpt-5", input=after).output_text == "A2"


def test_replay_compares_the_messages_after_the_compaction() -> None:
    replayer = Replayer(_compacted_run())
    replayer.model_turn()
    replayer.model_turn()
    users = [{"role": "user", "content": text} for text in ("U2", "background")]
    replayer.expect_messages([*COMPACTED["output"], *users])
    with pytest.raises(ReplayDivergence, match=r"messages\[0\]"):
        replayer.expect_messages([{"role": "user", "content": "U1"}, *users])


@every_provider
def test_replay_through_a_compaction_by_the_runtime(provider: str) -> None:
    call, result = ToolCall("c1", "t", payload_json="{}"), ToolResult("c1", "t", result_json="1")
    snapshot = run_of(
        ModelRequest(provider, "m"),
        UserMessage("U1"),
        AssistantMessage("A1"),
        Compaction("short"),
        CONTEXT,
        UserMessage("U2"),
        call,
        result,
        AssistantMessage("A2"),
    )
    with Replayer(snapshot, provider) as replayer:
        replayer.expect_messages(list(build(run_of(UserMessage("U1")), provider)))
        assert replayer.model_turn().text == "A1"
        received: list[EventData] = [UserMessage("short"), UserMessage(CONTEXT.text), UserMessage("U2")]
        replayer.expect_messages(list(build(run_of(*received), provider)))
        (requested,) = replayer.model_turn().tool_calls
        replayer.tool_result(requested)
        replayer.expect_messages(list(build(run_of(*received, call, result), provider)))
        assert replayer.model_turn().text == "A2"


# Exports and the command line.


def test_atif_keeps_every_event() -> None:
    snapshot = run_of(UserMessage("U"), CONTEXT, AssistantMessage("A"), Compaction("short", up_to=2), CHECKPOINT, OPEN)
    document = to_atif(snapshot)
    assert CONTEXT.text in [step["message"] for step in document["steps"]]
    imported = from_atif(document)
    assert [event.data for event in imported.events] == [event.data for event in snapshot.log]


def test_opentelemetry_has_the_context_as_input() -> None:
    exporter = InMemorySpanExporter()
    export_spans(run_of(UserMessage("U"), CONTEXT, CHECKPOINT, Compaction("short")), exporter, content=True)
    inputs = (exporter.get_finished_spans()[0].attributes or {})["gen_ai.input.messages"]
    assert CONTEXT.text in str(inputs)
    assert "short" in str(inputs)


@pytest.mark.parametrize("command", ["show", "verify", "stats"])
def test_command_line_shows_the_payloads(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    amlog = Amlog(tmp_path, capsys)
    amlog.append("a", "r", UserMessage("U"), CONTEXT, Compaction("short", up_to=1), CHECKPOINT, OPEN)
    text = amlog.ok(command, "--store", amlog.url, *(["a/r"] if command == "show" else [])).out
    assert "unknown" not in text.casefold()
    if command == "show":
        for word in (CONTEXT.text, "short", "cp-1", "replaces the events up to 1"):
            assert word in text
