"""Tests of the OpenTelemetry export: spans by the conventions for generative AI."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from agent_memory_log import (
    AssistantMessage,
    Event,
    EventData,
    ModelRequest,
    RetryHint,
    Snapshot,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
)
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.events.event import to_microseconds
from agent_memory_log.interchange.opentelemetry import export_spans, spans_of
from tests.strategies import events

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
SECOND = 1_000_000_000
USAGE = '{"input_tokens":100,"cache_read_input_tokens":20,"cache_creation_input_tokens":5,"output_tokens":7}'


def run_of(log: Sequence[Event | EventData]) -> Snapshot:
    """Return a run with one event for each second."""
    numbered = [
        msgspec.structs.replace(
            item if isinstance(item, Event) else new_event(item), timestamp=START + timedelta(seconds=seq - 1), seq=seq
        )
        for seq, item in enumerate(log, 1)
    ]
    return Snapshot("agent", "run", numbered, version=len(numbered))


ANSWER = {"provider": "anthropic", "model": "claude-x-1", "response_id": "r1", "stop_reason": "tool_use"}
RUN = run_of(
    [
        SystemMessage("secret instructions"),
        ModelRequest(
            "anthropic",
            "claude-x",
            system="secret system",
            system_hash="h",
            parameters={"max_tokens": 500, "temperature": 0.5, "stream": True, "top_k": 10**30},
        ),
        UserMessage("secret question"),
        new_event(Thinking(text="secret thought"), labels={**ANSWER, "usage": USAGE}),
        new_event(AssistantMessage("secret plan"), labels=ANSWER),
        new_event(ToolCall("c1", "a.find", payload_json='{"q":"secret"}'), labels=ANSWER),
        new_event(ToolCall("c2", "a.send"), labels=ANSWER),
        ToolCall("n1", "b.inner", parent_tool_call_id="c1"),
        ToolResult("n1", "b.inner", parent_tool_call_id="c1", result_json='"secret"', duration_ns=SECOND // 2),
        new_event(ToolResult("c2", "a.send", error_message="secret failure"), labels={"error_type": "TimeoutError"}),
        ToolResult("c1", "a.find", result_json='"secret"', server_data='"server secret"', duration_ns=3 * SECOND),
        ToolCall("c3", "a.open"),
        ToolResult("gone", "a.orphan", error_message="no", retry_hint=RetryHint(reason="timeout")),
        AssistantMessage("secret end"),
    ]
)


def nanoseconds_at(second: float) -> int:
    """Return the time ``second`` seconds after the start, in nanoseconds since 1970."""
    return to_microseconds(START) * 1000 + int(second * SECOND)


def spans_by_name(spans: Sequence[ReadableSpan]) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans}


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


class TestSpans:
    def test_spans_have_the_right_parents_and_times(self) -> None:
        spans = spans_of(RUN)
        names = {id_of(span): span.name for span in spans}
        tree = [
            (span.name, None if span.parent is None else names[span.parent.span_id], span.start_time, span.end_time)
            for span in spans
        ]
        assert tree == [
            ("invoke_agent agent", None, nanoseconds_at(0), nanoseconds_at(13)),
            ("chat claude-x", "invoke_agent agent", nanoseconds_at(2), nanoseconds_at(6)),
            ("execute_tool a.find", "invoke_agent agent", nanoseconds_at(7), nanoseconds_at(10)),
            ("execute_tool a.send", "invoke_agent agent", nanoseconds_at(6), nanoseconds_at(9)),
            ("execute_tool b.inner", "execute_tool a.find", nanoseconds_at(7.5), nanoseconds_at(8)),
            ("chat claude-x", "invoke_agent agent", nanoseconds_at(10), nanoseconds_at(11)),
            ("execute_tool a.open", "invoke_agent agent", nanoseconds_at(11), nanoseconds_at(11)),
            ("execute_tool a.orphan", "invoke_agent agent", nanoseconds_at(12), nanoseconds_at(12)),
            ("chat claude-x", "invoke_agent agent", nanoseconds_at(12), nanoseconds_at(13)),
        ]
        kinds = {span.name.split()[0]: span.kind for span in spans}
        assert kinds == {
            "invoke_agent": SpanKind.INTERNAL,
            "chat": SpanKind.CLIENT,
            "execute_tool": SpanKind.INTERNAL,
        }

    def test_spans_have_the_attributes_of_the_conventions(self) -> None:
        spans = spans_of(RUN)
        common = {"gen_ai.agent.name": "agent", "gen_ai.conversation.id": "run"}
        used = {
            "gen_ai.usage.input_tokens": 125,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 20,
            "gen_ai.usage.cache_write.input_tokens": 5,
        }
        assert attributes_of(spans[0]) == {
            **common,
            **used,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "claude-x",
            "agent_memory_log.version": 14,
        }
        assert attributes_of(spans[1]) == {
            **common,
            **used,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "claude-x",
            "gen_ai.request.max_tokens": 500,
            "gen_ai.request.temperature": 0.5,
            "gen_ai.response.model": "claude-x-1",
            "gen_ai.response.id": "r1",
            "gen_ai.response.finish_reasons": ("tool_use",),
            "agent_memory_log.seq": 4,
        }
        assert attributes_of(spans[2]) == {
            **common,
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "a.find",
            "gen_ai.tool.call.id": "c1",
            "gen_ai.tool.type": "function",
            "agent_memory_log.seq": 6,
        }

    def test_failed_and_unanswered_calls_are_marked(self) -> None:
        spans = spans_by_name(spans_of(RUN))
        failed = spans["execute_tool a.send"]
        assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, None)
        assert attributes_of(failed)["error.type"] == "TimeoutError"
        assert attributes_of(spans["execute_tool a.orphan"])["error.type"] == "timeout"
        assert spans["execute_tool a.find"].status.status_code is StatusCode.UNSET
        assert attributes_of(spans["execute_tool a.open"])["agent_memory_log.unanswered"] is True
        without_type = spans_by_name(spans_of(run_of([ToolCall("c", "f"), ToolResult("c", "f", error_message="x")])))
        assert attributes_of(without_type["execute_tool f"])["error.type"] == "_OTHER"

    def test_content_is_exported_only_on_request(self) -> None:
        assert "secret" not in repr(
            [(span.name, attributes_of(span), span.status.description) for span in spans_of(RUN)]
        )
        spans_with_content = spans_of(RUN, content=True)
        written = repr([(span.name, attributes_of(span), span.status.description) for span in spans_with_content])
        for text in (
            "secret system",
            "secret question",
            "secret thought",
            "secret plan",
            "secret failure",
            "secret end",
        ):
            assert text in written
        assert "server secret" not in written
        assert (
            attributes_of(spans_by_name(spans_with_content)["execute_tool a.find"])["gen_ai.tool.call.arguments"]
            == '{"q":"secret"}'
        )
        assert (
            attributes_of(spans_by_name(spans_with_content)["execute_tool a.find"])["gen_ai.tool.call.result"]
            == '"secret"'
        )
        assert msgspec.json.decode(attributes_of(spans_with_content[1])["gen_ai.output.messages"]) == [
            {
                "role": "assistant",
                "parts": [
                    {"type": "reasoning", "content": "secret thought"},
                    {"type": "text", "content": "secret plan"},
                    {"type": "tool_call", "id": "c1", "name": "a.find", "arguments": {"q": "secret"}},
                    {"type": "tool_call", "id": "c2", "name": "a.send", "arguments": None},
                ],
                "finish_reason": "tool_use",
            }
        ]
        assert msgspec.json.decode(attributes_of(spans_with_content[1])["gen_ai.system_instructions"]) == [
            {"type": "text", "content": "secret system"}
        ]

    def test_turn_of_an_unknown_model_has_no_span(self) -> None:
        spans = spans_of(run_of([UserMessage("Hi"), AssistantMessage("Hello")]))
        assert [span.name for span in spans] == ["invoke_agent agent"]

    @pytest.mark.parametrize(
        ("recorded", "name"),
        [
            ("openai-chat", "openai"),
            ("openai-responses", "openai"),
            ("bedrock", "aws.bedrock"),
            ("gemini", "gcp.gemini"),
            ("mine", "mine"),
        ],
    )
    def test_providers_have_the_names_of_the_conventions(self, recorded: str, name: str) -> None:
        event = new_event(AssistantMessage("Hello"), labels={"provider": recorded, "model": "m"})
        assert attributes_of(spans_of(run_of([event]))[1])["gen_ai.provider.name"] == name

    @given(st.lists(events(), max_size=8), st.booleans())
    def test_any_run_gives_one_tree_of_spans_that_can_be_exported(self, log: list[Event], content: bool) -> None:
        numbered = [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(log, 1)]
        snapshot = Snapshot("agent", "run", numbered, version=len(log))
        stream = io.StringIO()
        count = export_spans(snapshot, FileSpanExporter(stream=stream), content=content)
        spans = spans_of(snapshot, content=content)
        assert count == len(spans)
        assert stream.getvalue().count("\n") == (1 if log else 0)
        assert stream.getvalue().count('"spanId"') == count
        span_ids = {id_of(span) for span in spans}
        assert len(span_ids) == count
        for index, span in enumerate(spans):
            assert (span.parent is None) == (index == 0)
            assert span.parent is None or span.parent.span_id in span_ids
            assert span.start_time is not None
            assert span.end_time is not None
            assert 0 <= span.start_time <= span.end_time < 2**63
        calls = sum(isinstance(event.data, ToolCall) for event in log)
        assert sum(span.name.startswith("execute_tool") for span in spans) >= calls


class _Failing(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.FAILURE


class TestExport:
    def test_export_passes_all_spans_to_the_exporter(self) -> None:
        exporter = InMemorySpanExporter()
        assert export_spans(RUN, exporter) == 9
        assert [span.name for span in exporter.get_finished_spans()] == [span.name for span in spans_of(RUN)]

    def test_second_export_is_equal(self) -> None:
        streams = [io.StringIO(), io.StringIO()]
        for stream in streams:
            export_spans(RUN, FileSpanExporter(stream=stream), content=True)
        assert streams[0].getvalue() == streams[1].getvalue() != ""

    def test_span_ids_depend_only_on_the_run_and_its_events(self) -> None:
        grown = Snapshot("agent", "run", [*RUN.log, msgspec.structs.replace(RUN.log[-1], seq=15)], version=15)
        assert {id_of(span) for span in spans_of(RUN)} < {id_of(span) for span in spans_of(grown)}
        other = Snapshot("agent", "other", RUN.log, version=14)
        assert {id_of(span) for span in spans_of(RUN)}.isdisjoint(id_of(span) for span in spans_of(other))
        contexts = [span.get_span_context() for span in spans_of(RUN)]
        assert len({context.trace_id for context in contexts if context is not None}) == 1

    def test_environment_variables_do_not_cut_or_drop_spans(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"):
            monkeypatch.setenv(name, "2")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        assert len(attributes_of(spans_of(RUN)[1])) > 2
        assert spans_of(RUN)[1].name == "chat claude-x"
        assert attributes_of(spans_of(RUN)[1])["gen_ai.provider.name"] == "anthropic"

    def test_empty_run_has_no_spans(self) -> None:
        assert export_spans(Snapshot("agent", "run"), _Failing()) == 0

    def test_failed_export_raises(self) -> None:
        with pytest.raises(StoreUnavailable, match="_Failing failed to export the 9 spans of agent/run"):
            export_spans(RUN, _Failing())
