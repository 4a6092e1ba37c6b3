"""OpenTelemetry: a run as the spans that the conventions for generative AI describe."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
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
    """A run with an event each second."""
    numbered = [
        msgspec.structs.replace(
            one if isinstance(one, Event) else new_event(one), timestamp=START + timedelta(seconds=seq - 1), seq=seq
        )
        for seq, one in enumerate(log, 1)
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


def at(second: float) -> int:
    """That many seconds after the start, in nanoseconds."""
    return to_microseconds(START) * 1000 + int(second * SECOND)


def named(spans: Sequence[ReadableSpan]) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans}


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


class TestSpans:
    def test_the_tree_and_its_times(self) -> None:
        spans = spans_of(RUN)
        names = {id_of(span): span.name for span in spans}
        tree = [
            (span.name, None if span.parent is None else names[span.parent.span_id], span.start_time, span.end_time)
            for span in spans
        ]
        assert tree == [
            ("invoke_agent agent", None, at(0), at(13)),
            ("chat claude-x", "invoke_agent agent", at(2), at(6)),
            ("execute_tool a.find", "invoke_agent agent", at(7), at(10)),
            ("execute_tool a.send", "invoke_agent agent", at(6), at(9)),
            ("execute_tool b.inner", "execute_tool a.find", at(7.5), at(8)),
            ("chat claude-x", "invoke_agent agent", at(10), at(11)),
            ("execute_tool a.open", "invoke_agent agent", at(11), at(11)),
            ("execute_tool a.orphan", "invoke_agent agent", at(12), at(12)),
            ("chat claude-x", "invoke_agent agent", at(12), at(13)),
        ]
        kinds = {span.name.split()[0]: span.kind for span in spans}
        assert kinds == {
            "invoke_agent": SpanKind.INTERNAL,
            "chat": SpanKind.CLIENT,
            "execute_tool": SpanKind.INTERNAL,
        }

    def test_the_attributes(self) -> None:
        spans = spans_of(RUN)
        common = {"gen_ai.agent.name": "agent", "gen_ai.conversation.id": "run"}
        used = {
            "gen_ai.usage.input_tokens": 125,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 20,
            "gen_ai.usage.cache_write.input_tokens": 5,
        }
        assert about(spans[0]) == {
            **common,
            **used,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "claude-x",
            "agent_memory_log.version": 14,
        }
        assert about(spans[1]) == {
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
        assert about(spans[2]) == {
            **common,
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "a.find",
            "gen_ai.tool.call.id": "c1",
            "gen_ai.tool.type": "function",
            "agent_memory_log.seq": 6,
        }

    def test_errors(self) -> None:
        spans = named(spans_of(RUN))
        failed = spans["execute_tool a.send"]
        assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, None)
        assert about(failed)["error.type"] == "TimeoutError"
        assert about(spans["execute_tool a.orphan"])["error.type"] == "timeout"
        assert spans["execute_tool a.find"].status.status_code is StatusCode.UNSET
        assert about(spans["execute_tool a.open"])["agent_memory_log.unanswered"] is True
        unnamed = named(spans_of(run_of([ToolCall("c", "f"), ToolResult("c", "f", error_message="x")])))
        assert about(unnamed["execute_tool f"])["error.type"] == "_OTHER"

    def test_content_is_exported_only_on_request(self) -> None:
        assert "secret" not in repr([(span.name, about(span), span.status.description) for span in spans_of(RUN)])
        told = spans_of(RUN, content=True)
        written = repr([(span.name, about(span), span.status.description) for span in told])
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
        assert about(named(told)["execute_tool a.find"])["gen_ai.tool.call.arguments"] == '{"q":"secret"}'
        assert about(named(told)["execute_tool a.find"])["gen_ai.tool.call.result"] == '"secret"'
        assert msgspec.json.decode(about(told[1])["gen_ai.output.messages"]) == [
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
        assert msgspec.json.decode(about(told[1])["gen_ai.system_instructions"]) == [
            {"type": "text", "content": "secret system"}
        ]

    def test_a_model_that_is_not_known_has_no_span(self) -> None:
        spans = spans_of(run_of([UserMessage("Hi"), AssistantMessage("Hello")]))
        assert [span.name for span in spans] == ["invoke_agent agent"]

    @pytest.mark.parametrize(
        ("recorded", "name"),
        [("openai-chat", "openai"), ("openai-responses", "openai"), ("bedrock", "aws.bedrock"), ("mine", "mine")],
    )
    def test_providers_have_the_names_of_the_conventions(self, recorded: str, name: str) -> None:
        event = new_event(AssistantMessage("Hello"), labels={"provider": recorded, "model": "m"})
        assert about(spans_of(run_of([event]))[1])["gen_ai.provider.name"] == name

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(st.lists(events(), max_size=8), st.booleans())
    def test_any_run_makes_a_tree_that_can_be_written(self, log: list[Event], content: bool) -> None:
        numbered = [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(log, 1)]
        snapshot = Snapshot("agent", "run", numbered, version=len(log))
        stream = io.StringIO()
        count = export_spans(snapshot, FileSpanExporter(stream=stream), content=content)
        spans = spans_of(snapshot, content=content)
        assert count == len(spans)
        assert stream.getvalue().count("\n") == (1 if log else 0)
        assert stream.getvalue().count('"spanId"') == count
        known = {id_of(span) for span in spans}
        assert len(known) == count
        for index, span in enumerate(spans):
            assert (span.parent is None) == (index == 0)
            assert span.parent is None or span.parent.span_id in known
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
    def test_any_exporter(self) -> None:
        exporter = InMemorySpanExporter()
        assert export_spans(RUN, exporter) == 9
        assert [span.name for span in exporter.get_finished_spans()] == [span.name for span in spans_of(RUN)]

    def test_exporting_again_gives_the_same(self) -> None:
        streams = [io.StringIO(), io.StringIO()]
        for stream in streams:
            export_spans(RUN, FileSpanExporter(stream=stream), content=True)
        assert streams[0].getvalue() == streams[1].getvalue() != ""

    def test_ids_are_those_of_the_run(self) -> None:
        grown = Snapshot("agent", "run", [*RUN.log, msgspec.structs.replace(RUN.log[-1], seq=15)], version=15)
        assert {id_of(span) for span in spans_of(RUN)} < {id_of(span) for span in spans_of(grown)}
        other = Snapshot("agent", "other", RUN.log, version=14)
        assert {id_of(span) for span in spans_of(RUN)}.isdisjoint(id_of(span) for span in spans_of(other))
        contexts = [span.get_span_context() for span in spans_of(RUN)]
        assert len({context.trace_id for context in contexts if context is not None}) == 1

    def test_the_environment_cuts_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"):
            monkeypatch.setenv(name, "2")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        assert len(about(spans_of(RUN)[1])) > 2
        assert spans_of(RUN)[1].name == "chat claude-x"
        assert about(spans_of(RUN)[1])["gen_ai.provider.name"] == "anthropic"

    def test_no_events_no_spans(self) -> None:
        assert export_spans(Snapshot("agent", "run"), _Failing()) == 0

    def test_a_failure_is_an_error(self) -> None:
        with pytest.raises(StoreUnavailable, match="_Failing failed to export the 9 spans of agent/run"):
            export_spans(RUN, _Failing())
