"""ATIF: our runs go out, validated by the ``atif`` package, and come back the same."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import atif
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
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

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ANSWER = {"response_id": "r1"}
START = datetime(2026, 3, 1, 9, tzinfo=UTC)


def stored(log: Sequence[Event], first: int = 1) -> list[Event]:
    """Events as a store gives them back."""
    return [
        Event.from_map({**event.to_map(), "seq": seq, "event_id": event.event_id or f"e-{seq}"})
        for seq, event in enumerate(log, first)
    ]


def run_of(log: Sequence[Event], *, agent: str = "agent", run: str = "run", first: int = 1, **meta: Any) -> Snapshot:
    return Snapshot(agent, run, stored(log, first), version=first + len(log) - 1, meta=meta)


def run_with(*payloads: EventData, agent: str = "agent", run: str = "run", **meta: Any) -> Snapshot:
    log = [new_event(data, timestamp=START + timedelta(seconds=at)) for at, data in enumerate(payloads)]
    return run_of(log, agent=agent, run=run, **meta)


def document_of(snapshot: Snapshot, *subagents: Snapshot, **options: Any) -> dict[str, Any]:
    """The run as ATIF, through JSON text, valid for the package."""
    document: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(to_atif(snapshot, subagents=subagents, **options))
    )
    atif.Trajectory.model_validate(document)
    return document


def assert_same_run(found: AtifRun, snapshot: Snapshot) -> None:
    assert (found.agent, found.run) == (snapshot.agent, snapshot.run)
    assert [encode_canonical(one.to_map()) for one in found.events] == [
        encode_canonical(one.to_map()) for one in snapshot.log
    ]
    assert list(found.events) == list(snapshot.log)
    assert encode_canonical(found.meta) == encode_canonical(snapshot.meta)


IDS = st.sampled_from(["c1", "c2", "c3", ""])
SAID = st.sampled_from(["", "Yes.", "One\n\ntwo", "\x00\u2028", "\U0001f469\u200d\U0001f680"])


@st.composite
def turns(draw: st.DrawFn) -> Event:
    """Events that belong together: calls, results and what is said, with few ids."""
    data: EventData = draw(
        st.one_of(
            st.builds(UserMessage, message=SAID),
            st.builds(AssistantMessage, message=SAID),
            st.builds(Thinking, text=SAID, signature=st.sampled_from(["", "s"]), final=st.booleans()),
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
                error_message=SAID,
                server_data=json_texts(),
            ),
            st.builds(PlannerNote, note=SAID),
            st.builds(ModelRequest, provider=st.just("anthropic"), model=SAID),
        )
    )
    own = draw(
        st.dictionaries(
            st.sampled_from(["response_id", "model", "usage", "atif_step"]),
            st.sampled_from(["1", "2", '{"input_tokens":3,"output_tokens":5}', '{"cost_usd":0.5}', "{"]),
        )
        | labels()
    )
    return new_event(data, timestamp=draw(timestamps()), labels=own)


class TestOurs:
    @unhurried
    @given(st.lists(turns() | events(), max_size=12), json_maps(), st.integers(1, 2**40))
    def test_any_run_is_restored_exactly(self, log: list[Event], meta: dict[str, Any], first: int) -> None:
        snapshot = run_of(log, first=first, **{f"m{key}": value for key, value in meta.items()})
        assert_same_run(from_atif(document_of(snapshot)), snapshot)

    @settings(unhurried, max_examples=25)
    @given(st.lists(turns(), max_size=8))
    def test_server_data_can_be_left_out(self, log: list[Event]) -> None:
        secret = "the-server's-own"
        told = [
            msgspec.structs.replace(event, data=msgspec.structs.replace(event.data, server_data=f'"{secret}"'))
            if isinstance(event.data, ToolResult)
            else event
            for event in log
        ]
        snapshot = run_of(told)
        assert secret not in repr(to_atif(snapshot, server_data=False))
        kept = document_of(snapshot, server_data=False)
        without = [
            msgspec.structs.replace(event, data=msgspec.structs.replace(event.data, server_data=""))
            if isinstance(event.data, ToolResult)
            else event
            for event in snapshot.log
        ]
        assert list(from_atif(kept).events) == without

    def test_the_samples(self) -> None:
        with open_sync_store("memory:") as store:
            for line in sample_lines("support.jsonl"):
                chat: Any = msgspec.json.decode(line)
                messages = chat.pop("messages")
                store.append_events(
                    "support", chat["run"], *parse(messages, "openai-chat", source=chat["run"]), meta=chat
                )
                snapshot = store.load_run("support", chat["run"])
                assert_same_run(from_atif(document_of(snapshot)), snapshot)

    async def test_a_sample_with_parallel_nested_and_failed_calls(self) -> None:
        async with open_store("memory:") as store:
            (done,) = await import_jsonl(store, sample_lines("demo.jsonl"))
            snapshot = await store.load_run(done.agent, done.run)
        document = document_of(snapshot)
        assert_same_run(from_atif(document), snapshot)
        nested_calls = [step for step in document["steps"] if step.get("llm_call_count") == 0]
        assert nested_calls
        assert sum(len(step.get("tool_calls", [])) for step in document["steps"]) == 12

    def test_what_it_shows(self) -> None:
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
        shown = [
            {key: value for key, value in step.items() if key not in ("step_id", "timestamp", "extra")}
            for step in document["steps"]
        ]
        assert shown == [
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
        words = ["asked", "thought", "said", "argued", "answered", "failed"]
        asked, thought, said, argued, answered, failed = (f"{word}-once" for word in words)
        snapshot = run_with(
            UserMessage(asked),
            Thinking(text=thought, final=True),
            AssistantMessage(said),
            ToolCall("1", "f", payload_json=f'{{"x":"{argued}"}}'),
            ToolCall("2", "f"),
            ToolResult("1", "f", result_json=answered),
            ToolResult("2", "f", error_message=failed),
        )
        written = repr(document_of(snapshot))
        assert [written.count(f"{word}-once") for word in words] == [1] * 6

    def test_texts_of_one_answer_stay_separate(self) -> None:
        said = ["first-thought", "first-word", "second-thought", "", "second-word"]
        log = [
            new_event(Thinking(text=text, final=True) if "thought" in text else AssistantMessage(text), labels=ANSWER)
            for text in said
        ]
        document = document_of(run_of(log))
        (step,) = document["steps"]
        assert step["message"] == "first-word\n\nsecond-word"
        assert step["reasoning_content"] == "first-thought\n\nsecond-thought"
        assert [repr(document).count(text) for text in said if text] == [1] * 4
        assert [
            getattr(event.data, "text", "") or getattr(event.data, "message", "")
            for event in from_atif(document).events
        ] == said

    @pytest.mark.parametrize(
        "between",
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
    def test_two_answers_are_two_steps(self, between: list[Event]) -> None:
        assert [step["source"] for step in document_of(run_of(between))["steps"]] == ["agent", "agent"]

    @pytest.mark.parametrize(
        ("block", "path"),
        [
            ({"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}, "https://x.test/a.png"),
            ({"type": "input_image", "image_url": "data:image/png;base64,AA"}, "data:image/png;base64,AA"),
            (
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                "data:image/png;base64,AA",
            ),
            ({"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}, "https://x.test/a.png"),
            ({"image": {"format": "png", "source": {"bytes": "AA"}}}, "data:image/png;base64,AA"),
        ],
    )
    def test_images(self, block: dict[str, Any], path: str) -> None:
        snapshot = run_with(
            UserMessage("See", structured={"p": {"fields": {"content": [block]}}}),
            ToolCall("1", "f"),
            ToolResult("1", "f", result_json="seen", structured=[{"not": "ours"}]),
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

    def test_an_edit_of_another_tool_counts(self) -> None:
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
        for at in (3, 1, 0):
            document["steps"].insert(at, {"step_id": 0, "source": "user", "message": f"at {at}"})
        for number, step in enumerate(document["steps"], 1):
            step["step_id"] = number
        found = from_atif(document)
        assert [getattr(event.data, "message", "") for event in found.events] == ["at 0", "Hi", "at 1", "Hello", "at 3"]
        assert [event.seq for event in found.events] == [1, 2, 3, 4, 5]
        assert len({event.event_id for event in found.events}) == 5

    def test_subagents_stand_inside_and_are_referred_to(self) -> None:
        outer = run_with(ToolCall("c1", "ask"), ToolResult("c1", "ask", result_json='"ok"'))
        parent = {"agent": "agent", "run": "run", "tool_call_id": "c1"}
        inner = run_with(UserMessage("sub"), agent="helper", run="r2", parent_run=parent)
        deeper = run_with(UserMessage("sub sub"), agent="helper", run="r3", parent_run={"agent": "helper", "run": "r2"})
        document = document_of(outer, deeper, inner)
        (result,) = document["steps"][0]["observation"]["results"]
        assert result["subagent_trajectory_ref"] == [{"trajectory_id": "helper/r2"}]
        assert [one["trajectory_id"] for one in document["subagent_trajectories"]] == ["helper/r2"]
        for found, snapshot in zip(from_atif(document), (outer, inner, deeper), strict=True):
            assert_same_run(found, snapshot)

    def test_a_run_is_embedded_once(self) -> None:
        run = run_with(UserMessage("x"))
        with pytest.raises(InvalidArgument, match="agent/run is passed twice"):
            to_atif(run, subagents=[run])
        ring = [
            run_with(UserMessage("x"), run=name, parent_run={"agent": "agent", "run": other})
            for name, other in (("a", "b"), ("b", "a"))
        ]
        with pytest.raises(InvalidArgument, match="name each other as parent"):
            to_atif(run, subagents=ring)

    def test_a_redacted_event_says_only_that_it_was(self) -> None:
        snapshot = run_with(
            UserMessage("secret"), ToolCall("1", "f", payload_json='{"a":"secret"}'), ToolResult("1", "f")
        )
        gone = Snapshot(
            "agent", "run", [redacted_form(event, "asked") for event in snapshot.log[:2]] + [snapshot.log[2]], version=3
        )
        document = document_of(gone)
        assert "secret" not in repr(document)
        found = from_atif(document)
        assert_same_run(found, gone)
        assert isinstance(found.events[0].data, Redacted)

    def test_a_run_without_steps(self) -> None:
        snapshot = run_with(PlannerNote("n"), Annotation("a"))
        document = document_of(snapshot)
        assert document["steps"] == []
        assert_same_run(from_atif(document), snapshot)

    async def test_into_a_store_and_again(self) -> None:
        outer = run_with(ToolCall("c1", "ask"), ToolResult("c1", "ask", result_json='"ok"'), session_id="s")
        inner = run_with(UserMessage("sub"), agent="helper", run="r2", parent_run={"agent": "agent", "run": "run"})
        found = from_atif(to_atif(outer, subagents=[inner]))
        async with open_store("memory:") as store:
            first = await import_atif(store, found)
            assert [(one.agent, one.run, one.read, one.inserted) for one in first] == [
                ("agent", "run", 2, 2),
                ("helper", "r2", 1, 1),
            ]
            again = await import_atif(store, found)
            assert [one.inserted for one in again] == [0, 0]
            assert await store.load_run("agent", "run") == outer
            assert await store.load_run("helper", "r2") == inner


def _mangled(value: Any, path: list[int], wrong: Any) -> Any:
    """``value`` with something else in one place."""
    if not path:
        return wrong
    if is_map(value) and len(value):
        keys: list[str] = list(value)
        key = keys[path[0] % len(keys)]
        return {**value, key: _mangled(value[key], path[1:], wrong)}
    if is_list(value) and len(value):
        at = path[0] % len(value)
        return [*value[:at], _mangled(value[at], path[1:], wrong), *value[at + 1 :]]
    return wrong


class TestMalformed:
    @unhurried
    @given(st.lists(turns(), min_size=1, max_size=6), st.lists(st.integers(0, 9), max_size=9), wrong_values())
    def test_anything_in_any_place_is_read_or_refused(self, log: list[Event], path: list[int], wrong: Any) -> None:
        document = _mangled(document_of(run_of(log)), path, wrong)
        with contextlib.suppress(DecodeError):
            for event in from_atif(document).events:
                assert Event.from_map(event.to_map()) == event

    @pytest.mark.parametrize(
        ("path", "wrong", "message"),
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
    def test_the_place_is_named(self, path: list[Any], wrong: Any, message: str) -> None:
        document: Any = document_of(run_with(UserMessage("Hi"), AssistantMessage("Hello")))
        if wrong == "sub":
            wrong = [{**document}]
            del wrong[0]["trajectory_id"]
        if path:
            inner = document
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = wrong
        else:
            document = wrong
        with pytest.raises(DecodeError) as caught:
            from_atif(document)
        assert message in str(caught.value)

    def test_deep_nesting_is_refused_with_its_place(self) -> None:
        document: Any = document_of(run_with(UserMessage("Hi")))
        document["extra"]["deep"] = nested(5000)
        with pytest.raises(DecodeError, match=r"trajectory\.extra\.deep.*nests deeper"):
            from_atif(document)

    @given(texts())
    def test_a_version_of_another_kind(self, version: str) -> None:
        document: Any = document_of(run_with(UserMessage("Hi")))
        document["schema_version"] = version
        with pytest.raises(DecodeError, match="schema_version"):
            from_atif(document)
