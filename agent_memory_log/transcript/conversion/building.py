"""The base of every provider's builder: a run's events to messages, one by one in append order.

What is the same for every provider is here: which payload goes where, calls made inside calls, what is lost and why,
which event a message comes from, results over a size limit. A provider says how each payload is rendered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, cast

from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import (
    Annotation,
    AssistantMessage,
    EventData,
    EventType,
    ModelRequest,
    PlannerNote,
    Redacted,
    Redaction,
    RetryHint,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.transcript.conversion.calls import CallLedger
from agent_memory_log.transcript.conversion.rendering import TextPayload
from agent_memory_log.transcript.conversion.text_parts import size_beside_text
from agent_memory_log.transcript.differences import residual_of_provider
from agent_memory_log.transcript.findings import Loss, WireMessage
from agent_memory_log.transcript.log_facts import Origins, Recorded
from agent_memory_log.transcript.names import PROVIDERS, WireRules

Residual = Mapping[str, JsonValue]
"""What a payload keeps of its message that the default rendering does not give; see ``differences``."""

NO_RESIDUAL: Residual = {}
_Handler = Callable[[int, Any], None]

_PREVIEW_CHARACTERS = 1_000

SIDES = {
    EventType.USER_MESSAGE.value: "user",
    EventType.TOOL_RESULT.value: "user",
    EventType.ASSISTANT_MESSAGE.value: "assistant",
    EventType.THINKING.value: "assistant",
    EventType.TOOL_CALL.value: "assistant",
    EventType.SYSTEM_MESSAGE.value: "",
}
"""The types of the events that a conversation is made of, and whose they are."""


class Builder(ABC):
    """Builds ``messages`` from the events it is given, in append order; none is looked at again.

    Hooks get an event's ``seq`` (0 where no store gave one), its payload and what the payload keeps for this provider
    (``residual``, whose parts beside the usual ones are named in ``extra``). They add messages with ``begin`` and parts
    of the last message with ``add_part``, and render nothing of ``server_data``.
    """

    provider: ClassVar[str]
    rules: ClassVar[WireRules]
    extra: ClassVar[frozenset[str]]
    part_key: ClassVar[str] = "content"

    def __init__(self, messages: list[WireMessage], max_result_bytes: int | None) -> None:
        """``messages`` is filled in place, and must be empty."""
        self.messages = messages
        self.max_result_bytes = max_result_bytes
        self.origins = Origins(self.part_key)
        self.losses: list[Loss] = []
        self.recorded = Recorded()
        self._calls = CallLedger(self.rules)
        self._own_types = frozenset({f"{self.provider}.message", f"{self.provider}.block"})
        self._handlers: dict[type[EventData], _Handler] = {
            UserMessage: partial(self.add_message, "user"),
            AssistantMessage: partial(self.add_message, "assistant"),
            SystemMessage: partial(self.add_message, "system"),
            Thinking: self._thinking,
            ToolCall: self._call,
            ToolResult: self._result,
            ModelRequest: self._request,
            Redacted: self._redacted,
            UnknownPayload: self._unknown,
            # What no model is ever sent.
            PlannerNote: _nothing,
            RetryHint: _nothing,
            Annotation: _nothing,
            Redaction: _nothing,
        }

    def take(self, events: Iterable[Event]) -> None:
        """Take in the next events of the log."""
        handlers = self._handlers
        other = self._unknown_type
        for event in events:
            data = event.data
            handlers.get(type(data), other)(event.seq, data)

    # What a provider says.

    @abstractmethod
    def add_message(self, role: str, seq: int, data: TextPayload) -> None:
        """Add text; instructions that the provider takes outside the messages go to ``recorded.leading``."""

    @abstractmethod
    def thinking(self, seq: int, data: Thinking, residual: Residual) -> None:
        """Add a thinking block that is not another provider's, or ``lose`` it."""

    @abstractmethod
    def call(self, seq: int, data: ToolCall, wire_id: str, residual: Residual) -> None:
        """Add a call the model made."""

    @abstractmethod
    def result(self, seq: int, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> None:
        """Add the result of such a call; ``omitted`` replaces its content if that is too large."""

    @abstractmethod
    def own(self, seq: int, data: UnknownPayload) -> bool:
        """Add what was kept whole of a message of this provider; False if it is nothing the parser wrote."""

    @abstractmethod
    def erased(self, original_type: str) -> None:
        """An event of the conversation was erased here: what follows must not be joined to what is not its own."""

    # What a provider's hooks use.

    def residual_of(self, seq: int, data: TextPayload | ToolCall | ToolResult) -> Residual:
        """What the payload keeps for this provider; what it keeps only for others is lost."""
        for provider in self._foreign(data.structured):
            self.lose("other_provider", f"what {provider} had beside the {data.event_type}", seq, data.event_type)
        return residual_of_provider(self.provider, data.structured, self.extra)

    def begin(self, message: WireMessage, seq: int, parts: list[int]) -> None:
        """Begin a message that comes from the event ``seq``, and its parts from ``parts``."""
        self.messages.append(message)
        self.origins.owns.append(seq)
        self.origins.parts.append(parts)

    def lose(self, reason: str, message: str, seq: int, event_type: str) -> None:
        """Note that something does not come into the transcript."""
        self.losses.append(Loss(reason, message, seq or None, event_type))

    def note_signed(self, signature: object, text: str) -> None:
        """Note a signature or an encrypted block, with the text it was recorded with."""
        if signature and isinstance(signature, str):
            signed = self.recorded.signed
            signed.setdefault(signature, (len(signed), text))

    def edited(self, *, after: bool) -> None:
        """Note that from the last part on, or from ``after`` it, content is not what the model saw."""
        if self.recorded.edited_from is None:
            last = len(self.messages) - 1
            parts = len(self.origins.parts[last]) if self.messages else 0
            self.recorded.edited_from = (last, max(parts, 1)) if after else (last, max(parts - 1, 0))

    # What is the same for all.

    def _thinking(self, seq: int, data: Thinking) -> None:
        structured = data.structured
        if structured is not None and self._foreign(structured):
            self.lose("reasoning", "reasoning of another provider, which this one cannot be sent", seq, data.event_type)
        else:
            residual = (
                NO_RESIDUAL if structured is None else residual_of_provider(self.provider, structured, self.extra)
            )
            self.thinking(seq, data, residual)

    def _call(self, seq: int, data: ToolCall) -> None:
        wire_id = self._calls.call(data)
        if wire_id is None:
            return
        residual = NO_RESIDUAL if data.structured is None else self.residual_of(seq, data)
        self.call(seq, data, wire_id, residual)

    def _result(self, seq: int, data: ToolResult) -> None:
        wire_id = self._calls.result(data)
        if wire_id is None:
            return
        residual = NO_RESIDUAL if data.structured is None else self.residual_of(seq, data)
        omitted = None if self.max_result_bytes is None else self._omitted(seq, data, self.max_result_bytes)
        self.result(seq, data, wire_id, omitted, residual)
        if omitted is not None:
            self.edited(after=False)
        if data.error_message and not is_absent_text(data.result_json):
            parts = self.origins.parts[-1]
            last = len(self.messages) - 1
            self.recorded.conflicts.append((last, self.part_key, len(parts) - 1) if parts else (last,))

    def _request(self, seq: int, data: ModelRequest) -> None:
        del seq
        fingerprints = (data.system_hash, data.tools_hash) if data.provider == self.provider else None
        requests = self.recorded.requests
        if not requests or requests[-1][1] != fingerprints:
            requests.append((len(self.messages), fingerprints))

    def _redacted(self, seq: int, data: Redacted) -> None:
        kind = data.original_type
        if kind in SIDES or kind in self._own_types:
            self.lose("redacted", f"a {kind} that was erased from the log", seq, kind)
            if kind != EventType.THINKING:  # what thinking is signed with is the rest
                self.edited(after=True)
            self.erased(kind)

    def _unknown(self, seq: int, data: UnknownPayload) -> None:
        kind = data.type
        if kind in self._own_types and self.own(seq, data):
            return
        provider, _, what = kind.rpartition(".")
        if provider in PROVIDERS and provider != self.provider and what in ("message", "block"):
            self.lose("other_provider", f"a {what} that only {provider} can be sent", seq, kind)
        else:
            self._unknown_type(seq, data)

    def _unknown_type(self, seq: int, data: EventData) -> None:
        self.lose("unknown_type", f"no builder knows events of type {data.event_type!r}", seq, data.event_type)

    def _foreign(self, structured: object) -> list[str]:
        """The other providers that kept something in ``structured``, where this one did not."""
        if not isinstance(structured, Mapping):
            return []
        known = cast("Mapping[str, object]", structured)
        return [] if self.provider in known else sorted(PROVIDERS & known.keys())

    def _omitted(self, seq: int, data: ToolResult, limit: int) -> str | None:
        text = data.error_message if is_absent_text(data.result_json) else data.result_json
        size = len(text) if text.isascii() else len(text.encode())
        if isinstance(data.structured, Mapping):
            size = max(size, _size_of_whole(data.structured.get(self.provider), size))
        if size <= limit:
            return None
        self.lose("size_limit", f"a result of {size:,} bytes, where the limit is {limit:,}", seq, data.event_type)
        # Six bytes a character at most, as JSON: what stands in for a result is never as large as the limit itself.
        preview = (data.preview or text)[: min(_PREVIEW_CHARACTERS, limit // 8)]
        bounds = None if data.bounds is None else data.bounds.to_map()
        return encode_json({"omitted": True, "reason": "size_limit", "preview": preview, "bounds": bounds}).decode()


def _size_of_whole(residual: object, size: int) -> int:
    """The bytes of a result whose text has ``size``, with what was kept of it beside the text: images and the like."""
    if not isinstance(residual, Mapping):
        return size
    known = cast("Mapping[str, object]", residual)
    fields = known.get("fields")
    if isinstance(fields, Mapping):
        for key in ("content", "output"):
            if key in fields:
                return len(encode_json(cast("JsonValue", fields[key])))
    return size + size_beside_text(known.get("parts"))


def _nothing(seq: int, data: EventData) -> None:
    """Leave out what is no part of any conversation."""
    del seq, data
