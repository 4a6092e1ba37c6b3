"""The port: one question to a model, and its answer. An adapter for another provider is a class with ``complete``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue


class ModelMessage(msgspec.Struct, frozen=True):
    """A message to the model."""

    role: Literal["system", "user", "assistant"]
    content: str


class Completion(msgspec.Struct, frozen=True):
    """What came back: the ``text``, never blank, and what it cost (``usage``: counts by the provider's names)."""

    text: str
    usage: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])


class ModelPort(Protocol):
    """A model that answers with one JSON object. Synchronous; an asynchronous caller runs it in a thread."""

    def complete(
        self,
        messages: Sequence[ModelMessage],
        *,
        schema: Mapping[str, JsonValue],
        max_tokens: int,
        timeout: float,
        model: str = "",
    ) -> Completion:
        """Ask once.

        - ``schema``: the JSON schema of the answer. The model is told of it; the caller checks the answer.
        - ``max_tokens``: how long the answer may be.
        - ``timeout``: seconds that the call may take, with all retries; an adapter may have less patience.
        - ``model``: which model, by the name or alias the adapter knows it by (``""``: its own choice).

        Raises ``ModelTimeout``, ``ModelUnavailable``, ``ModelEmpty``; and ``ModelInvalidJson`` or
        ``ModelInvalidSchema`` where what the server sent is not an answer at all.
        """
        ...
