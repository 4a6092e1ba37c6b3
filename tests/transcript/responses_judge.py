"""Checks Responses input items against the typed params of the official package, with pydantic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, cast

from openai.types.responses import ResponseInputParam
from pydantic import TypeAdapter


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(cast("Any", ResponseInputParam))


def judge_input(items: Sequence[object]) -> None:
    """Raise pydantic's ``ValidationError`` if the items do not fit the typed params."""
    _consume(_adapter().validate_python(list(items)))


def _consume(value: object) -> None:
    """Iterate over the whole value, since pydantic checks an ``Iterable`` only during iteration."""
    if isinstance(value, Mapping):
        for inner in cast("Mapping[str, object]", value).values():
            _consume(inner)
    elif isinstance(value, (list, tuple, Iterator)) or (hasattr(value, "__next__")):
        for inner in cast("Sequence[object]", value):
            _consume(inner)
