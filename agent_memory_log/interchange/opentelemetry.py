"""Exports a run as OpenTelemetry spans for any exporter of the SDK, by its conventions for generative AI.

It needs the extra ``otel``. A run is an ``invoke_agent`` span. Inside it are a ``chat`` span for each model turn with a
known provider, and an ``execute_tool`` span for each tool call. A nested call is inside the span of its parent call.
The same run gives the same trace ids and span ids each time. By default, no span contains message text.

The spans are created without a tracer. A tracer could cut, sample or drop them, and it would use the current time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.events.context_payloads import Compaction, InjectedContext
from agent_memory_log.events.event import Event, to_microseconds
from agent_memory_log.events.jsonvalue import JsonValue, encode_json, json_or_text
from agent_memory_log.events.payloads import AssistantMessage, ModelRequest, Thinking, ToolCall, ToolResult, UserMessage
from agent_memory_log.interchange.steps import Answer, Step, Steps
from agent_memory_log.interchange.usage import MODEL_LABEL, Usage, usage_in
from agent_memory_log.snapshot import Snapshot, require_snapshot
from agent_memory_log.transcript.vendors.profiles import VENDORS

_Value = str | bool | int | float | tuple[str, ...]
_Attributes = dict[str, _Value]

_SCOPE = "agent_memory_log"
_SEQ = "agent_memory_log.seq"
_OPERATION = "gen_ai.operation.name"
_MICROSECOND = 1_000  # in nanoseconds
_LATEST = 2**63 - 1  # the limit of every OTLP reader, in nanoseconds since 1970: the year 2262
_PROVIDERS = {
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "openai-chat": "openai",
    "openai-responses": "openai",
    **{vendor.name: vendor.telemetry for vendor in VENDORS.values() if vendor.telemetry},
}
_OTHER_ERROR = "_OTHER"
_PARAMETERS: Mapping[str, tuple[str, type[int | float]]] = {
    "max_tokens": ("gen_ai.request.max_tokens", int),
    "max_completion_tokens": ("gen_ai.request.max_tokens", int),
    "max_output_tokens": ("gen_ai.request.max_tokens", int),
    "maxTokens": ("gen_ai.request.max_tokens", int),
    "maxOutputTokens": ("gen_ai.request.max_tokens", int),
    "seed": ("gen_ai.request.seed", int),
    "top_k": ("gen_ai.request.top_k", int),
    "topK": ("gen_ai.request.top_k", int),
    "temperature": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
    "topP": ("gen_ai.request.top_p", float),
    "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
    "frequencyPenalty": ("gen_ai.request.frequency_penalty", float),
    "presence_penalty": ("gen_ai.request.presence_penalty", float),
    "presencePenalty": ("gen_ai.request.presence_penalty", float),
}


def spans_of(snapshot: Snapshot, *, content: bool = False) -> list[ReadableSpan]:
    """Return the run's spans, each before the spans inside it. A run without events has no spans.

    With ``content``, the opt-in attributes of the conventions also hold messages, thinking, tool arguments, results and
    error messages as JSON text. No span contains ``server_data``.
    """
    require_snapshot(snapshot)
    if not snapshot.log:
        return []
    return _Trace(snapshot, content=content).spans()


def export_spans(snapshot: Snapshot, exporter: SpanExporter, *, content: bool = False) -> int:
    """Pass all spans of the run to ``exporter`` in one call, and return their number.

    A second export gives the same ids, so a receiver that compares ids stores each span once.

        export_spans(store.load_run("support-agent", "run-42"), OTLPSpanExporter())

    Args:
        snapshot: The run.
        exporter: The exporter; the caller shuts it down.
        content: Whether to include message text; see ``spans_of``.

    Raises:
        StoreUnavailable: The exporter reported a failure. It is safe to try again.
    """
    spans = spans_of(snapshot, content=content)
    if spans and exporter.export(spans) is not SpanExportResult.SUCCESS:
        raise StoreUnavailable(
            f"{type(exporter).__name__} failed to export the {len(spans)} spans of {snapshot.agent}/{snapshot.run}; "
            "see the exporter's log for the reason"
        )
    return len(spans)


class _Trace:
    """The spans of one run."""

    def __init__(self, snapshot: Snapshot, *, content: bool) -> None:
        self._snapshot = snapshot
        self._content = content
        self._steps = Steps(snapshot.log).steps
        self._resource = Resource({"service.name": snapshot.agent})
        self._scope = InstrumentationScope(_SCOPE, version("agent-memory-log"))
        self._common: _Attributes = {
            "gen_ai.agent.name": snapshot.agent,
            "gen_ai.conversation.id": snapshot.run,
        }
        self._trace_id = self._id_of("trace", 16)
        self._spans: list[ReadableSpan] = []
        self._calls: dict[int, SpanContext] = {}

    def spans(self) -> list[ReadableSpan]:
        """Return all spans of the run."""
        agent = self._snapshot.agent
        times = [_time(event) for event in self._snapshot.log]
        start = min([*times, *(_started(answer) for step in self._steps for answer in step.answers)])
        root = self._add(f"invoke_agent {agent}", None, start, max(times), "invoke_agent", self._about_run(), 0)
        for step in self._steps:
            if step.source == "agent" and step.parent is None and step.content:
                self._add_turn(step, root)
            answered = {answer.call.seq: answer for answer in step.answers if answer.call is not None}
            outer = root if step.parent is None else self._calls.get(step.parent.seq, root)
            for call in step.calls:
                self._add_call(call, answered.get(call.seq), outer)
            for answer in step.answers:
                if answer.call is None:
                    self._add_call(None, answer, root)
        return sorted(self._spans, key=_order)

    def _add(
        self,
        name: str,
        outer: SpanContext | None,
        start: int,
        end: int,
        operation: str,
        attributes: _Attributes,
        seq: int,
        status: Status | None = None,
    ) -> SpanContext:
        """Add a span. Its id is derived from the ``seq`` of its event, so that it is the same each time."""
        span_id = self._id_of(f"{operation} {seq}", 8)
        context = SpanContext(self._trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        span = ReadableSpan(
            name,
            context,
            outer,
            self._resource,
            {_OPERATION: operation, **self._common, **attributes},
            kind=SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL,
            status=status or Status(),
            start_time=start,
            end_time=end,
            instrumentation_scope=self._scope,
        )
        self._spans.append(span)
        return context

    def _id_of(self, part: str, size: int) -> int:
        name = encode_json([self._snapshot.agent, self._snapshot.run])
        digest = hashlib.blake2b(f"{part} of ".encode() + name, digest_size=size).digest()
        return int.from_bytes(digest, "big") or 1  # 0 is not a valid id

    def _about_run(self) -> _Attributes:
        requests: list[ModelRequest] = []
        inputs: list[JsonValue] = []
        answer: AssistantMessage | None = None
        for event in self._snapshot.log:
            if isinstance(event.data, ModelRequest):
                requests.append(event.data)
            elif isinstance(event.data, UserMessage):
                inputs.append({"role": "user", "parts": [_text("text", event.data.message)]})
            elif isinstance(event.data, (InjectedContext, Compaction)) and event.data.text:
                inputs.append({"role": "user", "parts": [_text("text", event.data.text)]})
            elif isinstance(event.data, AssistantMessage):
                answer = event.data
        about: _Attributes = {
            "agent_memory_log.version": self._snapshot.version,
            **_about_usage(usage_in(self._snapshot.log)),
        }
        if requests:
            about["gen_ai.provider.name"] = _provider(requests[-1].provider)
            about["gen_ai.request.model"] = requests[-1].model
        if self._content:
            about["gen_ai.input.messages"] = _json(inputs)
            if answer is not None:
                about["gen_ai.output.messages"] = _json(
                    [{"role": "assistant", "parts": [_text("text", answer.message)], "finish_reason": "stop"}]
                )
        return about

    def _add_turn(self, step: Step, outer: SpanContext) -> None:
        """Add the span of a model turn. It starts at the time of the event before the turn."""
        answer_events = step.content
        labels: dict[str, str] = {}
        for event in answer_events:
            labels = {**event.labels, **labels}
        provider = labels.get("provider") or (step.request.provider if step.request is not None else "")
        if not provider:
            return  # the conventions require a provider
        model = step.request.model if step.request is not None else labels.get(MODEL_LABEL, "")
        about: _Attributes = {
            _SEQ: answer_events[0].seq,
            "gen_ai.provider.name": _provider(provider),
            **({"gen_ai.request.model": model} if model else {}),
            **_about_usage(usage_in(answer_events)),
            **(_about_request(step.request, content=self._content) if step.request is not None else {}),
        }
        for label, key in ((MODEL_LABEL, "gen_ai.response.model"), ("response_id", "gen_ai.response.id")):
            if labels.get(label):
                about[key] = labels[label]
        reason = labels.get("stop_reason")
        if reason:
            about["gen_ai.response.finish_reasons"] = (reason,)
        if self._content:
            parts = [_part(event) for event in answer_events if event not in step.blocks]
            message: dict[str, JsonValue] = {"role": "assistant", "parts": parts}
            about["gen_ai.output.messages"] = _json([{**message, "finish_reason": reason or "stop"}])
        end = max(_time(event) for event in answer_events)
        start = end if step.before is None else min(_time(step.before), end)
        self._add(f"chat {model}".rstrip(), outer, start, end, "chat", about, answer_events[0].seq)

    def _add_call(self, call: Event | None, answer: Answer | None, outer: SpanContext) -> None:
        """Add the span of a tool call. It ends at the time of the result, and its length is the result's duration."""
        event = call if call is not None else cast("Answer", answer).event
        data = cast("ToolCall | ToolResult", event.data)
        result = cast("ToolResult", answer.event.data) if answer is not None else None
        about: _Attributes = {
            _SEQ: event.seq,
            "gen_ai.tool.name": data.tool_name,
            "gen_ai.tool.call.id": data.tool_call_id,
            "gen_ai.tool.type": "function",
        }
        if result is None:
            about["agent_memory_log.unanswered"] = True
        if self._content:
            if isinstance(data, ToolCall) and data.payload_json:
                about["gen_ai.tool.call.arguments"] = data.payload_json
            if result is not None and result.result_json:
                about["gen_ai.tool.call.result"] = result.result_json
        start = _time(event) if answer is None else _started(answer)
        end = start if answer is None else max(start, _time(answer.event))
        status: Status | None = None
        if result is not None and result.error_message:
            hint = result.retry_hint.reason if result.retry_hint is not None else ""
            about["error.type"] = cast("Answer", answer).event.labels.get("error_type") or hint or _OTHER_ERROR
            status = Status(StatusCode.ERROR, result.error_message if self._content else None)
        name = f"execute_tool {data.tool_name}".rstrip()
        context = self._add(name, outer, start, end, "execute_tool", about, event.seq, status)
        if call is not None:
            self._calls[call.seq] = context


