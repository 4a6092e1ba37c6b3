"""Describes an event for a timeline: its kind, its text and its highlighted parts.

To show a new built-in payload, write a function here and add it to ``_DESCRIBERS``. A payload without a function is
shown as its map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agent_memory_log.cli.output import BAD, BOLD, DIM, GOOD, NAME, WARN, Segment
from agent_memory_log.cli.terminal_text import duration, size
from agent_memory_log.cli.timeline import Row
from agent_memory_log.events.context_payloads import Checkpoint, Compaction, InjectedContext
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log.events.payloads import (
    Annotation,
    AssistantMessage,
    EventData,
    PlannerNote,
    Redacted,
    Redaction,
    RetryHint,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_memory_log.wording import ranges


class Entry(msgspec.Struct):
    """The description of an event.

    Attributes:
        kind: A word for the type of the event.
        kind_style: The style of ``kind``.
        lead: The segments before the text, on its first line.
        text: The text of the event. It is not escaped, and can have any length.
        style: The style of ``text``.
        lines: The number of lines of ``text`` to show, unless the view is full.
        notes: Further lines.
        details: Lines that only the full view shows.
    """

    kind: str
    kind_style: str = ""
    lead: list[Segment] = []
    text: str = ""
    style: str = ""
    lines: int = 2
    notes: list[list[Segment]] = []
    details: list[list[Segment]] = []


class Look(msgspec.Struct, frozen=True):
    """The signs of the output, and whether the timeline is complete.

    Attributes:
        tick: The sign of success.
        cross: The sign of failure.
        retry: The sign of a retry.
        is_complete: Whether all events of the run are shown. Only then is a call without a result known to be open.
    """

    tick: str = "✔"
    cross: str = "✘"
    retry: str = "↻"
    is_complete: bool = False


def describe(row: Row, look: Look) -> Entry:
    """Return the description of a row's event."""
    data = row.event.data
    describer = _DESCRIBERS.get(type(data))
    entry = describer(data, row, look) if describer is not None else _other(data, row)
    if row.event.labels and not isinstance(data, Annotation):
        entry.details.append([("labels ", DIM), (_labels(row.event.labels), DIM)])
    return entry


def _labels(labels: Any) -> str:  # noqa: ANN401  # a mapping of text to text
    return " ".join(f"{key}={value}" for key, value in labels.items())


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _message(kind: str, style: str, text_style: str, lines: int) -> Callable[[Any, Row, Look], Entry]:
    def describer(data: UserMessage | AssistantMessage | SystemMessage, _row: Row, _look: Look) -> Entry:
        entry = Entry(kind, style, text=data.message, style=text_style, lines=lines)
        if data.structured is not None:
            structured = _json(data.structured)
            if data.message:
                entry.details.append([("structured ", DIM), (structured, DIM)])
            else:
                entry.text = structured
        elif not data.message:
            entry.lead = [("(empty)", DIM)]
        return entry

    return describer


def _thinking(data: Thinking, _row: Row, _look: Look) -> Entry:
    entry = Entry("thinking", DIM, text=data.text, style="dim italic")
    if data.redacted:
        entry.lead = [(f"(encrypted by the provider, {size(len(data.redacted))})", DIM)]
    elif not data.text:
        entry.lead = [("(signed, without text)" if data.signature else "(empty)", DIM)]
    if data.signature:
        entry.details.append([("signature ", DIM), (data.signature, DIM)])
    return entry


def _tool_call(data: ToolCall, row: Row, look: Look) -> Entry:
    entry = Entry("call", NAME, [(data.tool_name or "(unnamed)", "bold cyan")], data.payload_json, lines=1)
    if look.is_complete and row.result is None:
        entry.notes.append([("open: no result yet", WARN)])
    details = {"id": data.tool_call_id, "parent": data.parent_tool_call_id, "queue": data.queue}
    if data.expected_children_total:
        details["expects"] = f"{data.expected_children_total} calls"
    entry.details.append([(_labels({key: value for key, value in details.items() if value}), DIM)])
    return _with_structured(entry, data.structured)


def _tool_result(data: ToolResult, row: Row, look: Look) -> Entry:
    failed = bool(data.error_message)
    entry = Entry("result", NAME, [(look.cross, BAD) if failed else (look.tick, GOOD)], lines=1)
    if not row.adjacent:
        entry.lead.append((f" {data.tool_name or '(unnamed)'}", NAME))
    if data.duration_ns:
        entry.lead.append((f" {duration(data.duration_ns)}", DIM))
    entry.text = data.error_message or data.preview or data.result_json
    if failed:
        entry.style, entry.lines = BAD, 3
    if not entry.text:
        entry.lead.append((" (empty)", DIM))
    elif data.result_json and entry.text is not data.result_json:
        entry.details.append([("result ", DIM), (data.result_json, "")])
    if look.is_complete and row.call is None:
        entry.notes.append([("answers no open call", WARN)])
    return _with_structured(_with_facts(entry, data, look), data.structured)


