"""The messages of a run, with speaker, text and time, for search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import AssistantMessage, EventType, Redacted, UserMessage
from agent_memory_log.memory.records.record import Evidence

MESSAGE = "message"
"""The kind of a message in search. It is not a kind of record."""

MESSAGE_TYPES = (EventType.USER_MESSAGE.value, EventType.ASSISTANT_MESSAGE.value)
"""The event types that are messages. A model's instructions are not messages, because no speaker said them."""

INJECTED_CONTEXT = "injected_context"
"""The type of the events that record which memories a model received."""

RunEvent = tuple[str, str, int]
"""An event of the log: agent, run and seq."""

SPEAKER_LABEL = "speaker"

_ROLES: Mapping[str, str] = {UserMessage.event_type: "user", AssistantMessage.event_type: "assistant"}


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
    """Return whether an injected context names one of the records, or a message for which ``is_named`` is true.

    Its data may have any shape.
    """
    data = context.data.to_map()
    record_ids, message_ids = data.get("records"), data.get("messages")
    return (isinstance(record_ids, list) and any(isinstance(id_, str) and id_ in records for id_ in record_ids)) or (
        isinstance(message_ids, list) and any(isinstance(id_, dict) and _is_named(id_, is_named) for id_ in message_ids)
    )


def _is_named(message_id: Mapping[str, JsonValue], is_named: Callable[[RunEvent], bool]) -> bool:
    agent, run, seq = (message_id.get(part) for part in ("agent", "run", "seq"))
    return isinstance(agent, str) and isinstance(run, str) and isinstance(seq, int) and is_named((agent, run, seq))
