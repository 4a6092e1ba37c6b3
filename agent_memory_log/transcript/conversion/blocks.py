"""Parses and builds messages that consist of blocks. Several events of one side share a message.

Text, thinking and tool calls are on the assistant's side. Tool results and user text are on the user's side.

The residuals of these providers may have a part ``message``:

- A map means that the event begins a message, even if it would normally join one. The map is the message's residual.
- ``False`` means that the event joins a message, even if it would normally begin one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, own_json
from agent_memory_log.events.payloads import EventData, ToolCall, ToolResult, UnknownPayload
from agent_memory_log.transcript.conversion.building import SIDES, Builder, Residual
from agent_memory_log.transcript.conversion.parsing import JsonMap, Parser
from agent_memory_log.transcript.conversion.rendering import arguments_map
from agent_memory_log.transcript.differences import apply, is_residual
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import list_in

ROLES = frozenset({"user", "assistant", "system"})


def without_blocks(message: WireMessage, is_removed: Callable[[object], bool]) -> WireMessage | None:
    """Return the message without the blocks that ``is_removed`` selects; None if no block is left.

    A message without such blocks is returned unchanged.
    """
    content = list_in(message.get("content"))
    left = [block for block in content if not is_removed(block)]
    if len(left) == len(content):
        return message
    return {**message, "content": left} if left else None


class OpenMessage:
    """The message that the next event may join. The parser and the builder track it in the same way.

    Attributes:
        side: The message's side; ``""`` if nothing may join it.
        has_user_text: Whether the message has user text. Further user text begins a new message.
    """

    __slots__ = ("has_user_text", "side")

    def __init__(self) -> None:
        self.side = ""
        self.has_user_text = False

    def takes(self, side: str, *, is_user_text: bool) -> bool:
        """Return whether an event of ``side`` joins the message. ``is_user_text`` means that the event is user text."""
        return self.side == side and not (is_user_text and self.has_user_text)

    def begin(self, side: str) -> None:
        """Record that a message of ``side`` begins."""
        self.side = side
        self.has_user_text = False


class BlockParser(Parser):
    """The base class of parsers for messages of blocks."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.open_message = OpenMessage()
        # The residual of the current message. It becomes None when the message's first event stores it.
        self.head: JsonMap | None = None

    @abstractmethod
    def reader_of(self, role: str, block: JsonValue) -> Callable[[int, JsonMap], None] | None:
        """Return a function that emits a block, given its index and the block; None if ``read_run`` reads it."""

    @abstractmethod
    def read_run(self, role: str, run: list[JsonValue]) -> None:
        """Emit the text of ``run``, consecutive blocks for which ``reader_of`` returned None."""

    def read_blocks(self, role: str, content: list[JsonValue]) -> None:
        """Emit one event for consecutive text blocks together, and one event for every other block."""
        run: list[JsonValue] = []
        for index, block in enumerate(content):
            read = self.reader_of(role, block)
            if read is None:
                run.append(block)
                continue
            if run:
                self.read_run(role, run)
                run = []
            read(index, cast("JsonMap", block))
        if run:
            self.read_run(role, run)

    def result_payload(self, call_id: str, text: str, *, failed: bool) -> ToolResult:
        """Return the payload of a result. Its text is an error message if the call ``failed``."""
        text = "" if is_absent_text(text) else text
        name = self.calls.open_call_name(call_id) or ""
        return ToolResult(call_id, name, error_message=text) if failed else ToolResult(call_id, name, result_json=text)

    def emit_block(self, side: str, payload: EventData, residual: JsonMap, *, is_user_text: bool = False) -> None:
        """Emit an event of the current message. The first event stores the message's residual."""
        head = self.take_head(side, is_user_text=is_user_text)
        self.emit(payload, residual if head is None else {**residual, "message": head})

    def take_head(self, side: str, *, is_user_text: bool = False) -> JsonMap | bool | None:
        """Return the ``message`` part of the next event's residual; None if the residual needs no such part."""
        head, self.head = self.head, None
        joins = self.open_message.takes(side, is_user_text=is_user_text)
        if head is not None:
            self.open_message.begin(side)
        self.open_message.has_user_text |= is_user_text
        if head is None:
            return None if joins else False
        return head if joins or head else None

    def emit_own_block(self, side: str, data: JsonMap) -> None:
        """Emit a block that fits no payload."""
        head = self.take_head(side)
        stored = data if head is None else {**data, "message": head}
        self.emit(UnknownPayload(type=f"{self.provider}.block", data=stored))

    def emit_own_message(self, message: JsonMap) -> None:
        """Emit a message that fits no payload. No later event joins it."""
        self.open_message.begin("")
        self.emit(UnknownPayload(type=f"{self.provider}.message", data=message))


