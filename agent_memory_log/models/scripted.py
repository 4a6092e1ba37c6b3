"""A model that says what it was told to say: for tests, and for the demo, which needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agent_memory_log.errors import ModelEmpty, ModelFailed, ModelUnavailable
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.models.port import Completion, ModelMessage


class Question(msgspec.Struct, frozen=True):
    """A question that a scripted model was asked; the fields are those of ``ModelPort.complete``."""

    messages: tuple[ModelMessage, ...]
    schema: Mapping[str, JsonValue]
    max_tokens: int
    timeout: float
    model: str


class ScriptedModel:
    """Answers with each of ``answers`` in turn: a text, a map that is written as JSON, or an error to raise.

    ``asked`` has the questions, the oldest first. A question too many raises ``ModelUnavailable``.
    """

    def __init__(self, answers: Iterable[str | Mapping[str, JsonValue] | ModelFailed] = ()) -> None:
        self.asked: list[Question] = []
        self._answers = iter(answers)

    def complete(
        self,
        messages: Sequence[ModelMessage],
        *,
        schema: Mapping[str, JsonValue],
        max_tokens: int,
        timeout: float,
        model: str = "",
    ) -> Completion:
        """See ``ModelPort.complete``; a blank text raises ``ModelEmpty``, as an adapter would."""
        self.asked.append(Question(tuple(messages), schema, max_tokens, timeout, model))
        answer = next(self._answers, None)
        if answer is None:
            raise ModelUnavailable(f"the script has {len(self.asked) - 1} answers, and this was one question more")
        if isinstance(answer, ModelFailed):
            raise answer
        text = answer if isinstance(answer, str) else encode_json(dict(answer)).decode()
        if not text.strip():
            raise ModelEmpty("the script's answer is empty")
        return Completion(text)
