"""Draws JSON values of the types that an SDK declares, so that tests meet each shape that the SDK knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel

from tests.strategies import json_values

_TEXTS = st.sampled_from(["", " ", "a", "call_1", "call_2", "{}", '{"a": 1.0}', "é\x00\u2028\U0001f600", "YWJj"])
_PLAIN: dict[object, st.SearchStrategy[Any]] = {
    str: _TEXTS,
    bool: st.booleans(),
    int: st.sampled_from([0, -1, 7, 2**53 + 1]),
    float: st.sampled_from([0.0, 0.5, 1e300]),
    bytes: st.sampled_from(["", "YWJj", "+/+/"]),
    datetime: st.just("2026-01-01T00:00:00Z"),
    type(None): st.none(),
    dict: st.just({"a": [None]}),
    list: st.just([]),
}


@cache
def shapes_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the JSON values of an SDK's type: a pydantic model, or a type in one."""
    return st.deferred(lambda: _shapes_of(hint))


def _shapes_of(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is not None:
        return _GENERIC[origin](arguments)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from([member.value for member in hint])
    return _fields_of(hint) if isinstance(hint, type) and issubclass(hint, BaseModel) else json_values()


def _fields_of(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    strategies: dict[str, st.SearchStrategy[Any]] = {
        name: shapes_of(cast("Any", field.annotation)) for name, field in fields.items()
    }
    required = {name: strategies[name] for name, field in fields.items() if field.is_required()}
    optional = {name: strategy for name, strategy in strategies.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional)


def _lists(arguments: Sequence[Any]) -> st.SearchStrategy[Any]:
    return st.lists(shapes_of(arguments[0]), max_size=2)


def _maps(arguments: Sequence[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(_TEXTS, shapes_of(arguments[1]), max_size=2)


def _alternatives(arguments: Sequence[Any]) -> st.SearchStrategy[Any]:
    return st.one_of([shapes_of(argument) for argument in arguments])


_GENERIC: dict[object, Callable[[Sequence[Any]], st.SearchStrategy[Any]]] = {
    Annotated: lambda arguments: shapes_of(arguments[0]),
    Literal: st.sampled_from,
    Union: _alternatives,
    UnionType: _alternatives,
    dict: _maps,
    list: _lists,
}
"""The strategy for each generic type, from its arguments."""
