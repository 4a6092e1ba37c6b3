"""Defines the base class of all builders. A builder converts a run's events to messages, one event at a time.

The base class does the work that is the same for all providers: the method for each payload, nested calls, losses,
the origin of each message, and size limits. Each provider's subclass renders the payloads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, cast

from agent_memory_log.events.context_payloads import Checkpoint, Compaction, InjectedContext
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
from agent_memory_log.transcript.conversion.compacting import is_readable, items_of
from agent_memory_log.transcript.conversion.crossing import Crossing, cross, user_message_of
from agent_memory_log.transcript.conversion.foreign import content_beside_text
from agent_memory_log.transcript.conversion.partial import is_partial
from agent_memory_log.transcript.conversion.rendering import MAX_RESULT_BYTES, TextPayload, is_longer
from agent_memory_log.transcript.conversion.text_parts import size_beside_text
from agent_memory_log.transcript.differences import residual_of_provider
from agent_memory_log.transcript.findings import Loss, WireMessage
from agent_memory_log.transcript.log_facts import Origins, Recorded
from agent_memory_log.transcript.names import PROVIDERS, WireRules

Residual = Mapping[str, JsonValue]
"""The differences between a payload's original message and its default rendering; see ``differences``."""

NO_RESIDUAL: Residual = {}
_PREVIEW_CHARACTERS = 1_000

_SURELY_SMALL = MAX_RESULT_BYTES // 4
"""The most characters of a text that is within ``MAX_RESULT_BYTES``. A character has at most four bytes."""

SIDES = {
    EventType.USER_MESSAGE.value: "user",
    EventType.TOOL_RESULT.value: "user",
    EventType.ASSISTANT_MESSAGE.value: "assistant",
    EventType.THINKING.value: "assistant",
    EventType.TOOL_CALL.value: "assistant",
    EventType.SYSTEM_MESSAGE.value: "",
    EventType.INJECTED_CONTEXT.value: "user",
    EventType.COMPACTION.value: "user",
}
"""The types of conversation events, and the side of each type."""


def _ignore(builder: object, seq: int, data: EventData) -> None:
    """Ignore an event that no conversation contains."""
    del builder, seq, data


