"""A recorder's view of its run. It loads the run once, at first use, and later only the new events.

A provider's answer must be stored so that ``build`` returns it exactly. The stored form depends on the conversation
before the answer: the answer may join the message before it, and its call ids may have been used before. The recorder
therefore keeps one open parser for each provider and feeds it the conversation.
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
    """The loaded events of a run, with indexes and parsers."""

    def __init__(self, agent: str, run: str) -> None:
        self._agent = agent
        self._run = run
        self._snapshot: Snapshot | None = None
        self._conversations: dict[str, _Conversation] = {}
        self._unconfirmed: tuple[str, _Conversation] | None = None

    def refresh(self) -> Steps[Snapshot]:
        """Load the new events and return the whole snapshot. Raises the same errors as ``Store.load_run``."""
        current = self._snapshot
        newer = yield from load(self._agent, self._run, 0 if current is None else current.last_seq)
        self._snapshot = newer if current is None else current.extend(newer)
        return self._snapshot

    def find(self, event_id: str) -> Event | None:
        """Return the loaded event with this id, or None."""
        position = self._query(lambda index: index.positions.get(event_id))
        return None if position is None or self._snapshot is None else self._snapshot.log[position]

    def latest_request(self) -> ModelRequest | None:
        """Return the latest loaded model request, or None."""
        return self._query(lambda index: index.request)

    def parse(self, messages: Sequence[Mapping[str, JsonValue]], provider: str) -> list[Event]:
        """Return the events for ``messages``, which follow the loaded conversation.

        Call ``confirm`` after these events are appended directly after the loaded ones. Raises the same errors as
        ``transcript.parse``.
        """
        snapshot = self._snapshot
        if snapshot is None:
            raise AssertionError("call refresh before parse")
        # The parser is removed until confirm: if the append fails, the parser has read messages that the run lacks.
        conversation = self._conversations.pop(provider, None)
        if conversation is None or not conversation.can_continue(snapshot):
            conversation = _Conversation(snapshot, provider)
        events = conversation.parse(messages, snapshot)
        self._unconfirmed = (provider, conversation)
        return events

    def confirm(self) -> None:
        """Keep the parser of the last ``parse``: its events were appended directly after the loaded ones."""
        if self._unconfirmed is not None:
            provider, conversation = self._unconfirmed
            self._conversations[provider] = conversation
            self._unconfirmed = None

    def _query(self, query: Callable[[_Index], _Answer]) -> _Answer | None:
        return None if self._snapshot is None else self._snapshot.derive(_Index, query)


class _Conversation:
    """A run as messages of one provider, and the parser that has read these messages."""

    def __init__(self, snapshot: Snapshot, provider: str) -> None:
        self._last = snapshot
        self._messages: list[WireMessage] = []
        self._builder = find_provider(provider).builder(self._messages, None)
        self._parser = find_provider(provider).parser("recorder")  # the ids of its events are not used
        self._built = 0
        self._read = 0

    def can_continue(self, snapshot: Snapshot) -> bool:
        """Return whether the events that the parser has read are still unchanged in ``snapshot``."""
        return (snapshot.first_seq, snapshot.redactions) == (self._last.first_seq, self._last.redactions)

    def parse(self, messages: Sequence[Mapping[str, JsonValue]], snapshot: Snapshot) -> list[Event]:
        self._last = snapshot
        self._builder.take(snapshot.log[self._built :])
        self._built = len(snapshot.log)
        # The last message can grow until an answer follows, so the messages are parsed only now.
        for message in self._messages[self._read :]:
            self._parser.add(message)
        events = [event for message in messages for event in self._parser.add(message)]
        self._read = len(self._messages) + len(messages)
        return events


class _Index:
    """The position of each event id in the log, and the latest model request. It grows event by event."""

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.request: ModelRequest | None = None

    def add(self, position: int, event: Event) -> None:
        self.positions[event.event_id] = position
        if isinstance(event.data, ModelRequest):
            self.request = event.data
