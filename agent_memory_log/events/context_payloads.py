"""The built-in payloads for the contexts of models: background from a memory, compactions, and checkpoints.

See ``payloads.py`` for the rules of their maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent_memory_log.events.fields import Int64
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.nested import EventPlace
from agent_memory_log.events.payloads import BuiltInData, EventType


class InjectedContext(BuiltInData, frozen=True):
    """Background that a runtime added to the conversation, for example from a memory.

    Transcripts send the text as a message of the user, at the place where it was recorded. It is never evidence for a
    memory. If a memory or a message is erased, memory redacts every injected context in linked runs that names it.

    Attributes:
        text: The text that the model received.
        records: The ids of the memory records in the text.
        messages: The messages in the text.
        token_count: The number of tokens of the text, or 0 if they were not counted.
        source: The reason for the context, for example ``pre_task`` or ``post_compaction``.
    """

    event_type = EventType.INJECTED_CONTEXT.value

    text: str = ""
    records: tuple[str, ...] = ()
    messages: tuple[EventPlace, ...] = ()
    token_count: Int64 = 0
    source: str = ""


class Compaction(BuiltInData, frozen=True):
    """A short form of the conversation that replaces its earlier events in later model requests.

    The replaced events stay in the log. Transcripts leave them out, except system messages, and begin with the
    compaction. If the provider cannot read the compaction, the transcript has the events instead. Only the latest
    compaction that the provider can read counts.

    Attributes:
        text: The short form as text, which transcripts send as a message of the user. It may be ``""`` if
            ``structured`` has a provider's own form.
        up_to: The last seq of the replaced events. 0 means that the compaction replaces all events before it.
        structured: The provider's own form, keyed by provider: ``{"openai-responses": {"items": [...]}}`` has the items
            to send instead of the replaced events, system messages included.
    """

    event_type = EventType.COMPACTION.value

    text: str = ""
    up_to: Int64 = 0
    structured: JsonValue = None


class Checkpoint(BuiltInData, frozen=True):
    """A state of the run that a runtime saved outside the log. Models never receive it.

    Attributes:
        checkpoint_id: The id of the saved state.
        location: The place of the saved state, for example the name of a bucket.
        structured: Any JSON value about the state.
    """

    event_type = EventType.CHECKPOINT.value

    checkpoint_id: str = ""
    location: str = ""
    structured: JsonValue = None


class PlaceLike(Protocol):
    """A reference to an event, such as an ``Evidence`` of a memory."""

    @property
    def agent(self) -> str:
        """The agent of the run."""
        ...

    @property
    def run(self) -> str:
        """The id of the run."""
        ...

    @property
    def seq(self) -> int:
        """The seq of the event."""
        ...

    @property
    def event_id(self) -> str:
        """The id of the event, or ``""``."""
        ...


class ContextLike(Protocol):
    """Background for a model with its sources, such as a ``MemoryContext``."""

    @property
    def text(self) -> str:
        """The text."""
        ...

    @property
    def tokens(self) -> int:
        """The number of tokens of the text."""
        ...

    @property
    def records(self) -> Sequence[str]:
        """The ids of the records in the text."""
        ...

    @property
    def messages(self) -> Sequence[PlaceLike]:
        """The messages in the text."""
        ...


def injected_context(context: str | ContextLike, source: str) -> InjectedContext:
    """Return the payload for a text, or for a context with its sources."""
    if isinstance(context, str):
        return InjectedContext(context, source=source)
    return InjectedContext(
        context.text,
        tuple(context.records),
        tuple(
            EventPlace(agent=place.agent, run=place.run, seq=place.seq, event_id=place.event_id)
            for place in context.messages
        ),
        context.tokens,
        source,
    )
