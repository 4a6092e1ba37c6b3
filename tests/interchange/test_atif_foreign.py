"""Tests of ATIF import: documents of other tools are imported, and exported again without a change."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import atif
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    Event,
    Snapshot,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_store,
)
from agent_memory_log.errors import DecodeError, EventConflict, InvalidArgument, SchemaTooNew
from agent_memory_log.events.event import redacted_form
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.interchange.atif import AtifRun, from_atif, import_atif, to_atif

Document = dict[str, Any]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0.1, 1.0, -0.0, 1e300, 10**40])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "", "$b"]), inner, max_size=2),
    max_leaves=5,
)
MAPS = st.dictionaries(st.sampled_from(["a", "agent", "", "x.y"]), VALUES, max_size=3)
TEXTS = st.sampled_from(["", " ", "Hello", "null", '{"a":1}', "One\n\ntwo", "\x00\u2028"])
IDS = st.sampled_from(["c1", "c2", ""])
TIMES = st.sampled_from(
    [
        "2025-10-16T14:30:00Z",
        "2025-10-16T14:30:00.123456+02:00",
        "2025-10-16 14:30:00",
        "2025-10-16",
        "20251016T143000Z",
    ]
)


def some(
    optional: dict[str, st.SearchStrategy[Any]], **required: st.SearchStrategy[Any]
) -> st.SearchStrategy[Document]:
    """Return a strategy for maps of ``required`` and some of ``optional``, whose values may be null."""
    return st.fixed_dictionaries(required, optional={key: st.none() | value for key, value in optional.items()})


MEDIA: list[Document] = [
    {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}},
    {"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav", "duration_sec": 1.5}},
]
PARTS = st.lists(some({}, type=st.just("text"), text=TEXTS) | st.sampled_from(MEDIA), max_size=3)
METRICS = some(
    {
        "prompt_tokens": st.integers(0, 9),
        "completion_tokens": st.integers(0, 9),
        "cached_tokens": st.integers(0, 9),
        "cost_usd": st.sampled_from([0, 0.25, 1]),
        "completion_token_ids": st.lists(st.integers(0, 9), max_size=3),
        "logprobs": st.lists(st.sampled_from([-0.5, 0.0]), max_size=3),
        "extra": MAPS,
    }
)
CALLS = st.lists(
    some({"extra": MAPS}, tool_call_id=IDS, function_name=st.sampled_from(["f", "a.b", ""]), arguments=MAPS), max_size=3
)
REFERENCES = st.lists(
    some({"session_id": TEXTS, "extra": MAPS}, trajectory_id=st.sampled_from(["t1", "t2", "t9"])), max_size=2
)
RESULTS = st.lists(
    some({"source_call_id": IDS, "content": TEXTS | PARTS, "subagent_trajectory_ref": REFERENCES, "extra": MAPS}),
    max_size=3,
)


@st.composite
def steps(draw: st.DrawFn, number: int) -> Document:
    source = draw(st.sampled_from(["user", "system", "agent", "agent"]))
    optional: dict[str, st.SearchStrategy[Any]] = {
        "timestamp": TIMES,
        "observation": st.fixed_dictionaries({"results": RESULTS}),
        "extra": MAPS,
        "is_copied_context": st.booleans(),
    }
    if source == "agent":
        optional |= {
            "model_name": st.sampled_from(["m", ""]),
            "reasoning_effort": st.sampled_from(["high", 0.5]),
            "reasoning_content": TEXTS,
            "tool_calls": CALLS,
            "metrics": METRICS,
            "llm_call_count": st.integers(1, 3),
        }
    step = draw(some(optional, message=TEXTS | PARTS))
    if step.get("observation") and step.get("tool_calls") is not None:
        ids = {call["tool_call_id"] for call in step["tool_calls"]}
        for result in step["observation"]["results"]:
            if result.get("source_call_id") not in ids:
                result.pop("source_call_id", None)
    return {"step_id": number, "source": source, **step}


@st.composite
def trajectories(draw: st.DrawFn, depth: int = 1) -> Document:
    """Draw a valid document that can have every field of the format."""
    document = draw(
        some(
            {
                "notes": TEXTS,
                "final_metrics": some({"total_cost_usd": st.just(0.5), "total_steps": st.just(3), "extra": MAPS}),
                "continued_trajectory_ref": TEXTS,
                "extra": MAPS,
                "trajectory_id": st.just("outer"),
            },
            schema_version=st.sampled_from(["ATIF-v1.8", "ATIF-v1.0"]),
            session_id=st.just("session"),
            agent=some(
                {"model_name": TEXTS, "tool_definitions": st.lists(MAPS, max_size=2), "extra": MAPS},
                name=st.just("my-agent"),
                version=st.just("1.0"),
            ),
        )
    )
    document["steps"] = [draw(steps(number)) for number in range(1, draw(st.integers(0, 5)) + 1)]
    if depth:
        inner = draw(st.none() | st.lists(trajectories(depth=depth - 1), max_size=2))
        if inner is not None or draw(st.booleans()):
            document["subagent_trajectories"] = inner
        for number, trajectory in enumerate(inner or ()):
            trajectory["trajectory_id"] = f"t{number}"
    return document


def stored(imported: AtifRun) -> list[Snapshot]:
    """Return the runs as a store returns them, the outermost run first."""
    return [
        Snapshot(
            run.agent,
            run.run,
            [Event.from_map(event.to_map()) for event in run.events],
            version=len(run.events),
            meta=run.meta,
        )
        for run in imported
    ]


def exported_again(document: Document) -> Document:
    outer, *inner = stored(from_atif(document))
    return to_atif(outer, subagents=reversed(inner))


STEP: Document = {"step_id": 1, "source": "user", "message": "Hi"}
SMALL: Document = {
    "schema_version": "ATIF-v1.8",
    "session_id": "s",
    "agent": {"name": "a", "version": "1"},
    "steps": [STEP],
}
SECRET = "secret"
RICH: Document = {
    **SMALL,
    "steps": [
        STEP,
        {
            "step_id": 2,
            "timestamp": "2026-01-01T10:00:00+01:00",
            "source": "agent",
            "model_name": "m-1",
            "message": "I look",
            "reasoning_content": "Hm",
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "find", "arguments": {"q": "x"}, "extra": {"k": 1}},
                {"tool_call_id": "c2", "function_name": "find", "arguments": {}},
            ],
            "observation": {
                "results": [
                    {"source_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
                    {"source_call_id": "c1", "content": "one", "extra": {"score": 1}},
                    {"content": "without a call"},
                ]
            },
            "metrics": {"prompt_tokens": 12, "completion_tokens": 3, "cost_usd": 0.5, "logprobs": [-0.5]},
        },
    ],
}


CALL: Document = {"tool_call_id": "c", "function_name": "f", "arguments": {}}


class TestImport:
    @given(trajectories())
    def test_any_imported_trajectory_is_exported_unchanged(self, document: Document) -> None:
        atif.Trajectory.model_validate(document)
        before = copy.deepcopy(document)
        again = exported_again(document)
        assert encode_canonical(again) == encode_canonical(document)
        assert document == before

    @pytest.mark.parametrize(
        "step_fields",
        [
            # two results of one call
            [({"tool_calls": [CALL], "observation": {"results": [{"source_call_id": "c"}, {"source_call_id": "c"}]}})],
            # a step with only results, which have no call in this step
            [{"tool_calls": [CALL]}, {"observation": {"results": [{"content": "x"}, {"source_call_id": "c"}]}}],
            # a result without a call, and an open call without an id
            [{"tool_calls": [{**CALL, "tool_call_id": ""}]}, {"observation": {"results": [{"content": "x"}]}}],
            [{"tool_calls": [{**CALL, "tool_call_id": ""}], "observation": {"results": [{"content": "x"}]}}],
            # empty steps
            [{}, {}, {"tool_calls": [], "observation": {"results": []}, "metrics": {}, "reasoning_content": ""}],
        ],
    )
    def test_unusual_steps_are_exported_unchanged(self, step_fields: list[Document]) -> None:
        common = {"timestamp": "2026-01-01T09:00:00Z", "source": "agent", "message": ""}
        document = {
            **SMALL,
            "steps": [{"step_id": number, **common, **fields} for number, fields in enumerate(step_fields, 1)],
        }
        atif.Trajectory.model_validate(document)
        assert exported_again(document) == document

    def test_inserted_foreign_step_gets_a_new_id(self) -> None:
        (snapshot,) = stored(from_atif(SMALL))
        more = msgspec.structs.replace(new_event(UserMessage("more")), seq=2)
        document = to_atif(Snapshot("a", "s", [*snapshot.log, more], version=2, meta=snapshot.meta))
        document["steps"] = [STEP, *({**step, "step_id": number} for number, step in enumerate(document["steps"], 2))]
        assert len({event.event_id for event in from_atif(document).events}) == 3

    @given(trajectories(depth=0), st.lists(st.sampled_from(["user", "tool", "said"]), min_size=1, max_size=3))
    def test_continued_run_is_restored_exactly(self, document: Document, more: list[str]) -> None:
        (snapshot,) = stored(from_atif(document))
        payloads = {
            "user": UserMessage("more"),
            "tool": ToolResult("c1", "f", result_json="1"),
            "said": AssistantMessage("A"),
        }
        added = [
            msgspec.structs.replace(new_event(payloads[kind]), seq=snapshot.version + number)
            for number, kind in enumerate(more, 1)
        ]
        grown = Snapshot(
            snapshot.agent,
            snapshot.run,
            [*snapshot.log, *added],
            version=snapshot.version + len(added),
            meta=snapshot.meta,
        )
        again = to_atif(grown)
        atif.Trajectory.model_validate(again)
        imported = from_atif(again)
        assert list(imported.events) == list(grown.log)
        assert encode_canonical(imported.meta) == encode_canonical(grown.meta)

    def test_step_is_imported_as_typed_events(self) -> None:
        imported = from_atif(RICH)
        assert (imported.agent, imported.run) == ("a", "s")
        assert [event.data for event in imported.events[2:]] == [
            AssistantMessage(
                "I look",
                structured={
                    "atif": {
                        "fields": {
                            "timestamp": "2026-01-01T10:00:00+01:00",
                            "metrics": RICH["steps"][1]["metrics"],
                        }
                    }
                },
            ),
            ToolCall("c1", "find", payload_json='{"q":"x"}', structured={"atif": {"fields": {"extra": {"k": 1}}}}),
            ToolCall("c2", "find", payload_json="{}"),
            ToolResult(
                "c2",
                "find",
                result_json="two",
                structured={"atif": {"fields": {"content": [{"type": "text", "text": "two"}]}}},
            ),
            ToolResult("c1", "find", result_json="one", structured={"atif": {"fields": {"extra": {"score": 1}}}}),
            ToolResult("", "", result_json="without a call"),
        ]
        assert imported.events[1].data == Thinking(text="Hm", final=True)
        assert imported.events[1].labels == {
            "atif_step": "2",
            "model": "m-1",
            "usage": '{"prompt_tokens":12,"completion_tokens":3,"cost_usd":0.5}',
        }
        assert {event.timestamp.isoformat() for event in imported.events} == {"2026-01-01T09:00:00+00:00"}

    def test_erased_event_also_erases_its_unknown_fields(self) -> None:
        secret: Document = {
            "step_id": 1,
            "source": "agent",
            "message": [{"type": "text", "text": "open"}],
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "f", "arguments": {"a": SECRET}, "extra": {"b": SECRET}},
                {"tool_call_id": "c2", "function_name": "f", "arguments": {}, "extra": {"b": "open"}},
            ],
            "observation": {"results": [{"source_call_id": "c1", "content": SECRET, "extra": {"c": SECRET}}]},
            "extra": {"d": "open"},
        }
        (snapshot,) = stored(from_atif({**SMALL, "steps": [secret]}))
        redacted = [redacted_form(event, "asked") if SECRET in repr(event) else event for event in snapshot.log]
        assert [event.type for event in redacted] == ["assistant_message", "redacted", "tool_call", "redacted"]
        document: Any = to_atif(Snapshot("a", "s", redacted, version=4, meta=snapshot.meta))
        atif.Trajectory.model_validate(document)
        assert SECRET not in repr(document)
        assert document["steps"][0]["extra"]["d"] == "open"
        assert document["steps"][0]["tool_calls"][0]["extra"] == {"b": "open"}
        assert list(from_atif(document).events) == redacted

    def test_foreign_data_under_our_key_is_harmless(self) -> None:
        (snapshot,) = stored(from_atif(SMALL))
        metas: list[Any] = [
            snapshot.meta,
            {"atif": {"document": {"agent": 7}}},
            {"atif": {"subagents": [[["a"]], 7]}},
        ]
        for structured in ({"atif": {"fields": {"source": 7}}}, {"atif": {"without": ["message"]}}, {"atif": 7}):
            event = msgspec.structs.replace(snapshot.log[0], data=UserMessage("Hi", structured=structured))
            for meta in metas:
                log = [event, msgspec.structs.replace(event, event_id="other", seq=2)]
                changed = Snapshot("a", "s", log, version=2, meta=meta)
                document = to_atif(changed)
                atif.Trajectory.model_validate(document)
                imported = from_atif(document)
                assert list(imported.events) == log
                assert imported.meta == meta

    def test_run_is_named_after_the_session_or_trajectory_id(self) -> None:
        nameless = {key: value for key, value in SMALL.items() if key != "session_id"}
        assert from_atif({**nameless, "trajectory_id": "t"}).run == "t"
        assert from_atif(nameless, agent="b", run="r").events[0] != from_atif(nameless, agent="b", run="q").events[0]
        with pytest.raises(DecodeError, match="no session_id and no trajectory_id"):
            from_atif(nameless)
        with pytest.raises(DecodeError, match="name is empty"):
            from_atif({**SMALL, "agent": {"name": "", "version": "1"}})

    def test_events_take_the_time_of_a_step_with_a_timestamp(self) -> None:
        import_time = datetime(2026, 1, 1, tzinfo=UTC)
        later = {**STEP, "step_id": 2, "timestamp": "2026-02-01T00:00:00+02:00"}
        last = {**STEP, "step_id": 3}
        imported = from_atif({**SMALL, "steps": [STEP, later, last]}, timestamp=import_time)
        assert [event.timestamp for event in imported.events] == [datetime(2026, 1, 31, 22, tzinfo=UTC)] * 3
        assert from_atif(SMALL, timestamp=import_time).events[0].timestamp == import_time
        with pytest.raises(InvalidArgument, match="timezone-aware"):
            from_atif(SMALL, timestamp=import_time.replace(tzinfo=None))

    def test_embedded_trajectories_become_separate_runs(self) -> None:
        inner = {**SMALL, "trajectory_id": "t"}
        result = {"source_call_id": "c", "subagent_trajectory_ref": [{"trajectory_id": "t"}]}
        call: Document = {"tool_call_id": "c", "function_name": "ask", "arguments": {}}
        step: Document = {
            "step_id": 1,
            "timestamp": "2026-01-01T09:00:00Z",
            "source": "agent",
            "message": "",
            "tool_calls": [call],
            "observation": {"results": [result]},
        }
        outer, sub = stored(from_atif({**SMALL, "steps": [step], "subagent_trajectories": [inner]}))
        assert (sub.agent, sub.run, sub.meta["parent_run"]) == (
            "a",
            "s:t",
            {"agent": "a", "run": "s", "tool_call_id": "c"},
        )
        assert outer.log[0].type == "tool_call"

    def test_newer_minor_version_is_read_and_newer_major_version_refused(self) -> None:
        assert from_atif({**SMALL, "schema_version": "ATIF-v1.99", "new": [1]}).events
        with pytest.raises(SchemaTooNew, match="upgrade") as caught:
            from_atif({**SMALL, "schema_version": "ATIF-v2.0"})
        assert (caught.value.actual, caught.value.supported) == (2, 1)

    def test_fields_of_a_newer_version_are_exported_again(self) -> None:
        document = copy.deepcopy(RICH)
        document["new"] = document["agent"]["new"] = document["steps"][1]["new"] = {"x": 1}
        document["steps"][1]["observation"]["new"] = document["steps"][1]["tool_calls"][0]["new"] = [1]
        assert exported_again(document) == document

    async def test_second_import_stores_nothing(self) -> None:
        async with open_store("memory:") as store:
            for inserted in (8, 0):
                (done,) = await import_atif(store, from_atif(RICH))
                assert (done.read, done.inserted) == (8, inserted)
            assert to_atif(await store.load_run("a", "s")) == RICH

    async def test_different_document_of_the_same_run_is_refused(self) -> None:
        async with open_store("memory:") as store:
            await import_atif(store, from_atif(SMALL))
            other = {**SMALL, "steps": [{**STEP, "message": "Other"}]}
            with pytest.raises(EventConflict) as caught:
                await import_atif(store, from_atif(other))
            assert caught.value.__notes__ == ["in the run a/s, converted to JSONL"]

    def test_system_step_becomes_a_system_message(self) -> None:
        step = {"step_id": 1, "source": "system", "message": "Be kind"}
        assert from_atif({**SMALL, "steps": [step]}).events[0].data == SystemMessage(
            "Be kind", structured={"atif": {"without": ["timestamp"]}}
        )
