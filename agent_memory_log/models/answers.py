"""Contracts: the pydantic models that a language model's answers must fit; how one is asked for, and read."""

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
"""Text that says something."""


class Contract(BaseModel):
    """What an answer must look like: nothing is converted to fit, and unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)


def ask(
    model: ModelPort, messages: Sequence[ModelMessage], contract: type[BaseModel], settings: ModelSettings
) -> Completion:
    """Ask for an answer that fits ``contract``; ``read_answer`` reads it. Raises what ``ModelPort.complete`` raises."""
    return model.complete(
        messages,
        schema=schema_of(contract),
        max_tokens=settings.max_tokens,
        timeout=settings.timeout_seconds,
        model=settings.name,
    )


def schema_of(contract: type[BaseModel]) -> Mapping[str, JsonValue]:
    """The JSON schema of a contract."""
    return cast("Mapping[str, JsonValue]", contract.model_json_schema())


def read_answer(text: str, contract: type[_Contract]) -> _Contract:
    """The answer as its contract has it.

    Raises ``ModelInvalidJson``; ``ModelInvalidSchema`` with the places that are not as they must be, never the values.
    """
    try:
        # NaN and infinities are Python's own reading of JSON, and lone surrogates are text that no store takes.
        decoded = own_json(cast("object", json.loads(text)))
    except NotJson as error:
        raise ModelInvalidSchema(f"the model's answer{error.path} {error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelInvalidJson(f"the model's answer is not JSON: {type(error).__name__}") from error
    try:
        return contract.model_validate_json(json.dumps(decoded))
    except ValidationError as error:
        places = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'all of it'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        # The cause is not chained: it shows the values, and they may be what somebody would not see logged.
        raise ModelInvalidSchema(f"the model's answer is not of the shape that was asked for: {places}") from None
