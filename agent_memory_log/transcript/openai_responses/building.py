"""Converts events to Responses items."""

from __future__ import annotations

from agent_memory_log.events.payloads import (
    EventType,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
)
from agent_memory_log.transcript.conversion.building import NO_RESIDUAL, Builder, Residual
from agent_memory_log.transcript.conversion.rendering import TextPayload, failure_text, text_message
from agent_memory_log.transcript.differences import apply
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import is_map, list_in, map_in
from agent_memory_log.transcript.openai_responses import rendering
from agent_memory_log.transcript.openai_responses.items import is_from_model
from agent_memory_log.transcript.openai_responses.rendering import (
    CALLS,
    COMPUTER,
    FUNCTION,
    INPUT_TEXT,
    CallKind,
    CallKinds,
)


class ResponsesBuilder(Builder):
    """Builds Responses items, one for each event; see ``agent_memory_log.transcript.build``."""

    provider = rendering.PROVIDER
    rules = rendering.RULES
    extra = rendering.EXTRA

    def __init__(self, messages: list[WireMessage], max_result_bytes: int | None) -> None:
        super().__init__(messages, max_result_bytes)
        self._kinds = CallKinds()
        self._reasoning: str | None = None

    def add_message(self, role: str, seq: int, data: TextPayload) -> None:
        """Add a message."""
        residual = NO_RESIDUAL if data.structured is None else self.residual_of(seq, data)
        if role == "assistant" and residual.get("answer") is True:
            self._add(apply(rendering.answer_message(data.message), residual), seq)
            return
        message = text_message(role, data.message)
        self._add(rendering.text_parts(role).apply(message, residual, "content") if residual else message, seq)

    def thinking(self, seq: int, data: Thinking, residual: Residual) -> None:
        """Add a reasoning item, if the thinking came from the Responses API."""
        if not residual:
            self.lose("reasoning", "the reasoning does not come from the Responses API", seq, data.event_type)
            return
        self.note_signed(data.signature, data.text)
        self._add(apply(rendering.reasoning(data, residual), residual), seq)

    def call(self, seq: int, data: ToolCall, wire_id: str, residual: Residual) -> None:
        """Add a call of its original kind."""
        kind = _kind_of(residual, FUNCTION)
        self._kinds.call(wire_id, kind)
        self._add(apply(rendering.call_item(kind, data, wire_id), residual), seq)

    def result(self, seq: int, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> None:
        """Add a result of the kind that its call requires."""
        kind = _kind_of(residual, self._kinds.result(wire_id))
        item = rendering.result_item(kind, data, wire_id)
        if kind.tool and "parts" in residual:  # only content from elsewhere has parts here
            self._add_media(kind, item, residual["parts"], seq, data)
        else:
            INPUT_TEXT.apply(item, residual, "output")
        if omitted is not None:
            item[kind.output] = rendering.cut_output(kind, data, omitted)
        if kind is COMPUTER and data.result_json and failure_text(data):
            self.lose("failure", "the output of a computer call is an image; it has no text", seq, data.event_type)
        self._add(item, seq)

    def result_limit(self, data: ToolResult, wire_id: str) -> int | None:
        """Return the largest size of a result's value. By default, the images of a computer stay whole."""
        if self.max_result_bytes is None and self._kinds.result(wire_id) is COMPUTER:
            return None
        return super().result_limit(data, wire_id)

    def _add_media(self, kind: CallKind, item: WireMessage, spans: object, seq: int, data: ToolResult) -> None:
        """Add the media of a result whose output is no list of parts. Only a screenshot can be such an output."""
        parts = [map_in(span.get("part")) for span in list_in(spans) if is_map(span)]
        images = [part for part in parts if part.get("type") == "input_image"] if kind is COMPUTER else []
        if images:
            item["output"] = rendering.screenshot(images[0])
        for _ in parts[len(images[:1]) :]:
            self.lose("media", f"the output of a {kind.call} cannot hold this media", seq, data.event_type)

    def own(self, seq: int, data: UnknownPayload) -> bool:
        """Add an item that fits no payload."""
        if data.type != rendering.MESSAGE_TYPE:
            return False
        self._add(data.to_map(), seq)
        return True

    def erased(self, original_type: str) -> None:
        """Record that the reasoning of the model's next items was erased."""
        if original_type == EventType.THINKING:
            self._reasoning = ""

    def _add(self, item: WireMessage, seq: int) -> None:
        item_id = item.get("id")
        if item.get("type") == "reasoning":
            self._reasoning = item_id if isinstance(item_id, str) else None
        elif not is_from_model(item):
            self._reasoning = None
        elif self._reasoning is not None and isinstance(item_id, str):
            self.recorded.reasoning_of[item_id] = self._reasoning
        self.begin(item, seq, [])


def _kind_of(residual: Residual, default: CallKind) -> CallKind:
    kind = residual.get("kind")
    return CALLS.get(kind, default) if isinstance(kind, str) else default
