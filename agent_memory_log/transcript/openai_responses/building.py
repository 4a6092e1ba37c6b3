"""Events to Responses items."""

from __future__ import annotations

from collections.abc import Mapping

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import (
    AssistantMessage,
    EventType,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.transcript.building import Builder
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.openai_responses.rendering import (
    CALL_EXTRA,
    CALLS,
    FUNCTION,
    INPUT_TEXT,
    MESSAGE_EXTRA,
    MESSAGE_TYPE,
    PROVIDER,
    REASONING_EXTRA,
    RESULT_EXTRA,
    RULES,
    CallKind,
    CallKinds,
    call_item,
    cut_output,
    reasoning,
    result_item,
    text_message,
    text_parts,
    with_parts,
)
from agent_memory_log.transcript.openai_responses.turns import ResponsesRecorded, is_from_model
from agent_memory_log.transcript.residual import apply, kept_for


class ResponsesBuilder(Builder):
    """See ``agent_memory_log.transcript.build``. Every event is an item of its own."""

    provider = PROVIDER
    rules = RULES

    def __init__(self, messages: list[Message], max_result_bytes: int | None) -> None:
        super().__init__(messages, max_result_bytes)
        self._known = ResponsesRecorded()
        self.recorded = self._known
        self._kinds = CallKinds()
        self._reasoning: str | None = None

    def user(self, seq: int, data: UserMessage) -> None:
        """A message."""
        self._add_text("user", data, seq)

    def system(self, seq: int, data: SystemMessage) -> None:
        """A message, wherever it stands."""
        self._add_text("system", data, seq)

    def assistant(self, seq: int, data: AssistantMessage) -> None:
        """A message."""
        self._add_text("assistant", data, seq)

    def thinking(self, seq: int, data: Thinking) -> None:
        """A reasoning item, if it was one."""
        residual = kept_for(PROVIDER, data.structured, REASONING_EXTRA)
        if not residual:
            self.lose("reasoning", "reasoning that did not come from the Responses API", seq, data.event_type)
            return
        if data.signature:
            signed = self.recorded.signed
            signed.setdefault(data.signature, (len(signed), data.text))
        self._add(apply(reasoning(data, residual), residual), seq)

    def call(self, seq: int, data: ToolCall, wire_id: str) -> None:
        """A call of the kind it was."""
        residual: Mapping[str, JsonValue] = (
            {} if data.structured is None else kept_for(PROVIDER, data.structured, CALL_EXTRA)
        )
        kind = _kind_of(residual, FUNCTION)
        self._kinds.call(wire_id, kind)
        self._add(apply(call_item(kind, data, wire_id), residual), seq)

    def result(self, seq: int, data: ToolResult, wire_id: str, omitted: str | None) -> None:
        """A result of the kind its call asks for."""
        residual: Mapping[str, JsonValue] = (
            {} if data.structured is None else kept_for(PROVIDER, data.structured, RESULT_EXTRA)
        )
        kind = _kind_of(residual, self._kinds.result(wire_id))
        item = with_parts(result_item(kind, data, wire_id), "output", INPUT_TEXT, residual)
        if omitted is not None:
            item["output"] = cut_output(kind, omitted)
        self._add(item, seq)

    def own(self, seq: int, data: UnknownPayload) -> bool:
        """An item no payload fits."""
        if data.type != MESSAGE_TYPE:
            return False
        self._add(data.to_map(), seq)
        return True

    def erased(self, original_type: str) -> None:
        """What the model made with reasoning that is gone must be known."""
        if original_type == EventType.THINKING:
            self._reasoning = ""

    def _add_text(self, role: str, data: UserMessage | AssistantMessage | SystemMessage, seq: int) -> None:
        item = text_message(role, data.message)
        if data.structured is not None:
            with_parts(item, "content", text_parts(role), kept_for(PROVIDER, data.structured, MESSAGE_EXTRA))
        self._add(item, seq)

    def _add(self, item: Message, seq: int) -> None:
        item_id = item.get("id")
        if item.get("type") == "reasoning":
            self._reasoning = item_id if isinstance(item_id, str) else None
        elif not is_from_model(item):
            self._reasoning = None
        elif self._reasoning is not None and isinstance(item_id, str):
            self._known.reasoning_of[item_id] = self._reasoning
        self.begin(item, seq, [])


def _kind_of(residual: Mapping[str, JsonValue], default: CallKind) -> CallKind:
    kind = residual.get("kind")
    return CALLS.get(kind, default) if isinstance(kind, str) else default
