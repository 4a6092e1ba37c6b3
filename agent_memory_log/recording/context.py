"""What a recorder knows of its run: read once, when it is first needed, and then only what is new.

A provider's answer is kept so that ``build`` gives it back exactly, which depends on what stands before it: whether it
is joined to the message before, whether its call ids were used before. The parser of each provider is therefore kept
open, and is given the conversation as it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import ModelRequest
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, load
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.providers import find_provider

_Answer = TypeVar("_Answer")


class RunContext:
    """A run as a recorder knows it."""

    def __init__(self, agent: str, run: str) -> None:
        self._agent = agent
        self._run = run
        self._snapshot: Snapshot | None = None
        self._conversations: dict[str, _Conversation] = {}
        self._unconfirmed: tuple[str, _Conversation] | None = None

    def refresh(self) -> Steps[Snapshot]:
        """Read what is new. Raises what ``Store.load_run`` raises."""
        known = self._snapshot
        newer = yield from load(self._agent, self._run, 0 if known is None else known.last_seq)
        self._snapshot = newer if known is None else known.extend(newer)
        return self._snapshot

    def find(self, event_id: str) -> Event | None:
        """The event with this id, as of the last read."""
        place = self._ask(lambda index: index.places.get(event_id))
        return None if place is None or self._snapshot is None else self._snapshot.log[place]

    def latest_request(self) -> ModelRequest | None:
        """The latest model request, as of the last read."""
        return self._ask(lambda index: index.request)

    def parse(self, messages: Sequence[Mapping[str, JsonValue]], provider: str) -> list[Event]:
        """The events of ``messages``, which follow the conversation as of the last read.

        ``confirm`` them once they are appended to the run as it was at that read. Raises what ``transcript.parse``
        raises.
        """
        snapshot = self._snapshot
        if snapshot is None:
            raise AssertionError("a run is read before anything is parsed")
        # A parser that read what was then not appended has to begin again.
        conversation = self._conversations.pop(provider, None)
        if conversation is None or not conversation.goes_on_with(snapshot):
            conversation = _Conversation(snapshot, provider)
        events = conversation.parse(messages, snapshot)
        self._unconfirmed = (provider, conversation)
        return events

    def confirm(self) -> None:
        """What was parsed last is in the run, directly after what was read before."""
        if self._unconfirmed is not None:
            provider, conversation = self._unconfirmed
            self._conversations[provider] = conversation
            self._unconfirmed = None

    def _ask(self, question: Callable[[_Index], _Answer]) -> _Answer | None:
        return None if self._snapshot is None else self._snapshot.derive(_Index, question)


class _Conversation:
    """The run as a provider's messages, and the parser that has read them."""

    def __init__(self, snapshot: Snapshot, provider: str) -> None:
        self._known = snapshot
        self._messages: list[WireMessage] = []
        self._builder = find_provider(provider).builder(self._messages, None)
        self._parser = find_provider(provider).parser("")
        self._built = 0
        self._read = 0

    def goes_on_with(self, snapshot: Snapshot) -> bool:
        """Whether nothing of what was read has been erased since."""
        return (snapshot.first_seq, snapshot.redactions) == (self._known.first_seq, self._known.redactions)

    def parse(self, messages: Sequence[Mapping[str, JsonValue]], snapshot: Snapshot) -> list[Event]:
        self._known = snapshot
        self._builder.take(snapshot.log[self._built :])
        self._built = len(snapshot.log)
        # Messages are read when an answer is about to follow, as the last one grows until then.
        for message in self._messages[self._read :]:
            self._parser.add(message)
        events = [event for message in messages for event in self._parser.add(message)]
        self._read = len(self._messages) + len(messages)
        return events


class _Index:
    """What is asked of a log, by place in it; grows event by event."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.request: ModelRequest | None = None

    def add(self, place: int, event: Event) -> None:
        self.places[event.event_id] = place
        if isinstance(event.data, ModelRequest):
            self.request = event.data