class BlockBuilder(Builder):
    """The base class of builders for messages of blocks.

    Attributes:
        text_block: Returns a block that holds only text.
        call_block: Returns the block of a call. It takes the payload, the wire id and the arguments.
        call_key: The key in a call block that the payload's residual applies to; None for the block itself.
        own_block_side: The side of a block that fits no payload, if the event does not store a side.
    """

    text_block: Callable[[str], WireMessage]
    call_block: Callable[[ToolCall, str, WireMessage], WireMessage]
    call_key: ClassVar[str | None] = None
    own_block_side: ClassVar[str | None] = None

    def __init__(self, messages: list[WireMessage], max_result_bytes: int | None) -> None:
        super().__init__(messages, max_result_bytes)
        self.open_message = OpenMessage()
        self._content: list[Any] = []
        # Whether the open message's content is a text, not a list.
        self._is_text = False

    @abstractmethod
    def result_block(self, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> WireMessage:
        """Return the block of a result."""

    def call(self, seq: int, data: ToolCall, wire_id: str, residual: Residual) -> None:
        """Add a block to the assistant's message."""
        arguments, is_exact = arguments_map(data.payload_json)
        if not is_exact:
            self.lose("arguments", f"the arguments of {data.tool_name!r} are not a JSON object", seq, data.event_type)
        block = self.call_block(data, wire_id, arguments)
        if residual:
            apply(block if self.call_key is None else block[self.call_key], residual)
        self.add_block(block, "assistant", residual, seq)

    def result(self, seq: int, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> None:
        """Add a block to the user's message."""
        self.add_block(self.result_block(data, wire_id, omitted, residual), "user", residual, seq)

    def own(self, seq: int, data: UnknownPayload) -> bool:
        """Add a block or a message that fits no payload."""
        if data.type == f"{self.provider}.message":
            self.open_message.begin("")
            self.begin(data.to_map(), seq, [])
            return True
        side = data.data.get("role", self.own_block_side)
        if "block" not in data.data or not isinstance(side, str) or side not in ROLES:
            return False
        block: Any = own_json(data.data["block"])
        self.add_block(block, side, data.data, seq)
        return True

    def erased(self, original_type: str) -> None:
        """Close the open message if the erased event was not on its side."""
        side = self.open_message.side
        own_side = self.own_block_side or side
        if SIDES.get(original_type, own_side if original_type == f"{self.provider}.block" else "") != side:
            self.open_message.begin("")

    def add_block(self, block: WireMessage, side: str, residual: Residual, seq: int) -> None:
        """Add a block to the open message if the event joins it, or else to a new message."""
        if residual or self._is_text or self.open_message.side != side:
            self._open(side, residual, seq)
        self._content.append(block)
        self.origins.parts[-1].append(seq)

    def add_blocks(
        self, blocks: Sequence[JsonValue], side: str, residual: Residual, seq: int, *, is_user_text: bool = False
    ) -> None:
        """Add several blocks of one event."""
        self._open(side, residual, seq, is_user_text=is_user_text)
        self._content.extend(blocks)
        self.origins.parts[-1].extend([seq] * len(blocks))

    def add_text(self, text: str, side: str, residual: Residual, seq: int, *, is_user_text: bool = False) -> None:
        """Add text. If the event begins a message, the text is the whole content. Otherwise it is a block."""
        if self._open(side, residual, seq, is_user_text=is_user_text):
            self.messages[-1]["content"] = text
            self._is_text = True
        elif text or side == "user":
            self._content.append(self.text_block(text))
        self.origins.parts[-1].append(seq)

    def _open(self, side: str, residual: Residual, seq: int, *, is_user_text: bool = False) -> bool:
        """Begin a message of ``side``, unless the event joins the open message. Return whether a message began."""
        head = residual.get("message") if residual else None
        has_head = head is not None and isinstance(head, Mapping) and is_residual(head)
        open_message = self.open_message
        begins = (
            has_head or open_message.side != side or (is_user_text and open_message.has_user_text and head is not False)
        )
        if begins:
            self._content = []
            self._is_text = False
            role = self.assistant_role if side == "assistant" else side
            message: WireMessage = {"role": role, self.part_key: self._content}
            if has_head:
                apply(message, cast("Residual", head))
            open_message.side = side
            open_message.has_user_text = False
            self.begin(message, seq, [])
        elif self._is_text:
            message = self.messages[-1]
            self._content.append(self.text_block(message["content"]))
            message["content"] = self._content
            self._is_text = False
        if is_user_text:
            open_message.has_user_text = True
        return begins
