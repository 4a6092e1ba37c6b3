"""The base of every provider's parser: messages to events, one message after the other.

What is the same for every provider is here: an own copy of each message, which must be JSON; ids that stand for the
place, times that count up, the message's role as a label; which call a result answers. A provider says which events a
message comes to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast

from msgspec.structs import replace

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.event import Event, moved, new_event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_json
from agent_memory_log.events.payloads import AssistantMessage, EventData, SystemMessage, UserMessage
from agent_memory_log.transcript.conversion.calls import CallLedger
from agent_memory_log.transcript.names import WireRules
from agent_memory_log.transfer.importing import derived_event_id

JsonMap = dict[str, JsonValue]
"""A map whose values are checked JSON, and its reader's own."""

PAYLOADS_OF_ROLES: dict[str, type[UserMessage | AssistantMessage | SystemMessage]] = {
    "user": UserMessage,
    "assistant": AssistantMessage,
    "system": SystemMessage,
    "developer": SystemMessage,
}
"""The payload for the text of a message, by the message's role."""


class Parser(ABC):
    """Takes a transcript's messages, one by one, and gives the events of each.

    ``source`` is part of the events' ids: the same message at the same place of the same source has the same ids.
    """

    provider: ClassVar[str]
    rules: ClassVar[WireRules]
    what: ClassVar[str] = "messages"
    """What the provider calls the list, for error messages."""

    def __init__(self, source: str) -> None:
        self.calls = CallLedger(self.rules)
        self._source = source
        self._index = -1
        self._events: list[Event] = []
        self._count = 0
        self._role: JsonValue = None
        self._now = datetime.now(UTC)

    def add(self, message: object) -> list[Event]:
        """The events of the next message. Raises ``DecodeError`` naming its place when it is not a map or not JSON."""
        self._index += 1
        path = f"{self.what}[{self._index}]"
        if not isinstance(message, Mapping):
            raise DecodeError(f"{path} must be a map, found {describe(message)}")
        try:
            own = cast("JsonMap", own_json(cast("object", message)))
        except NotJson as error:
            raise DecodeError(f"{path}{error.path} {error}") from error
        self._events = []
        self._role = own.get("role")
        self.read(own)
        return self._events

    @abstractmethod
    def read(self, message: JsonMap) -> None:
        """``emit`` what ``message`` comes to: at least one event, and enough to build it again exactly."""

    def emit(self, payload: EventData, residual: JsonMap | None = None) -> None:
        """Add an event of the message that is being read; ``residual`` goes into the payload's ``structured``."""
        if residual:
            structured: JsonMap = {self.provider: residual}
            payload = replace(cast("Any", payload), structured=structured)
        role = self._role
        self._events.append(
            new_event(
                payload,
                timestamp=moved(self._now, timedelta(microseconds=self._count)),
                labels={"role": role} if isinstance(role, str) else None,
                event_id=derived_event_id(self.provider, self._source, self._index, len(self._events)),
            )
        )
        self._count += 1
