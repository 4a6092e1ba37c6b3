"""The messages of a run, with speaker, text and time, for search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal

import msgspec

from agent_memory_log.events.context_payloads import InjectedContext
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import AssistantMessage, EventType, Redacted, UserMessage
from agent_memory_log.memory.records.record import Evidence

MESSAGE = "message"
"""The kind of a message in search. It is not a kind of record."""

MESSAGE_TYPES = (EventType.USER_MESSAGE.value, EventType.ASSISTANT_MESSAGE.value)
"""The event types that are messages. A model's instructions are not messages, because no speaker said them."""

RunEvent = tuple[str, str, int]
"""An event of the log: agent, run and seq."""

SPEAKER_LABEL = "speaker"

_ROLES: Mapping[str, str] = {UserMessage.event_type: "user", AssistantMessage.event_type: "assistant"}


class ConversationTurn(msgspec.Struct, frozen=True):
    """A turn of a conversation for ``ingest``: its ``text``, and the ``role`` that said it."""

    role: Literal["user", "assistant"]
    text: str


class RunMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of a run.

    Attributes:
        agent: The agent of the run.
        run: The id of the run.
        seq: The seq of the message's event.
        speaker: The event's ``speaker`` label, or its role (``user`` or ``assistant``) if it has no such label.
        text: The text of the message.
        time: The timestamp of the event.
        event_id: The id of the event.
    """

    agent: str
    run: str
    seq: int
    speaker: str
    text: str
    time: datetime
    event_id: str = ""

    @property
    def evidence(self) -> Evidence:
        """The message's event, as evidence."""
        return Evidence(self.agent, self.run, self.seq, event_id=self.event_id)


def type_of(event: Event) -> str:
    """Return the event's type. For a redacted event, return the original type."""
    return event.data.original_type if isinstance(event.data, Redacted) else event.type


def message_of(agent: str, run: str, event: Event) -> RunMessage | None:
    """Return an event as a message, or None if it is not a message or has no text."""
    data = event.data
    if not isinstance(data, (UserMessage, AssistantMessage)) or not data.message.strip():
        return None
    speaker = event.labels.get(SPEAKER_LABEL) or _ROLES[data.event_type]
    return RunMessage(agent, run, event.seq, speaker, data.message, event.timestamp, event.event_id)


def names_any(context: Event, records: frozenset[str], is_named: Callable[[RunEvent], bool]) -> bool:
    """Return whether an injected context names one of the records, or a message for which ``is_named`` is true."""
    data = context.data
    return isinstance(data, InjectedContext) and (
        not records.isdisjoint(data.records)
        or any(is_named((place.agent, place.run, place.seq)) for place in data.messages)
    )