def _order(span: ReadableSpan) -> tuple[bool, int, bool]:
    """Return the sort key of a span: the run first, then by seq; a turn is before its first call."""
    about = span.attributes or {}
    seq = about.get(_SEQ)
    return span.parent is not None, seq if isinstance(seq, int) else 0, about.get(_OPERATION) == "execute_tool"


def _time(event: Event) -> int:
    """Return an event's time in nanoseconds since 1970, limited to the range of a span."""
    return min(max(0, to_microseconds(event.timestamp) * _MICROSECOND), _LATEST)


def _started(answer: Answer) -> int:
    """Return the start time of the answered call: the result's time less its duration, or else the call's time."""
    data = cast("ToolResult", answer.event.data)
    end = _time(answer.event)
    if data.duration_ns > 0:
        return max(0, end - data.duration_ns)
    return end if answer.call is None else min(_time(answer.call), end)


def _provider(name: str) -> str:
    return _PROVIDERS.get(name, name)


def _about_usage(used: Usage) -> _Attributes:
    counts = {
        "gen_ai.usage.input_tokens": used.input_tokens,
        "gen_ai.usage.output_tokens": used.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": used.cache_read,
        "gen_ai.usage.cache_write.input_tokens": used.cache_write,
        "gen_ai.usage.reasoning.output_tokens": used.reasoning,
    }
    return {key: min(value, _LATEST) for key, value in counts.items() if value is not None and value >= 0}


