"""Requests answers that match a contract, and reads them. A contract is a pydantic model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_memory_log.errors import ModelInvalidJson, ModelInvalidSchema
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_json
from agent_memory_log.models.port import Completion, ModelMessage, ModelPort
from agent_memory_log.models.settings import ModelSettings

_Contract = TypeVar("_Contract", bound=BaseModel)


Text = Annotated[str, Field(min_length=1, pattern=r"\S")]
"""Text that is not blank."""


class Contract(BaseModel):
    """The base class of contracts. Values are not converted to other types, and unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)


def ask(
    model: ModelPort, messages: Sequence[ModelMessage], contract: type[BaseModel], settings: ModelSettings
) -> Completion:
    """Ask a model for an answer that matches ``contract``. Raises the same errors as ``ModelPort.complete``.

    Use ``read_answer`` to read the answer.
    """
    return model.complete(
        messages,
        schema=schema_of(contract),
        max_tokens=settings.max_tokens,
        timeout=settings.timeout_seconds,
        model=settings.name,
    )


def schema_of(contract: type[BaseModel]) -> Mapping[str, JsonValue]:
    """Return the JSON schema of a contract."""
    return cast("Mapping[str, JsonValue]", contract.model_json_schema())


def read_answer(text: str, contract: type[_Contract]) -> _Contract:
    """Return a model's answer as an instance of its contract.

    Raises ``ModelInvalidJson`` if the text is not JSON. Raises ``ModelInvalidSchema`` if the JSON does not match the
    contract. The message has the paths of the wrong values, and never the values themselves.
    """
    try:
        # own_json rejects NaN and infinities, which json.loads accepts, and lone surrogates, which no store accepts.
        decoded = own_json(cast("object", json.loads(text)))
    except NotJson as error:
        raise ModelInvalidSchema(f"the model's answer{error.path} {error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelInvalidJson(f"the model's answer is not JSON: {type(error).__name__}") from error
    try:
        return contract.model_validate_json(json.dumps(decoded))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'the answer'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        # No chained cause: pydantic's message contains the values, which may be private and must not be logged.
        raise ModelInvalidSchema(f"the model's answer does not match its contract: {problems}") from None
