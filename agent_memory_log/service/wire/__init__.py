"""Converts operations and their results to and from JSON values, and describes them as JSON schemas."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar, cast, get_args

from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.wire import own_forms as own_forms  # registers forms
from agent_memory_log.service.wire.forms import COMPONENTS, form_of
from agent_memory_log.service.wire.scalars import Form, Schema

_Result = TypeVar("_Result")
_Operation = TypeVar("_Operation", bound=Operation[Any])


def encode_operation(operation: Operation[Any]) -> dict[str, Any]:
    """Return the JSON object of an operation. Raises ``InvalidArgument`` if it has a value that cannot travel."""
    return cast("dict[str, Any]", form_of(type(operation)).encode(operation))


def decode_operation(cls: type[_Operation], value: object) -> _Operation:
    """Return the operation of a JSON object.

    Raises:
        InvalidArgument: A value has another form. The message names its path.
        DecodeError: An event cannot be decoded.
    """
    return cast("_Operation", form_of(cls).decode(value, ""))


def encode_result(operation: type[Operation[_Result]], result: _Result) -> object:
    """Return the JSON value of a result, or of one item of a stream."""
    return result_form(operation).encode(result)


def decode_result(operation: type[Operation[_Result]], value: object) -> _Result:
    """Return the result of a JSON value. Raises ``InvalidArgument`` if it has another form."""
    return cast("_Result", result_form(operation).decode(value, "result"))


@cache
def result_form(operation: type[Operation[Any]]) -> Form:
    """Return the form of an operation's result, or of one item of its stream."""
    (base,) = cast("tuple[object, ...]", operation.__orig_bases__)  # type: ignore[attr-defined]  # generic classes have it
    (result,) = get_args(base)
    return form_of(result)


def schemas_of(operations: Iterable[type[Operation[Any]]]) -> dict[str, Schema]:
    """Return the schema of each operation, and of each struct that it or its result refers to, by name."""
    for operation in operations:
        form_of(operation)
        result_form(operation)
    return dict(sorted(COMPONENTS.items()))
