"""The messages of a run as search sees them: who said what, and when."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import AssistantMessage, EventType, Redacted, UserMessage
from agent_memory_log.memory.records.record import Evidence

MESSAGE = "message"
"""The kind of a message, beside the kinds of records."""

MESSAGE_TYPES = (EventType.USER_MESSAGE.value, EventType.ASSISTANT_MESSAGE.value)
"""The events that are messages. What was put in front of a model, as its instructions, nobody has said."""

INJECTED_CONTEXT = "injected_context"
"""The type of the events that say what a model was given from memory."""

SPEAKER_LABEL = "speaker"

_ROLES: Mapping[str, str] = {UserMessage.event_type: "user", AssistantMessage.event_type: "assistant"}


class RunMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of a run: the event ``seq`` of ``agent``/``run``, whose id is ``event_id``.

    ``speaker`` is the event's ``speaker`` label, else its role: ``user`` or ``assistant``; ``time`` is the event's.
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
        """Where it stands."""
        return Evidence(self.agent, self.run, self.seq, event_id=self.event_id)


def type_of(event: Event) -> str:
    """The event's type; of one that was redacted, the type it had."""
    return event.data.original_type if isinstance(event.data, Redacted) else event.type


def message_of(agent: str, run: str, event: Event) -> RunMessage | None:
    """The message that an event is; None for any other event, and one without text."""
    data = event.data
    if not isinstance(data, (UserMessage, AssistantMessage)) or not data.message.strip():
        return None
    speaker = event.labels.get(SPEAKER_LABEL) or _ROLES[data.event_type]
    return RunMessage(agent, run, event.seq, speaker, data.message, event.timestamp, event.event_id)
