"""Checks Gemini contents offline against the types of Google's own package."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any


@cache
def _types() -> Any:
    return import_module("google.genai.types")


def judge_messages(messages: Sequence[object]) -> None:
    """Raise ``pydantic.ValidationError`` if the package refuses the contents."""
    for message in messages:
        _types().Content.model_validate_json(json.dumps(message))


def response_of(answer: Any) -> Any:
    """Return an answer as the object that the package gives."""
    return _types().GenerateContentResponse.model_validate_json(json.dumps(answer))


def judge_config(config: Any) -> None:
    """Raise ``pydantic.ValidationError`` if the package refuses the other arguments of a call."""
    _types().GenerateContentConfig.model_validate_json(json.dumps(config))
