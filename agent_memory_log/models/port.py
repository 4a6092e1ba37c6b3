"""The model interface: one question and its answer. An adapter for a provider is a class with ``complete``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue


class ModelMessage(msgspec.Struct, frozen=True):
    """A message to the model, with the author's role and the text."""

    role: Literal["system", "user", "assistant"]
    content: str


class Completion(msgspec.Struct, frozen=True):
    """A model's answer. ``text`` is never blank; ``usage`` has the token counts by the provider's names."""

    text: str
    usage: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])


class ModelPort(Protocol):
    """A model that answers with one JSON object. It is synchronous; asynchronous callers use it in a thread."""

    def complete(
        self,
        messages: Sequence[ModelMessage],
        *,
        schema: Mapping[str, JsonValue],
        max_tokens: int,
        timeout: float,
        model: str = "",
    ) -> Completion:
        """Ask the model one question and return its answer.

        Args:
            messages: The messages of the question.
            schema: The JSON schema of the answer. The adapter sends it to the model; the caller checks the answer.
            max_tokens: The maximum length of the answer in tokens.
            timeout: The maximum duration of the call in seconds, including retries. An adapter may use a lower limit.
            model: The name or alias of the model. With ``""``, the adapter chooses the model.

        Raises:
            ModelTimeout: The time is over, or the connection failed.
            ModelUnavailable: The model cannot be used.
            ModelEmpty: The answer is blank.
            ModelInvalidJson: The server's response is not JSON.
            ModelInvalidSchema: The server's response is not a model's answer.
        """
        ...
