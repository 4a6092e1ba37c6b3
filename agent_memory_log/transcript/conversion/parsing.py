"""Defines the base class of all parsers. A parser converts messages to events, one message at a time.

The base class does the work that is the same for all providers. It copies each message, checks that it is JSON, and
assigns ids, times and the role label to events. It also pairs results with calls. Each provider's subclass decides
which events a message becomes.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast

from msgspec.structs import replace

from agent_memory_log.events.event import Event, new_event, shift_time
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import AssistantMessage, EventData, SystemMessage, ToolResult, UserMessage
from agent_memory_log.transcript.conversion.calls import CallLedger
from agent_memory_log.transcript.conversion.rendering import is_beyond_default
from agent_memory_log.transcript.json_types import own_map
from agent_memory_log.transcript.names import WireRules
from agent_memory_log.transfer.importing import derived_event_id

JsonMap = dict[str, JsonValue]
"""A map with checked JSON values that the code may change."""

PAYLOADS_OF_ROLES: dict[str, type[UserMessage | AssistantMessage | SystemMessage]] = {
    "user": UserMessage,
    "assistant": AssistantMessage,
    "system": SystemMessage,
    "developer": SystemMessage,
}
"""The payload for the text of a message, by the message's role."""


class Parser(ABC):
    """Converts the messages of a transcript to events, one message at a time.

    ``source`` is part of the event ids: the same position in the same source always has the same ids. If it is ``""``,
    each parser has ids of its own.
    """

    provider: ClassVar[str]
    rules: ClassVar[WireRules]
    list_name: ClassVar[str] = "messages"
    """The provider's name for the list of messages, used in error messages."""
    assistant_role: ClassVar[str] = "assistant"
    """The provider's name for the role of the model. Labels have ``assistant`` in its place."""

    def __init__(self, source: str) -> None:
        self.calls = CallLedger(self.rules, self.provider)
        self._source = source or uuid.uuid4().hex
        self._index = -1
        self._events: list[Event] = []
        self._count = 0
        self._role: JsonValue = None
        self._now = datetime.now(UTC)

    def add(self, message: object) -> list[Event]:
        """Return the events of the next message. Raise ``DecodeError`` with its path if it is not a map or not JSON."""
        self._index += 1
        own = own_map(message, f"{self.list_name}[{self._index}]")
        self._events = []
        role = own.get("role")
        self._role = "assistant" if role == self.assistant_role else role
        self.read(own)
        return self._events

    @abstractmethod
    def read(self, message: JsonMap) -> None:
        """Call ``emit`` at least once for ``message``. The events must contain enough data to rebuild it."""

    def emit(self, payload: EventData, residual: JsonMap | None = None) -> None:
        """Add an event of the current message. ``residual`` goes into the payload's ``structured``."""
        if residual or (isinstance(payload, ToolResult) and is_beyond_default(payload)):
            structured: JsonMap = {self.provider: residual or {}}
            payload = replace(cast("Any", payload), structured=structured)
        role = self._role
        self._events.append(
            new_event(
                payload,
                timestamp=shift_time(self._now, timedelta(microseconds=self._count)),
                labels={"role": role} if isinstance(role, str) else None,
                event_id=derived_event_id(self.provider, self._source, self._index, len(self._events)),
            )
        )
        self._count += 1
