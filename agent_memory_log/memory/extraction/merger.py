"""The merger with a model: one question about two values of one key, its answer held to a contract."""

from __future__ import annotations

from typing import Annotated

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from agent_memory_log.errors import ModelInvalidSchema
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.record import Record
from agent_memory_log.memory.settings import MemorySettings
from agent_memory_log.models.answers import read_answer, schema_of
from agent_memory_log.models.port import Message, ModelPort
from agent_memory_log.models.prompts import read_prompt

_PACKAGE = "agent_memory_log.memory.extraction"


class MergedValue(BaseModel):
    """Which value holds, of two that one key has had."""

    model_config = ConfigDict(frozen=True, strict=True)

    value: Annotated[str, Field(min_length=1, pattern=r"\S")] | None = Field(
        description="The value that holds now, in a few words; null where that cannot be said."
    )


class ModelMerger:
    """Asks a model which value holds where a key has had two: both in one, the new one, or it cannot say.

    Only the kind, the key, both values and their words are sent.
    """

    def __init__(self, model: ModelPort, settings: MemorySettings | None = None) -> None:
        """``settings``: the defaults unless given."""
        self._model = model
        self._settings = settings or MemorySettings()

    def merge(self, known: Record, candidate: Candidate, /) -> str | None:
        """The value that holds now; None: undecidable. Raises ``ModelFailed``."""
        settings = self._settings.model
        asked = _Asked(known.kind, known.key, _Words(known.value, known.text), _Words(candidate.value, candidate.words))
        completion = self._model.complete(
            [Message("system", read_prompt(_PACKAGE, "merge")), Message("user", encode_json(asked).decode())],
            schema=schema_of(MergedValue),
            max_tokens=settings.max_tokens,
            timeout=settings.timeout_seconds,
            model=settings.name,
        )
        value = read_answer(completion.text, MergedValue).value
        most = self._settings.budgets.max_value_chars
        if value is not None and len(value.strip()) > most:
            raise ModelInvalidSchema(f"the merged value has over {most} characters")
        return value


class _Words(msgspec.Struct, frozen=True):
    value: str
    words: str


class _Asked(msgspec.Struct, frozen=True):
    kind: str
    key: str
    known: _Words
    new: _Words
