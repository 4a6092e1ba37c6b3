"""Parsing and building for providers whose messages hold blocks, where events of one side share a message.

The assistant's side is what it says, thinks and calls; the user's side is results and what the user says.

Residuals of these providers may have a part ``message``. A map: the event begins a message though it would be joined,
and the map is the residual of the message. ``False``: the event is joined though it would begin a message.
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


def without_blocks(message: WireMessage, goes: Callable[[object], bool]) -> WireMessage | None:
    """The message without the blocks that ``goes`` is true of; itself if it has none, None if it has no others."""
    content = list_in(message.get("content"))
    left = [block for block in content if not goes(block)]
    if len(left) == len(content):
        return message
    return {**message, "content": left} if left else None


class OpenMessage:
    """The message that the next event is joined to; parser and builder keep it alike.

    - ``side``: whose message it is; ``""`` if nothing may be joined to it.
    - ``user_spoke``: whether the user said something in it; what the user says next begins a message.
    """

    __slots__ = ("side", "has_user_text")

    def __init__(self) -> None:
        self.side = ""
        self.has_user_text = False

    def takes(self, side: str, *, is_user_text: bool) -> bool:
        """Whether an event of ``side`` is joined to the message; ``says``: it is what the user says."""
        return self.side == side and not (is_user_text and self.has_user_text)

    def begin(self, side: str) -> None:
        """Note that a message of ``side`` begins."""
        self.side = side
        self.has_user_text = False


class BlockParser(Parser):
    """The base of the parsers for messages of blocks."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.open_message = OpenMessage()
        # The residual of the message that is being read, until its first event takes it; then None.
        self.head: JsonMap | None = None

    @abstractmethod
    def reader_of(self, role: str, block: JsonValue) -> Callable[[int, JsonMap], None] | None:
        """What emits a block, from its place and what it holds; None for a block that belongs to a run of text."""

    @abstractmethod
    def read_run(self, role: str, run: list[JsonValue]) -> None:
        """Emit what was said in blocks that follow each other."""

    def read_blocks(self, role: str, content: list[JsonValue]) -> None:
        """Emit an event for each run of text and each other block."""
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
        """A result: what it says is an error message if it ``failed``."""
        text = "" if is_absent_text(text) else text
        name = self.calls.open_call_name(call_id) or ""
        return ToolResult(call_id, name, error_message=text) if failed else ToolResult(call_id, name, result_json=text)

    def emit_block(self, side: str, payload: EventData, residual: JsonMap, *, is_user_text: bool = False) -> None:
        """Emit an event of the message that is being read; its first event carries the message's residual."""
        head = self.take_head(side, is_user_text=is_user_text)
        self.emit(payload, residual if head is None else {**residual, "message": head})

    def take_head(self, side: str, *, is_user_text: bool = False) -> JsonMap | bool | None:
        """What the next event has to say about its message; None if the default is right."""
        head, self.head = self.head, None
        joins = self.open_message.takes(side, is_user_text=is_user_text)
        if head is not None:
            self.open_message.begin(side)
        self.open_message.has_user_text |= is_user_text
        if head is None:
            return None if joins else False
        return head if joins or head else None

    def emit_own_block(self, side: str, data: JsonMap) -> None:
        """Emit a block that no payload fits."""
        head = self.take_head(side)
        kept = data if head is None else {**data, "message": head}
        self.emit(UnknownPayload(type=f"{self.provider}.block", data=kept))

    def emit_own_message(self, message: JsonMap) -> None:
        """Emit a message that no payload fits; nothing is joined to it."""
        self.open_message.begin("")
        self.emit(UnknownPayload(type=f"{self.provider}.message", data=message))


class BlockBuilder(Builder):
    """The base of the builders for messages of blocks.

    - ``own_block_side``: the side of a block that no payload fits, if the event does not name one.
    - ``text_block``: makes a block that holds text only.
    - ``call_block``: makes the block of a call from the payload, the id on the wire and the arguments.
    - ``call_key``: the key in the block of what the payload's residual is of; None if it is of the block itself.
    """

    text_block: Callable[[str], WireMessage]
    call_block: Callable[[ToolCall, str, WireMessage], WireMessage]
    call_key: ClassVar[str | None] = None
    own_block_side: ClassVar[str | None] = None

    def __init__(self, messages: list[WireMessage], max_result_bytes: int | None) -> None:
        super().__init__(messages, max_result_bytes)
        self.open_message = OpenMessage()
        self._content: list[Any] = []
        # Whether the open message's content is text itself, and not a list.
        self._is_text = False

    @abstractmethod
    def result_block(self, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> WireMessage:
        """The block of a result."""

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
        """Add a block or a message that no payload fits."""
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
        """Join nothing to the open message if the erased event was not of its side."""
        side = self.open_message.side
        own_side = self.own_block_side or side
        if SIDES.get(original_type, own_side if original_type == f"{self.provider}.block" else "") != side:
            self.open_message.begin("")

    def add_block(self, block: WireMessage, side: str, residual: Residual, seq: int) -> None:
        """Add a block to the open message if the event is joined to it, or else to a new one."""
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
        """Add text as the content itself if it begins a message, or else as a block."""
        if self._open(side, residual, seq, is_user_text=is_user_text):
            self.messages[-1]["content"] = text
            self._is_text = True
        elif text or side == "user":
            self._content.append(self.text_block(text))
        self.origins.parts[-1].append(seq)

    def _open(self, side: str, residual: Residual, seq: int, *, is_user_text: bool = False) -> bool:
        """Begin a message of ``side`` unless the event is joined to the open one; whether a message began."""
        head = residual.get("message") if residual else None
        has_head = head is not None and isinstance(head, Mapping) and is_residual(head)
        open_message = self.open_message
        begins = (
            has_head or open_message.side != side or (is_user_text and open_message.has_user_text and head is not False)
        )
        if begins:
            self._content = []
            self._is_text = False
            message: WireMessage = {"role": side, "content": self._content}
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
