"""An extractor that asks a model two questions about a conversation: lasting things about the user, and events.

Each answer must match its contract. The model receives only messages of the user and the assistant. Recalled memory
is left out because it would become evidence for itself. Tool results are left out because they can contain
instructions from a third party. The model cannot cite an event that it did not receive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from agent_memory_log.errors import ModelFailed, ModelInvalidSchema
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.payloads import AssistantMessage, UserMessage
from agent_memory_log.memory.extraction.contracts import CitedFact, CitedPreference, Episodes, Profile
from agent_memory_log.memory.extraction.messages import has_too_few_messages
from agent_memory_log.memory.policy.settings import MemorySettings
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Episode, Fact, Preference, RecordData
from agent_memory_log.memory.records.protocols import Extraction, RunSlice
from agent_memory_log.memory.records.record import DEFAULT_CONFIDENCE, DEFAULT_IMPORTANCE, Evidence, Source
from agent_memory_log.models.answers import Contract, ask, read_answer
from agent_memory_log.models.port import ModelMessage, ModelPort
from agent_memory_log.models.prompts import read_prompt

_NAME = "model"
_RELIABILITY = 0.8
_PACKAGE = "agent_memory_log.memory.extraction"
_Contract = TypeVar("_Contract", bound=Contract)


class ModelExtractor:
    """Extracts preferences, facts and episodes with a model.

    By default it sends the last 20 new messages of user and assistant, each cut to 500 characters. A run with fewer
    than four messages is read later. A preference or a fact must cite a message of the user. If the model fails,
    breaks its contract or cites a message that it did not receive, the extraction stops: nothing is written, the
    report gives the reason, and the next call reads the same events again.

    Its evidence names whole events, not numbered statements. A model does not number statements the same way twice,
    so a forgotten statement could return under another number.
    """

    def __init__(self, model: ModelPort, settings: MemorySettings | None = None) -> None:
        """Create an extractor. The default settings are ``MemorySettings()``."""
        self._model = model
        self._settings = settings or MemorySettings()

    @property
    def name(self) -> str:
        """The name ``model``."""
        return _NAME

    def extract(self, new: RunSlice, /) -> Extraction:
        """Return the model's candidates for ``new``.

        It calls the model twice. It does not call the model if there are too few messages or no user message.
        """
        limits = self._settings.extraction
        if has_too_few_messages(new, limits.min_messages):
            return Extraction(position=new.after)
        messages = {event.seq: event for event in new.events if _text(event)}
        messages = dict(list(messages.items())[-limits.last_messages :])
        if not any(isinstance(event.data, UserMessage) for event in messages.values()):
            return Extraction()
        conversation = _Conversation(self._model, self._settings, new, messages)
        try:
            candidates = [
                *self._profile(conversation),
                *self._episodes(conversation),
            ]
        except ModelFailed as error:
            return Extraction(stop_reason=error.code, model_calls=conversation.calls, usage=dict(conversation.usage))
        return Extraction(tuple(candidates), model_calls=conversation.calls, usage=dict(conversation.usage))

    def _profile(self, conversation: _Conversation) -> list[Candidate]:
        profile = conversation.ask("profile", Profile)
        most = self._settings.budgets.max_value_chars
        candidates: list[Candidate] = []
        items: tuple[CitedFact | CitedPreference, ...] = (*profile.facts, *profile.preferences)
        for index, item in enumerate(items):
            if len(item.value.strip()) > most:
                raise ModelInvalidSchema(f"profile item {index} has a value of more than {most} characters")
            if isinstance(item, CitedPreference):
                data: RecordData = Preference(item.key.strip(), item.value.strip())
                scope, ttl_days = item.scope or "", item.ttl_days
            else:
                data, scope, ttl_days = Fact(item.key.strip(), item.value.strip()), "", None
            cited = conversation.cited(item.messages, by_user=True)
            confidence = DEFAULT_CONFIDENCE if item.confidence is None else item.confidence
            candidates.append(
                conversation.candidate(data, cited, scope=scope.strip(), ttl_days=ttl_days, confidence=confidence)
            )
        return candidates

    def _episodes(self, conversation: _Conversation) -> list[Candidate]:
        candidates: list[Candidate] = []
        for item in conversation.ask("episodes", Episodes).episodes:
            cited = conversation.cited(item.messages, by_user=False)
            data = Episode(item.category, cited[0].timestamp)
            importance = (item.stars - 1) / 4
            candidates.append(conversation.candidate(data, cited, text=item.text.strip(), importance=importance))
        return candidates


class _Conversation:
    """The part of a run that is sent to the model. Asks the questions and turns the answers into candidates."""

    def __init__(
        self, model: ModelPort, settings: MemorySettings, new: RunSlice, messages: Mapping[int, Event]
    ) -> None:
        self.calls = 0
        self.usage: dict[str, int] = {}
        self._model = model
        self._settings = settings.model
        self._new = new
        self._messages = messages
        self._text = _conversation_text(list(messages.values()), settings.extraction.message_chars)

    def ask(self, prompt: str, contract: type[_Contract]) -> _Contract:
        """Ask the model the question of one prompt. Raises ``ModelFailed``."""
        self.calls += 1
        scopes = ", ".join(self._new.scopes)
        instructions = f"{read_prompt(_PACKAGE, prompt)}\n\nIf an item has a scope, it is one of: {scopes}."
        messages = [ModelMessage("system", instructions), ModelMessage("user", self._text)]
        completion = ask(self._model, messages, contract, self._settings)
        for name, count in completion.usage.items():
            self.usage[name] = self.usage.get(name, 0) + count
        return read_answer(completion.text, contract)

    def cited(self, numbers: Sequence[int], *, by_user: bool) -> tuple[Event, ...]:
        """Return the cited messages. ``by_user`` requires a user message and puts the user messages first."""
        for number in numbers:
            if number not in self._messages:
                raise ModelInvalidSchema(f"the model cites message {number}, which was not sent to it")
        events = [self._messages[number] for number in dict.fromkeys(numbers)]
        if by_user:
            events.sort(key=lambda event: not isinstance(event.data, UserMessage))
            if not isinstance(events[0].data, UserMessage):
                raise ModelInvalidSchema(f"the model cites message {events[0].seq}, which the user did not write")
        return tuple(events)

    def candidate(
        self,
        data: RecordData,
        cited: Sequence[Event],
        *,
        text: str = "",
        scope: str = "",
        ttl_days: float | None = None,
        confidence: float = DEFAULT_CONFIDENCE,
        importance: float = DEFAULT_IMPORTANCE,
    ) -> Candidate:
        agent, run = self._new.agent, self._new.run
        return Candidate(
            data,
            scope=scope,
            text=text,
            confidence=confidence,
            importance=importance,
            ttl_days=ttl_days,
            valid_from=cited[0].timestamp,
            source=Source("run", f"{agent}/{run}", _RELIABILITY),
            evidence=tuple(Evidence(agent, run, event.seq, event_id=event.event_id) for event in cited),
        )


class _Line(msgspec.Struct):
    n: int
    role: str
    text: str


def _conversation_text(events: Sequence[Event], most: int) -> str:
    """Return the conversation with one JSON object per line, so that no text can imitate another message or number."""
    lines = [
        _Line(event.seq, "user" if isinstance(event.data, UserMessage) else "assistant", _text(event)[:most])
        for event in events
    ]
    return "\n".join(encode_json(line).decode() for line in lines)


def _text(event: Event) -> str:
    """Return the text of a user or assistant message, or ``""`` for any other event."""
    return event.data.message.strip() if isinstance(event.data, (UserMessage, AssistantMessage)) else ""
