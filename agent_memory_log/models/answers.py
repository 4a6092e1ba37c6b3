"""Requests answers that match a contract, and reads them. A contract is a pydantic model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple, TypeVar, cast

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


class WrongItem(NamedTuple):
    """An item of a list that does not match its contract.

    Attributes:
        name: The name of the list.
        item: The item, as the model gave it.
        field: The name of its first wrong field, or ``""`` if the item is not an object.
    """

    name: str
    item: JsonValue
    field: str


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
        return contract.model_validate_json(json.dumps(_owned(_loaded(text))))
    except ValidationError as error:
        raise _does_not_match(error) from None  # pydantic's message contains the values, which must not be logged


def read_items(text: str, contract: type[_Contract]) -> tuple[_Contract, tuple[WrongItem, ...]]:
    """Return a model's answer without the items of its lists that do not match the contract, and these items.

    Raises the same errors as ``read_answer`` if anything but an item of a list is wrong.
    """
    loaded = _loaded(text)
    refused: list[WrongItem] = []
    if isinstance(loaded, dict):
        fields = cast("dict[str, object]", loaded)
        loaded = {
            name: list(_storable(name, cast("list[object]", value), refused)) if isinstance(value, list) else value
            for name, value in fields.items()
        }
    answer = _owned(loaded)
    try:
        return contract.model_validate_json(json.dumps(answer)), tuple(refused)
    except ValidationError as error:
        wrong: dict[tuple[str, int], str] = {}
        for problem in error.errors(include_url=False, include_input=False):
            match problem["loc"]:
                case str(name), int(index), *path:
                    wrong.setdefault((name, index), str(path[0]) if path else "")
                case _:
                    raise _does_not_match(error) from None  # as in read_answer
        lists = cast("dict[str, list[JsonValue]]", answer)
        refused += [WrongItem(name, lists[name][index], field) for (name, index), field in wrong.items()]
        for name, index in sorted(wrong, reverse=True):
            del lists[name][index]
        return contract.model_validate_json(json.dumps(lists)), tuple(refused)


def _storable(name: str, items: list[object], refused: list[WrongItem]) -> Iterator[JsonValue]:
    """Yield the items that a store accepts. Add the others to ``refused``."""
    for item in items:
        try:
            yield own_json(item)
        except NotJson as error:
            refused.append(WrongItem(name, None, error.path.strip(".")))


def _loaded(text: str) -> object:
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ModelInvalidJson(f"the model's answer is not JSON: {type(error).__name__}") from error


def _owned(answer: object) -> JsonValue:
    """Return the answer if a store accepts it. NaN, infinities and lone surrogates are refused."""
    try:
        return own_json(answer)
    except NotJson as error:
        raise ModelInvalidSchema(f"the model's answer{error.path} {error}") from error


def _does_not_match(error: ValidationError) -> ModelInvalidSchema:
    problems = "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'the answer'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    )
    return ModelInvalidSchema(f"the model's answer does not match its contract: {problems}")