def _with_facts(entry: Entry, data: ToolResult, look: Look) -> Entry:
    if data.retry_hint is not None:
        entry.notes.append(_retry(data.retry_hint, look, data.tool_name))
    if data.bounds is not None:
        total = "" if data.bounds.total is None else f" of {data.bounds.total:,}"
        entry.lead.append((f" ({data.bounds.returned:,}{total})", DIM))
        entry.details.append([(_bounds(data.bounds), DIM)])
    if data.telemetry is not None:
        entry.details.append([(_telemetry(data.telemetry), DIM)])
    if data.server_data:
        entry.details.append([("server data ", DIM), (data.server_data, DIM)])
    return entry


def _with_structured(entry: Entry, structured: JsonValue) -> Entry:
    if structured is not None:
        entry.details.append([("structured ", DIM), (_json(structured), DIM)])
    return entry


def _bounds(bounds: Bounds) -> str:
    parts = ["truncated" if bounds.truncated else "not truncated"]
    if bounds.next_cursor is not None:
        parts.append(f"next cursor {bounds.next_cursor}")
    if bounds.refinement_hint:
        parts.append(bounds.refinement_hint)
    return ", ".join(parts)


def _telemetry(telemetry: ToolTelemetry) -> str:
    parts = [f"{telemetry.tokens_used:,} tokens" if telemetry.tokens_used else "", telemetry.model]
    if telemetry.extra:
        parts.append(_json(telemetry.extra))
    return ", ".join(part for part in parts if part)


def _retry(hint: RetryHint, look: Look, failed_tool: str = "") -> list[Segment]:
    details = [hint.message.rstrip(".")] if hint.message else []
    if hint.tool and (hint.restrict_to_tool or hint.tool != failed_tool):
        details.append(f"only with {hint.tool}" if hint.restrict_to_tool else f"with {hint.tool}")
    if hint.missing_fields:
        details.append(f"missing {', '.join(hint.missing_fields)}")
    if hint.clarifying_question:
        details.append(f"ask: {hint.clarifying_question}")
    if hint.example_input:
        details.append(f"such as {_json(hint.example_input)}")
    return [(f"{look.retry} retry: {hint.reason or 'no reason given'}", "bold yellow"), *_after_dash(details)]


def _after_dash(details: list[str]) -> list[Segment]:
    return [(" - " + "; ".join(details), WARN)] if details else []


def _retry_event(data: RetryHint, _row: Row, look: Look) -> Entry:
    return Entry("retry", WARN, _retry(data, look))


def _note(data: PlannerNote, _row: Row, _look: Look) -> Entry:
    return Entry("note", "magenta", text=data.note, style="magenta")


def _annotation(data: Annotation, row: Row, _look: Look) -> Entry:
    entry = Entry("annotation", "magenta", text=data.message)
    if row.event.labels:
        entry.notes.append([(_labels(row.event.labels), DIM)])
    return entry


def _redacted(data: Redacted, _row: Row, _look: Look) -> Entry:
    reason = f": {data.reason}" if data.reason else ""
    return Entry("redacted", DIM, [(f"[{data.original_type} redacted{reason}]", "dim strike" if not reason else DIM)])


def _redaction(data: Redaction, _row: Row, _look: Look) -> Entry:
    reason = f": {data.reason}" if data.reason else ""
    return Entry("redaction", DIM, [(f"redacted {ranges(sorted(data.seqs))}{reason}", DIM)])


def _injected(data: InjectedContext, _row: Row, _look: Look) -> Entry:
    entry = Entry("context", NAME, text=data.text, style=DIM, lines=2)
    counts = {"records": len(data.records), "messages": len(data.messages), "tokens": data.token_count}
    details = {"source": data.source, **{name: str(count) for name, count in counts.items() if count}}
    entry.details.append([(_labels({key: value for key, value in details.items() if value}), DIM)])
    return entry


def _compaction(data: Compaction, _row: Row, _look: Look) -> Entry:
    replaced = f"replaces the events up to {data.up_to}" if data.up_to else "replaces the events before it"
    return _with_structured(Entry("compaction", NAME, [(f"({replaced})", DIM)], data.text, lines=2), data.structured)


def _checkpoint(data: Checkpoint, _row: Row, _look: Look) -> Entry:
    place = f" in {data.location}" if data.location else ""
    return _with_structured(Entry("checkpoint", NAME, [(f"{data.checkpoint_id}{place}", DIM)]), data.structured)


def _other(data: EventData, row: Row) -> Entry:
    return Entry(str(row.event.type), BOLD, text=_json(data.to_map()))


_DESCRIBERS: dict[type[EventData], Callable[[Any, Row, Look], Entry]] = {
    SystemMessage: _message("system", DIM, DIM, 2),
    UserMessage: _message("user", "bold blue", "", 4),
    AssistantMessage: _message("assistant", "bold green", "", 4),
    ToolCall: _tool_call,
    ToolResult: _tool_result,
    Thinking: _thinking,
    PlannerNote: _note,
    RetryHint: _retry_event,
    Annotation: _annotation,
    Redacted: _redacted,
    Redaction: _redaction,
    InjectedContext: _injected,
    Compaction: _compaction,
    Checkpoint: _checkpoint,
}