class Builder(ABC):
    """Builds ``messages`` from events in append order. It reads each event once.

    The hook methods receive an event's ``seq`` (0 if no store has assigned one), its payload, and the payload's
    ``residual`` for this provider. ``extra`` names parts that residuals of this provider have beyond the usual ones.
    Hooks add messages with ``begin`` and append the seq of each part to ``origins.parts``. They never render
    ``server_data``.
    """

    provider: ClassVar[str]
    rules: ClassVar[WireRules]
    extra: ClassVar[frozenset[str]]
    part_key: ClassVar[str] = "content"
    """The key in a message of the list of its parts."""
    assistant_role: ClassVar[str] = "assistant"
    """The provider's name for the role of the model."""
    compaction: Compaction | None
    """The latest compaction that the provider can read. The messages before it are still there; see ``compacted``."""
    keeps_partial: bool
    """Keep the text of partial answers, as ``build`` does with ``partial="keep"``."""

    def __init__(self, messages: list[WireMessage], max_result_bytes: int | None) -> None:
        """Create a builder that fills the empty list ``messages`` in place."""
        self.messages = messages
        self.max_result_bytes = max_result_bytes
        self.keeps_partial = False
        self.compaction = None
        self.origins = Origins(self.part_key)
        self.losses: list[Loss] = []
        self.recorded = Recorded()
        self._calls = CallLedger(self.rules, self.provider)
        self._document_names: set[str] = set()
        self._own_types = frozenset({f"{self.provider}.message", f"{self.provider}.block"})

    def take(self, events: Iterable[Event]) -> None:
        """Add the next events of the log."""
        handlers = self._HANDLERS
        for event in events:
            data = event.data
            handler = handlers.get(type(data))
            if handler is None:
                self._unknown_type(event.seq, data)
            else:
                handler(self, event.seq, data)

    # Hooks that each provider implements.

    @abstractmethod
    def add_message(self, role: str, seq: int, data: TextPayload) -> None:
        """Add text. Instructions that the provider takes outside the messages go to ``recorded.leading``."""

    @abstractmethod
    def thinking(self, seq: int, data: Thinking, residual: Residual) -> None:
        """Add a thinking block, or ``lose`` it. The base class never passes on thinking of other providers."""

    @abstractmethod
    def call(self, seq: int, data: ToolCall, wire_id: str, residual: Residual) -> None:
        """Add a call that the model made."""

    @abstractmethod
    def result(self, seq: int, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> None:
        """Add the result of a call. ``omitted`` replaces the value of a result that is too large."""

    @abstractmethod
    def own(self, seq: int, data: UnknownPayload) -> bool:
        """Add a stored message or block of this provider. Return False if the parser did not write the event."""

    @abstractmethod
    def erased(self, original_type: str) -> None:
        """Handle an erased event: close the open message if later events might wrongly join it."""

    def result_limit(self, data: ToolResult, wire_id: str) -> int | None:
        """Return the largest size of this result's value in bytes; None if the value must stay whole."""
        del wire_id
        if self.max_result_bytes is None and data.structured is None:
            return MAX_RESULT_BYTES
        return self.max_result_bytes

    # Methods that the hooks call.

    def residual_of(self, seq: int, data: TextPayload | ToolCall | ToolResult) -> Residual:
        """Return the payload's residual for this provider. Record what only another provider accepts as a loss."""
        for provider in self._foreign(data.structured):
            names = content_beside_text(cast("Mapping[str, object]", data.structured)[provider])
            for name in dict.fromkeys(names):
                message = f"{name} in the {data.event_type}, which only {provider} accepts in this form"
                self.lose("other_provider", message, seq, data.event_type)
        return residual_of_provider(self.provider, data.structured, self.extra)

    def begin(self, message: WireMessage, seq: int, parts: list[int]) -> None:
        """Begin a message that comes from the event ``seq`` and whose parts come from the events ``parts``."""
        self.messages.append(message)
        self.origins.owns.append(seq)
        self.origins.parts.append(parts)

    def lose(self, reason: str, message: str, seq: int, event_type: str) -> None:
        """Record content that the transcript leaves out or changes."""
        self.losses.append(Loss(reason, message, seq or None, event_type))

    def note_signed(self, signature: object, text: str) -> None:
        """Record a signature or an encrypted block with its recorded text."""
        if signature and isinstance(signature, str):
            signed = self.recorded.signed
            signed.setdefault(signature, (len(signed), text))

    def edited(self, *, after: bool) -> None:
        """Record that the content, from the last part or ``after`` it, is not the content that the model received."""
        if self.recorded.edited_from is None:
            last = len(self.messages) - 1
            parts = len(self.origins.parts[last]) if self.messages else 0
            self.recorded.edited_from = (last, max(parts, 1)) if after else (last, max(parts - 1, 0))

    # Code that all providers share.

    def _user(self, seq: int, data: UserMessage, event_type: str = EventType.USER_MESSAGE) -> None:
        crossing = None if data.structured is None else self._crossing(seq, data, event_type)
        if crossing is not None:
            if not crossing.text and crossing.structured is None:
                return
            data = UserMessage(crossing.text, crossing.structured)
        self.add_message("user", seq, data)

    def _crossing(self, seq: int, data: UserMessage | ToolResult, event_type: str) -> Crossing | None:
        """Return content with media in the form of this provider, and record the losses."""
        crossing = cross(data, self.provider, self._document_names)
        for lost in () if crossing is None else crossing.losses:
            self.lose(lost.reason, lost.message, seq, event_type)
        return crossing

    def _system(self, seq: int, data: SystemMessage) -> None:
        self.add_message("system", seq, data)

    def _assistant(self, seq: int, data: AssistantMessage) -> None:
        if data.structured is not None and is_partial(data):
            if not self.keeps_partial or not data.message:
                self.lose("partial", "the answer is partial: its stream was cut off or failed", seq, data.event_type)
                return
            data = AssistantMessage(data.message)
        self.add_message("assistant", seq, data)

    def _thinking(self, seq: int, data: Thinking) -> None:
        structured = data.structured
        if structured is not None and self._foreign(structured):
            self.lose("reasoning", "this provider does not accept another provider's reasoning", seq, data.event_type)
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
        crossing = None if data.structured is None else self._crossing(seq, data, data.event_type)
        if crossing is not None:
            data = crossing.result(data)
        residual = NO_RESIDUAL if data.structured is None else self.residual_of(seq, data)
        omitted = None
        if self.max_result_bytes is not None or len(data.result_json) > _SURELY_SMALL:
            limit = self.result_limit(data, wire_id)
            omitted = None if limit is None else self._omitted(seq, data, limit)
        self.result(seq, data, wire_id, omitted, residual)
        if omitted is not None and self.max_result_bytes is not None:
            self.edited(after=False)  # without max_result_bytes, the model received the same text
        if data.error_message and not is_absent_text(data.result_json):
            parts = self.origins.parts[-1]
            last = len(self.messages) - 1
            self.recorded.conflicts.append((last, self.part_key, len(parts) - 1) if parts else (last,))

    def _injected(self, seq: int, data: InjectedContext) -> None:
        if data.text:
            self.add_message("user", seq, UserMessage(data.text))

    def _compaction(self, seq: int, data: Compaction) -> None:
        if not is_readable(data, self.provider):
            return
        self.compaction = data
        items = items_of(data, self.provider)
        if items is None:
            self.add_message("user", seq, UserMessage(data.text))
        for item in items or ():
            self.begin(dict(item), seq, [])

    def _request(self, seq: int, data: ModelRequest) -> None:
        del seq
        fingerprints = (data.system_hash, data.tools_hash) if data.provider == self.provider else None
        requests = self.recorded.requests
        if not requests or requests[-1][1] != fingerprints:
            requests.append((len(self.messages), fingerprints))

    def _redacted(self, seq: int, data: Redacted) -> None:
        kind = data.original_type
        if kind in SIDES or kind in self._own_types:
            self.lose("redacted", f"a {kind} event was erased from the log", seq, kind)
            if kind != EventType.THINKING:  # signatures cover the content, not earlier thinking
                self.edited(after=True)
            self.erased(kind)

    def _unknown(self, seq: int, data: UnknownPayload) -> None:
        kind = data.type
        if kind in self._own_types and self.own(seq, data):
            return
        provider, _, unit = kind.rpartition(".")
        if provider in PROVIDERS and provider != self.provider and unit in ("message", "block"):
            message = user_message_of(data)
            if message is not None:
                self._user(seq, message, kind)
                return
            self.lose("other_provider", f"only {provider} accepts this {unit}", seq, kind)
        else:
            self._unknown_type(seq, data)

    def _unknown_type(self, seq: int, data: EventData) -> None:
        self.lose("unknown_type", f"no builder knows events of type {data.event_type!r}", seq, data.event_type)

    _HANDLERS: ClassVar[Mapping[type[EventData], Callable[[Any, int, Any], None]]] = {
        UserMessage: _user,
        AssistantMessage: _assistant,
        SystemMessage: _system,
        Thinking: _thinking,
        ToolCall: _call,
        ToolResult: _result,
        ModelRequest: _request,
        InjectedContext: _injected,
        Compaction: _compaction,
        Redacted: _redacted,
        UnknownPayload: _unknown,
        # Models never receive these events.
        PlannerNote: _ignore,
        RetryHint: _ignore,
        Annotation: _ignore,
        Redaction: _ignore,
        Checkpoint: _ignore,
    }
    """The method for each payload. One table serves all builders, because most runs are short."""

    def _foreign(self, structured: object) -> list[str]:
        """Return the other providers with a residual in ``structured``, if this provider has none."""
        if not isinstance(structured, Mapping):
            return []
        residuals = cast("Mapping[str, object]", structured)
        return [] if self.provider in residuals else sorted(PROVIDERS & residuals.keys())

    def _omitted(self, seq: int, data: ToolResult, limit: int) -> str | None:
        text = data.result_json
        if data.error_message and is_absent_text(text):
            return None
        residual = data.structured.get(self.provider) if isinstance(data.structured, Mapping) else None
        if residual is None and not is_longer(text, limit):
            return None
        length = len(text.encode())
        size = max(length, _full_size(residual, length))
        if size <= limit:
            return None
        self.lose("size_limit", f"the result has {size:,} bytes; the limit is {limit:,}", seq, data.event_type)
        # A character takes at most six bytes as JSON.
        preview_length = min(_PREVIEW_CHARACTERS, limit // 8)
        preview = data.preview[:preview_length] or text[:preview_length]
        rest = size if data.preview else size - len(preview.encode())
        omission: dict[str, JsonValue] = {
            "omitted": True,
            "reason": "size_limit",
            "note": f"[{rest:,} of {size:,} bytes left out]",
            "preview": preview,
            "bounds": None if data.bounds is None else data.bounds.to_map(),
        }
        return encode_json(omission).decode()


def _full_size(residual: object, size: int) -> int:
    """Return the size of a result in bytes. ``size`` is the size of its text; images and other parts are added."""
    if not isinstance(residual, Mapping):
        return size
    parts = cast("Mapping[str, object]", residual)
    fields = parts.get("fields")
    if isinstance(fields, Mapping):
        for key in ("content", "output"):
            if key in fields:
                return len(encode_json(cast("JsonValue", fields[key])))
        if "parts" in fields:  # the media in a result of Gemini
            size += len(encode_json(cast("JsonValue", fields["parts"])))
    return size + size_beside_text(parts.get("parts"))
