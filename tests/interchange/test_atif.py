"""Tests of ATIF export: the ``atif`` package accepts the documents, and an import restores the same runs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import atif
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    Annotation,
    AssistantMessage,
    Event,
    EventData,
    ModelRequest,
    PlannerNote,
    Redacted,
    Snapshot,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.event import redacted_form
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.interchange.atif import AtifRun, from_atif, import_atif, to_atif
from agent_memory_log.samples import sample_lines
from agent_memory_log.transcript import model_request, parse
from agent_memory_log.transcript.json_types import is_list, is_map
from agent_memory_log.transfer.jsonl import import_jsonl
from tests.strategies import events, json_maps, json_texts, labels, nested, texts, timestamps, wrong_values

ANSWER = {"response_id": "r1"}
START = datetime(2026, 3, 1, 9, tzinfo=UTC)


def stored(log: Sequence[Event], first: int = 1) -> list[Event]:
    """Return the events as a store returns them."""
    return [
        Event.from_map({**event.to_map(), "seq": seq, "event_id": event.event_id or f"e-{seq}"})
        for seq, event in enumerate(log, first)
    ]


def run_of(log: Sequence[Event], *, agent: str = "agent", run: str = "run", first: int = 1, **meta: Any) -> Snapshot:
    return Snapshot(agent, run, stored(log, first), version=first + len(log) - 1, meta=meta)


def run_with(*payloads: EventData, agent: str = "agent", run: str = "run", **meta: Any) -> Snapshot:
    log = [new_event(data, timestamp=START + timedelta(seconds=second)) for second, data in enumerate(payloads)]
    return run_of(log, agent=agent, run=run, **meta)


def document_of(snapshot: Snapshot, *subagents: Snapshot, **options: Any) -> dict[str, Any]:
    """Return the run as an ATIF document that went through JSON text and that the ``atif`` package accepts."""
    document: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(to_atif(snapshot, subagents=subagents, **options))
    )
    atif.Trajectory.model_validate(document)
    return document


def assert_same_run(imported: AtifRun, snapshot: Snapshot) -> None:
    assert (imported.agent, imported.run) == (snapshot.agent, snapshot.run)
    assert [encode_canonical(event.to_map()) for event in imported.events] == [
        encode_canonical(event.to_map()) for event in snapshot.log
    ]
    assert list(imported.events) == list(snapshot.log)
    assert encode_canonical(imported.meta) == encode_canonical(snapshot.meta)


IDS = st.sampled_from(["c1", "c2", "c3", ""])
SHORT_TEXTS = st.sampled_from(["", "Yes.", "One\n\ntwo", "\x00\u2028", "\U0001f469\u200d\U0001f680"])


@st.composite
def turns(draw: st.DrawFn) -> Event:
    """Draw an event of a conversation. Calls and results have few ids, so that many of them match."""
    data: EventData = draw(
        st.one_of(
            st.builds(UserMessage, message=SHORT_TEXTS),
            st.builds(AssistantMessage, message=SHORT_TEXTS),
            st.builds(Thinking, text=SHORT_TEXTS, signature=st.sampled_from(["", "s"]), final=st.booleans()),
            st.builds(
                ToolCall,
                tool_call_id=IDS,
                tool_name=st.sampled_from(["a.b", "c"]),
                parent_tool_call_id=IDS,
                payload_json=json_texts(),
            ),
            st.builds(
                ToolResult,
                tool_call_id=IDS,
                tool_name=st.sampled_from(["a.b", "c"]),
                parent_tool_call_id=IDS,
                result_json=json_texts(),
                error_message=SHORT_TEXTS,
                server_data=json_texts(),
            ),
            st.builds(PlannerNote, note=SHORT_TEXTS),
            st.builds(ModelRequest, provider=st.just("anthropic"), model=SHORT_TEXTS),
        )
    )
    event_labels = draw(
        st.dictionaries(
            st.sampled_from(["response_id", "model", "usage", "atif_step"]),
            st.sampled_from(["1", "2", '{"input_tokens":3,"output_tokens":5}', '{"cost_usd":0.5}', "{"]),
        )
        | labels()
    )
    return new_event(data, timestamp=draw(timestamps()), labels=event_labels)


class TestExport:
    @given(st.lists(turns() | events(), max_size=12), json_maps(), st.integers(1, 2**40))
    def test_any_run_is_restored_exactly(self, log: list[Event], meta: dict[str, Any], first: int) -> None:
        snapshot = run_of(log, first=first, **{f"m{key}": value for key, value in meta.items()})
        assert_same_run(from_atif(document_of(snapshot)), snapshot)

    @given(st.lists(turns(), max_size=8))
    def test_server_data_can_be_left_out(self, log: list[Event]) -> None:
        secret = "server-secret"
        log_with_secret = [
            msgspec.structs.replace(event, data=msgspec.structs.replace(event.data, server_data=f'"{secret}"'))
            if isinstance(event.data, ToolResult)
            else event
            for event in log
        ]
        snapshot = run_of(log_with_secret)
        assert secret not in repr(to_atif(snapshot, server_data=False))
        document = document_of(snapshot, server_data=False)
        without = [
            msgspec.structs.replace(event, data=msgspec.structs.replace(event.data, server_data=""))
            if isinstance(event.data, ToolResult)
            else event
            for event in snapshot.log
        ]
        assert list(from_atif(document).events) == without

    def test_samples_are_restored_exactly(self) -> None:
        with open_sync_store("memory:") as store:
            for line in sample_lines("support.jsonl"):
                chat: Any = msgspec.json.decode(line)
                messages = chat.pop("messages")
                store.append_events(
                    "support", chat["run"], *parse(messages, "openai-chat", source=chat["run"]), meta=chat
                )
                snapshot = store.load_run("support", chat["run"])
                assert_same_run(from_atif(document_of(snapshot)), snapshot)

    async def test_sample_with_parallel_nested_and_failed_calls_is_restored(self) -> None:
        async with open_store("memory:") as store:
            (done,) = await import_jsonl(store, sample_lines("demo.jsonl"))
            snapshot = await store.load_run(done.agent, done.run)
        document = document_of(snapshot)
        assert_same_run(from_atif(document), snapshot)
        nested_calls = [step for step in document["steps"] if step.get("llm_call_count") == 0]
        assert nested_calls
        assert sum(len(step.get("tool_calls", [])) for step in document["steps"]) == 12

    def test_document_has_one_step_for_each_turn_and_nested_call(self) -> None:
        usage = '{"input_tokens":100,"cache_read_input_tokens":20,"output_tokens":7}'
        tools: Any = [{"name": "f", "input_schema": {"type": "object"}}]
        log = [
            new_event(SystemMessage("Be kind.")),
            new_event(model_request(run_of([]), "anthropic", model="claude-x", tools=tools)),
            new_event(UserMessage("Look")),
            new_event(
                Thinking(text="Hm", final=True), labels={"response_id": "r1", "model": "claude-y", "usage": usage}
            ),
            new_event(AssistantMessage("I look"), labels={"response_id": "r1"}),
            new_event(ToolCall("c1", "f", payload_json='{"a":1}'), labels={"response_id": "r1"}),
            new_event(AssistantMessage("and again"), labels={"response_id": "r1"}),
            new_event(ToolCall("c2", "f", payload_json="no json"), labels={"response_id": "r1"}),
            new_event(ToolCall("n1", "g", parent_tool_call_id="c1")),
            new_event(PlannerNote("slow")),
            new_event(ToolResult("c2", "f", error_message="no")),
            new_event(ToolResult("n1", "g", result_json="[]", parent_tool_call_id="c1")),
            new_event(ToolResult("c1", "f", result_json="{}")),
            new_event(AssistantMessage("Done")),
        ]
        document = document_of(run_of(log))
        steps = [
            {key: value for key, value in step.items() if key not in ("step_id", "timestamp", "extra")}
            for step in document["steps"]
        ]
        assert steps == [
            {"source": "system", "message": "Be kind."},
            {"source": "user", "message": "Look"},
            {
                "source": "agent",
                "model_name": "claude-y",
                "message": "I look\n\nand again",
                "reasoning_content": "Hm",
                "metrics": {"prompt_tokens": 120, "completion_tokens": 7, "cached_tokens": 20},
                "tool_calls": [
                    {"tool_call_id": "c1", "function_name": "f", "arguments": {"a": 1}},
                    {"tool_call_id": "c2", "function_name": "f", "arguments": {}},
                ],
                "observation": {
                    "results": [
                        {"source_call_id": "c2", "content": "no"},
                        {"source_call_id": "c1", "content": "{}"},
                    ]
                },
            },
            {
                "source": "agent",
                "message": "",
                "llm_call_count": 0,
                "tool_calls": [{"tool_call_id": "n1", "function_name": "g", "arguments": {}}],
                "observation": {"results": [{"source_call_id": "n1", "content": "[]"}]},
            },
            {"source": "agent", "model_name": "claude-x", "message": "Done"},
        ]
        assert document["agent"] == {
            "name": "agent",
            "version": "unknown",
            "model_name": "claude-x",
            "tool_definitions": [
                {"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}
            ],
        }
        assert document["final_metrics"] == {
            "total_prompt_tokens": 120,
            "total_completion_tokens": 7,
            "total_cached_tokens": 20,
            "total_steps": 5,
        }

    def test_text_is_stored_once_in_the_document(self) -> None:
        words = ["question", "reasoning", "text", "argument", "output", "failure"]
        question, reasoning, text, argument, output, failure = (f"{word}-once" for word in words)
        snapshot = run_with(
            UserMessage(question),
            Thinking(text=reasoning, final=True),
            AssistantMessage(text),
            ToolCall("1", "f", payload_json=f'{{"x":"{argument}"}}'),
            ToolCall("2", "f"),
            ToolResult("1", "f", result_json=output),
            ToolResult("2", "f", error_message=failure),
        )
        written = repr(document_of(snapshot))
        assert [written.count(f"{word}-once") for word in words] == [1] * 6

    def test_texts_of_one_answer_stay_separate(self) -> None:
        answer_texts = ["first-thought", "first-word", "second-thought", "", "second-word"]
        log = [
            new_event(Thinking(text=text, final=True) if "thought" in text else AssistantMessage(text), labels=ANSWER)
            for text in answer_texts
        ]
        document = document_of(run_of(log))
        (step,) = document["steps"]
        assert step["message"] == "first-word\n\nsecond-word"
        assert step["reasoning_content"] == "first-thought\n\nsecond-thought"
        assert [repr(document).count(text) for text in answer_texts if text] == [1] * 4
        assert [
            getattr(event.data, "text", "") or getattr(event.data, "message", "")
            for event in from_atif(document).events
        ] == answer_texts

    @pytest.mark.parametrize(
        "log",
        [
            [
                new_event(AssistantMessage("A")),
                new_event(ModelRequest("anthropic", "m")),
                new_event(ToolCall("c", "f")),
            ],
            [
                new_event(AssistantMessage("A"), labels=ANSWER),
                new_event(ToolCall("c", "f"), labels={"response_id": "r2"}),
            ],
            [new_event(AssistantMessage("A")), new_event(AssistantMessage("B"))],
            [new_event(ToolCall("c", "f")), new_event(ToolResult("c", "f")), new_event(ToolCall("d", "f"))],
            [new_event(AssistantMessage("A")), new_event(Thinking(text="B"))],
        ],
    )
    def test_each_answer_is_a_separate_step(self, log: list[Event]) -> None:
        assert [step["source"] for step in document_of(run_of(log))["steps"]] == ["agent", "agent"]

    @pytest.mark.parametrize(
        ("block", "path"),
        [
            ({"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}, "https://x.test/a.png"),
            ({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}, "data:image/png;base64,AAAA"),
            (
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                "data:image/png;base64,AAAA",
            ),
            ({"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}, "https://x.test/a.png"),
            ({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, "data:image/png;base64,AAAA"),
            ({"inline_data": {"mime_type": "image/png", "data": "AAAA"}}, "data:image/png;base64,AAAA"),
            ({"fileData": {"mimeType": "image/png", "fileUri": "gs://x/a"}}, "gs://x/a"),
            ({"fileData": {"fileUri": "https://x.test/a.png"}}, "https://x.test/a.png"),
            ({"image": {"format": "png", "source": {"bytes": "AAAA"}}}, "data:image/png;base64,AAAA"),
            ({"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/k"}}}}, "s3://b/k"),
        ],
    )
    def test_images_become_image_parts(self, block: dict[str, Any], path: str) -> None:
        snapshot = run_with(
            UserMessage("See", structured={"p": {"fields": {"content": [block]}}}),
            ToolCall("1", "f"),
            ToolResult("1", "f", result_json="seen", structured=[{"foreign": "data"}]),
        )
        document = document_of(snapshot)
        assert document["steps"][0]["message"] == [
            {"type": "text", "text": "See"},
            {"type": "image", "source": {"media_type": "image/png", "path": path}},
        ]
        assert_same_run(from_atif(document), snapshot)

    @pytest.mark.parametrize("url", ["https://x.test/a.svg", "https://x.test/a", "data:text/plain,x", 7])
    def test_unsupported_images_stay_in_extra(self, url: object) -> None:
        block: Any = {"type": "image_url", "image_url": {"url": url}}
        snapshot = run_with(UserMessage("See", structured={"p": [block]}))
        document = document_of(snapshot)
        assert document["steps"][0]["message"] == "See"
        assert_same_run(from_atif(document), snapshot)

    def test_edits_by_another_tool_are_imported(self) -> None:
        document = document_of(
            run_with(UserMessage("Hi"), AssistantMessage("Hello"), ToolCall("1", "f", payload_json="{}"))
        )
        document["steps"][0]["message"] = "Good day"
        document["steps"][1]["tool_calls"][0]["arguments"] = {"x": 1}
        data = [event.data for event in from_atif(document).events]
        assert data[0] == UserMessage("Good day")
        assert data[2] == ToolCall("1", "f", payload_json='{"x":1}')

    def test_added_steps_keep_their_position(self) -> None:
        log = [new_event(UserMessage("Hi")), new_event(AssistantMessage("Hello"))]
        document = document_of(run_of(log))
        for index in (3, 1, 0):
            document["steps"].insert(index, {"step_id": 0, "source": "user", "message": f"at {index}"})
        for number, step in enumerate(document["steps"], 1):
            step["step_id"] = number
        imported = from_atif(document)
        assert [getattr(event.data, "message", "") for event in imported.events] == [
            "at 0",
            "Hi",
            "at 1",
            "Hello",
            "at 3",
        ]
        assert [event.seq for event in imported.events] == [1, 2, 3, 4, 5]
        assert len({event.event_id for event in imported.events}) == 5

    def test_subagents_are_embedded_and_referenced(self) -> None:
        outer = run_with(ToolCall("c1", "ask"), ToolResult("c1", "ask", result_json='"ok"'))
        parent = {"agent": "agent", "run": "run", "tool_call_id": "c1"}
        inner = run_with(UserMessage("sub"), agent="helper", run="r2", parent_run=parent)
        deeper = run_with(UserMessage("sub sub"), agent="helper", run="r3", parent_run={"agent": "helper", "run": "r2"})
        document = document_of(outer, deeper, inner)
        (result,) = document["steps"][0]["observation"]["results"]
        assert result["subagent_trajectory_ref"] == [{"trajectory_id": "helper/r2"}]
        assert [trajectory["trajectory_id"] for trajectory in document["subagent_trajectories"]] == ["helper/r2"]
        for imported, snapshot in zip(from_atif(document), (outer, inner, deeper), strict=True):
            assert_same_run(imported, snapshot)

    def test_repeated_or_circular_subagents_are_refused(self) -> None:
        run = run_with(UserMessage("x"))
        with pytest.raises(InvalidArgument, match="agent/run is passed twice"):
            to_atif(run, subagents=[run])
        ring = [
            run_with(UserMessage("x"), run=name, parent_run={"agent": "agent", "run": other})
            for name, other in (("a", "b"), ("b", "a"))
        ]
        with pytest.raises(InvalidArgument, match="name each other as parent"):
            to_atif(run, subagents=ring)

    def test_redacted_event_is_exported_without_content(self) -> None:
        snapshot = run_with(
            UserMessage("secret"), ToolCall("1", "f", payload_json='{"a":"secret"}'), ToolResult("1", "f")
        )
        redacted = Snapshot(
            "agent", "run", [redacted_form(event, "asked") for event in snapshot.log[:2]] + [snapshot.log[2]], version=3
        )
        document = document_of(redacted)
        assert "secret" not in repr(document)
        imported = from_atif(document)
        assert_same_run(imported, redacted)
        assert isinstance(imported.events[0].data, Redacted)

    def test_run_without_steps_is_restored_exactly(self) -> None:
        snapshot = run_with(PlannerNote("n"), Annotation("a"))
        document = document_of(snapshot)
        assert document["steps"] == []
        assert_same_run(from_atif(document), snapshot)

    async def test_second_import_stores_nothing(self) -> None:
        outer = run_with(ToolCall("c1", "ask"), ToolResult("c1", "ask", result_json='"ok"'), session_id="s")
        inner = run_with(UserMessage("sub"), agent="helper", run="r2", parent_run={"agent": "agent", "run": "run"})
        imported = from_atif(to_atif(outer, subagents=[inner]))
        async with open_store("memory:") as store:
            first = await import_atif(store, imported)
            assert [(summary.agent, summary.run, summary.read, summary.inserted) for summary in first] == [
                ("agent", "run", 2, 2),
                ("helper", "r2", 1, 1),
            ]
            again = await import_atif(store, imported)
            assert [summary.inserted for summary in again] == [0, 0]
            assert await store.load_run("agent", "run") == outer
            assert await store.load_run("helper", "r2") == inner


def _with_value_at(value: Any, path: list[int], new_value: Any) -> Any:
    """Return ``value`` with ``new_value`` at a path. Each number selects a key or an index, modulo the length."""
    if not path:
        return new_value
    if is_map(value) and len(value):
        keys: list[str] = list(value)
        key = keys[path[0] % len(keys)]
        return {**value, key: _with_value_at(value[key], path[1:], new_value)}
    if is_list(value) and len(value):
        index = path[0] % len(value)
        return [*value[:index], _with_value_at(value[index], path[1:], new_value), *value[index + 1 :]]
    return new_value


class TestMalformed:
    @given(st.lists(turns(), min_size=1, max_size=6), st.lists(st.integers(0, 9), max_size=9), wrong_values())
    def test_any_value_at_any_position_is_read_or_refused(
        self, log: list[Event], path: list[int], new_value: Any
    ) -> None:
        document = _with_value_at(document_of(run_of(log)), path, new_value)
        with contextlib.suppress(DecodeError):
            for event in from_atif(document).events:
                assert Event.from_map(event.to_map()) == event

    @pytest.mark.parametrize(
        ("path", "invalid", "message"),
        [
            ([], 7, "a trajectory must be a map, got int 7"),
            (["steps", 0, "message"], 7, "trajectory.steps[0].message: expected `str | array`, got `int`"),
            (["steps"], {}, "trajectory.steps: expected `array`, got `object`"),
            (["steps", 1, "step_id"], 1, "trajectory.steps[1].step_id must be 2, got 1"),
            (
                ["steps", 0, "timestamp"],
                "noon",
                "trajectory.steps[0].timestamp must be an ISO 8601 time, got str 'noon'",
            ),
            (["steps", 0, "source"], "tool", "trajectory.steps[0].source: invalid enum value 'tool'"),
            (["agent"], {"name": "x"}, "trajectory.agent: object missing required field `version`"),
            (["schema_version"], "1.8", "trajectory.schema_version must be like ATIF-v1.8, got str '1.8'"),
            (["steps", 0, "extra", "x"], float("nan"), "trajectory.steps[0].extra.x is nan, which JSON cannot write"),
            (["subagent_trajectories"], "sub", "trajectory.subagent_trajectories[0].trajectory_id is missing"),
            (["extra", "agent_memory_log"], 7, "trajectory.extra.agent_memory_log must be a map, got int 7"),
            (["extra", "agent_memory_log", "run"], "", "trajectory.extra.agent_memory_log.run must be non-empty text"),
            (["extra", "agent_memory_log", "meta"], [], "trajectory.extra.agent_memory_log.meta must be a map"),
            (["extra", "agent_memory_log", "events"], 7, "trajectory.extra.agent_memory_log.events must be a list"),
            (["steps", 0, "extra", "agent_memory_log", "events", 0], 7, ".events[0] must be a map, got int 7"),
            (["steps", 0, "extra", "agent_memory_log", "events", 0, "at"], "x", ".events[0]: at must name a field"),
            (["steps", 0, "extra", "agent_memory_log", "events", 0, "seq"], None, ".events[0]: seq is missing"),
            (["steps", 0, "extra", "agent_memory_log", "events", 0, "seq"], "1", "seq must be an integer"),
            (["steps", 0, "extra", "agent_memory_log", "events", 0, "data"], 7, ".events[0]: data must be a map"),
            (["steps", 0, "extra", "agent_memory_log", "events", 0, "without"], "x", "without must be a list of keys"),
            (["steps", 0, "extra", "agent_memory_log", "events", 0, "span"], [1], "span must be two integers"),
            (
                ["steps", 0, "extra", "agent_memory_log", "events", 0, "at"],
                "tool_calls[0]",
                ".events[0]: at must name a field of the step, got str 'tool_calls[0]'",
            ),
        ],
    )
    def test_error_names_the_path(self, path: list[Any], invalid: Any, message: str) -> None:
        document: Any = document_of(run_with(UserMessage("Hi"), AssistantMessage("Hello")))
        if invalid == "sub":
            invalid = [{**document}]
            del invalid[0]["trajectory_id"]
        if path:
            inner = document
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = invalid
        else:
            document = invalid
        with pytest.raises(DecodeError) as caught:
            from_atif(document)
        assert message in str(caught.value)

    def test_deep_nesting_is_refused_with_its_path(self) -> None:
        document: Any = document_of(run_with(UserMessage("Hi")))
        document["extra"]["deep"] = nested(5000)
        with pytest.raises(DecodeError, match=r"trajectory\.extra\.deep.*nests deeper"):
            from_atif(document)

    @given(texts())
    def test_invalid_schema_version_is_refused(self, version: str) -> None:
        document: Any = document_of(run_with(UserMessage("Hi")))
        document["schema_version"] = version
        with pytest.raises(DecodeError, match="schema_version"):
            from_atif(document)
