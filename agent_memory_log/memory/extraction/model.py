"""An extractor that asks a model two questions about a conversation: lasting things about the user, and events.

Each answer must match its contract. The model receives only messages of the user and the assistant. Recalled memory
is left out because it would become evidence for itself. Tool results are left out because they can contain
instructions from a third party. The model cannot cite an event that it did not receive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from agent_memory_log.errors import ModelFailed
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.payloads import AssistantMessage, UserMessage
from agent_memory_log.memory.extraction.contracts import CitedFact, CitedPreference, Episodes, Profile
from agent_memory_log.memory.extraction.messages import has_too_few_messages
from agent_memory_log.memory.policy.settings import MemorySettings
from agent_memory_log.memory.records.candidates import MAX_TTL_DAYS, Candidate, within
from agent_memory_log.memory.records.kinds import Episode, Fact, Preference, RecordData
from agent_memory_log.memory.records.protocols import Extraction, RunSlice
from agent_memory_log.memory.records.record import DEFAULT_CONFIDENCE, DEFAULT_IMPORTANCE, Evidence, Source
from agent_memory_log.memory.records.reports.outcomes import Outcome
from agent_memory_log.models.answers import Contract, ask, read_items
from agent_memory_log.models.port import ModelMessage, ModelPort
from agent_memory_log.models.prompts import read_prompt

_NAME = "model"
_RELIABILITY = 0.8
_PACKAGE = "agent_memory_log.memory.extraction"
_INVALID_ITEM = "invalid_item"
_KINDS = {"facts": Fact.kind, "preferences": Preference.kind, "episodes": Episode.kind}
"""The kind of the items of each list of the contracts."""

_Contract = TypeVar("_Contract", bound=Contract)


class ModelExtractor:
    """Extracts preferences, facts and episodes with a model.

    By default it sends the last 20 new messages of user and assistant, each cut to 500 characters. A run with fewer
    than four messages is read later. A preference or a fact must cite a message of the user.

    The model's items are accepted one by one. An item that breaks the contract, has a long value, or cites a message
    that the model did not receive is reported as ``blocked`` with the reason ``invalid_item:…``. If the model fails, or
    if its answer is not JSON with the expected lists, nothing is written, the report gives the reason, and the next
    call reads the same events again.

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
            return Extraction(
                stop_reason=error.code,
                error=str(error),
                model_calls=conversation.calls,
                usage=dict(conversation.usage),
            )
        return Extraction(
            tuple(candidates),
            refused=tuple(conversation.refused),
            model_calls=conversation.calls,
            usage=dict(conversation.usage),
        )

    def _profile(self, conversation: _Conversation) -> list[Candidate]:
        profile = conversation.ask("profile", Profile)
        most = self._settings.budgets.max_value_chars
        candidates: list[Candidate] = []
        items: tuple[CitedFact | CitedPreference, ...] = (*profile.facts, *profile.preferences)
        for item in items:
            if isinstance(item, CitedPreference):
                data: RecordData = Preference(item.key.strip(), item.value.strip())
                scope = item.scope or ""
                ttl_days = None if item.ttl_days is None else within(item.ttl_days, "ttl_days", 1, MAX_TTL_DAYS)
            else:
                data, scope, ttl_days = Fact(item.key.strip(), item.value.strip()), "", None
            if len(data.record_value) > most:
                conversation.refuse(data.kind, data.record_key, "value_too_long")
                continue
            cited = conversation.cited(data, item.messages, by_user=True)
            if not cited:
                continue
            confidence = DEFAULT_CONFIDENCE if item.confidence is None else item.confidence
            candidates.append(
                conversation.candidate(data, cited, scope=scope.strip(), ttl_days=ttl_days, confidence=confidence)
            )
        return candidates

    def _episodes(self, conversation: _Conversation) -> list[Candidate]:
        candidates: list[Candidate] = []
        for item in conversation.ask("episodes", Episodes).episodes:
            data = Episode(item.category)
            cited = conversation.cited(data, item.messages, by_user=False)
            if not cited:
                continue
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
        self.refused: list[Outcome] = []
        self._model = model
        self._settings = settings.model
        self._new = new
        self._messages = messages
        self._text = _conversation_text(list(messages.values()), settings.extraction.message_chars)

    def ask(self, prompt: str, contract: type[_Contract]) -> _Contract:
        """Ask the model the question of one prompt. Refuses the items that break the contract.

        Raises ``ModelFailed`` if there is no answer, or if the rest of the answer breaks the contract.
        """
        self.calls += 1
        limits = [f"If an item has a scope, it is one of: {', '.join(self._new.scopes)}."]
        if self._new.keys is not None:
            limits.append(f"If an item has a key, it is one of: {', '.join(self._new.keys)}. Leave out all others.")
        instructions = "\n".join((read_prompt(_PACKAGE, prompt), *limits))
        messages = [ModelMessage("system", instructions), ModelMessage("user", self._text)]
        completion = ask(self._model, messages, contract, self._settings)
        for name, count in completion.usage.items():
            self.usage[name] = self.usage.get(name, 0) + count
        answer, wrong_items = read_items(completion.text, contract)
        for wrong in wrong_items:
            key = wrong.item.get("key") if isinstance(wrong.item, dict) else None
            self.refuse(_KINDS[wrong.name], key if isinstance(key, str) else "", wrong.field or "not_object")
        return answer

    def refuse(self, kind: str, key: str, problem: str) -> None:
        """Report an item that is not learnt."""
        self.refused.append(Outcome("blocked", "", kind, key, reason=f"{_INVALID_ITEM}:{problem}"))

    def cited(self, data: RecordData, numbers: Sequence[int], *, by_user: bool) -> tuple[Event, ...]:
        """Return the cited messages, or refuse the item and return nothing.

        ``by_user`` requires a message of the user, and puts the user's messages first.
        """
        if not all(number in self._messages for number in numbers):
            self.refuse(data.kind, data.record_key, "message_not_sent")
            return ()
        events = [self._messages[number] for number in dict.fromkeys(numbers)]
        if by_user:
            events.sort(key=lambda event: not isinstance(event.data, UserMessage))
            if not isinstance(events[0].data, UserMessage):
                self.refuse(data.kind, data.record_key, "not_said_by_user")
                return ()
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