def _about_request(request: ModelRequest, *, content: bool) -> _Attributes:
    about: _Attributes = {}
    for key, value in _flat(request.parameters or {}):
        parameter = _PARAMETERS.get(key)
        if parameter is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
            name, kind = parameter
            if kind is float or (isinstance(value, int) and abs(value) <= _LATEST):
                about[name] = kind(value) if abs(value) <= _LATEST else float(_LATEST)
    if content:
        if request.system is not None:
            system = request.system
            about["gen_ai.system_instructions"] = _json([_text("text", system)] if isinstance(system, str) else system)
        if request.tools is not None:
            about["gen_ai.tool.definitions"] = _json(request.tools)
    return about


def _flat(parameters: Mapping[str, JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    """Yield the parameters, and those inside Bedrock's ``inferenceConfig`` and Gemini's ``generationConfig``."""
    for key, value in parameters.items():
        yield key, value
        if key in ("inferenceConfig", "generationConfig") and isinstance(value, Mapping):
            yield from value.items()


def _part(event: Event) -> JsonValue:
    data = event.data
    if isinstance(data, Thinking):
        return _text("reasoning", data.text)
    if isinstance(data, ToolCall):
        return {
            "type": "tool_call",
            "id": data.tool_call_id,
            "name": data.tool_name,
            "arguments": json_or_text(data.payload_json) if data.payload_json else None,
        }
    return _text("text", data.message if isinstance(data, AssistantMessage) else "")


def _text(kind: str, content: str) -> JsonValue:
    return {"type": kind, "content": content}


def _json(value: JsonValue | Sequence[JsonValue]) -> str:
    return encode_json(value).decode()
