"""A merger that asks a model: for one value out of two, or for a summary. A contract validates each answer."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from agent_memory_log.errors import ModelInvalidSchema
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory.policy.settings import MemorySettings
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.record import Record
from agent_memory_log.models.answers import Contract, Text, ask, read_answer
from agent_memory_log.models.port import ModelMessage, ModelPort
from agent_memory_log.models.prompts import read_prompt

_PACKAGE = "agent_memory_log.memory.extraction"


class MergedValue(Contract):
    """The model's answer: the value that holds now."""

    value: Text | None = Field(description="The value that holds now, in a few words; null if that is not clear.")


class SummaryText(Contract):
    """The model's answer: the summary."""

    summary: Text | None = Field(
        description="All events, in a few sentences; null if the texts do not belong together."
    )


class ModelMerger:
    """Asks a model to merge two values of one key, or to summarize episodes.

    The model answers with one of the values, with a value that says both, or with null if it cannot decide. It receives
    only the kind, the key, and both values with their texts.
    """

    def __init__(self, model: ModelPort, settings: MemorySettings | None = None) -> None:
        """Create a merger. The default settings are ``MemorySettings()``."""
        self._model = model
        self._settings = settings or MemorySettings()

    def merge(self, old: Record, candidate: Candidate, /) -> str | None:
        """Return the value that holds now, or None if the model cannot decide. Raises ``ModelFailed``."""
        question = encode_json(
            {
                "kind": old.kind,
                "key": old.key,
                "known": {"value": old.value, "words": old.text},
                "new": {"value": candidate.value, "words": candidate.words},
            }
        )
        messages = [
            ModelMessage("system", read_prompt(_PACKAGE, "merge")),
            ModelMessage("user", question.decode()),
        ]
        completion = ask(self._model, messages, MergedValue, self._settings.model)
        value = read_answer(completion.text, MergedValue).value
        most = self._settings.budgets.max_value_chars
        if value is not None and len(value.strip()) > most:
            raise ModelInvalidSchema(f"the merged value has more than {most} characters")
        return value

    def summarize(self, texts: Sequence[str], /) -> str | None:
        """Return a summary, or None if the texts do not belong together. Raises ``ModelFailed``."""
        messages = [
            ModelMessage("system", read_prompt(_PACKAGE, "summary")),
            ModelMessage("user", encode_json({"texts": list(texts)}).decode()),
        ]
        completion = ask(self._model, messages, SummaryText, self._settings.model)
        return read_answer(completion.text, SummaryText).summary
