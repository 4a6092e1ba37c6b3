"""A model with prepared answers, for tests and for the demo, which needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agent_memory_log.errors import ModelEmpty, ModelFailed, ModelUnavailable
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.models.port import Completion, ModelMessage


class Question(msgspec.Struct, frozen=True):
    """A question to a scripted model. The fields are the arguments of ``ModelPort.complete``."""

    messages: tuple[ModelMessage, ...]
    schema: Mapping[str, JsonValue]
    max_tokens: int
    timeout: float
    model: str


class ScriptedModel:
    """A model that gives each of ``answers`` in turn.

    An answer is a text, a map that is encoded as JSON, or an error that is raised. A question after the last answer
    raises ``ModelUnavailable``. The attribute ``asked`` is the list of all questions, the oldest first.
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
        """Give the next answer; see ``ModelPort.complete``. A blank text raises ``ModelEmpty``, as in an adapter."""
        self.asked.append(Question(tuple(messages), schema, max_tokens, timeout, model))
        answer = next(self._answers, None)
        if answer is None:
            raise ModelUnavailable(f"the script has no answer to question {len(self.asked)}; add an answer")
        if isinstance(answer, ModelFailed):
            raise answer
        text = answer if isinstance(answer, str) else encode_json(dict(answer)).decode()
        if not text.strip():
            raise ModelEmpty("the script's answer is empty")
        return Completion(text)
