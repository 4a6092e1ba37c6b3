"""Checks Converse messages offline against botocore's model of the call, with botocore's own validator."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, cast

from agent_memory_log.transcript.json_types import list_in, map_in


@cache
def _input_shape() -> Any:
    loader = import_module("botocore.loaders").Loader()
    model = import_module("botocore.model").ServiceModel(loader.load_service_model("bedrock-runtime", "service-2"))
    return model.operation_model("Converse").input_shape


def judge_messages(messages: Sequence[object]) -> None:
    """Raise ``AssertionError`` if botocore's model of the call refuses the messages."""
    judge_request({"modelId": "m", "messages": list(messages)})


def judge_request(request: dict[str, Any]) -> None:
    """Raise ``AssertionError`` if botocore's model of the call refuses the arguments."""
    shape = _input_shape()
    report = import_module("botocore.validate").ParamValidator().validate(_with_bytes(request, shape), shape)
    assert not report.has_errors(), report.generate_report()


def _with_bytes(value: Any, shape: Any) -> Any:
    """Return the value with bytes in place of base64 text in each field that botocore declares as a blob."""
    if shape.type_name == "blob":
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    if shape.type_name == "structure" and not getattr(shape, "is_document_type", False):
        fields = map_in(value)
        members = shape.members
        changed = {key: _with_bytes(fields[key], members[key]) for key in fields if key in members}
        return {**fields, **changed} if fields else value
    if shape.type_name == "list" and isinstance(value, list):
        return [_with_bytes(inner, shape.member) for inner in list_in(cast("object", value))]
    return value
