"""The OpenAPI 3.1 document of the server, made from the table of operations."""

from __future__ import annotations

import inspect
from functools import cache
from importlib.metadata import version
from typing import Any

from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service import problems
from agent_memory_log.service.table import OPERATIONS, needs_principal
from agent_memory_log.service.wire import result_form, schemas_of

_DESCRIPTION = """\
The durable, typed, replayable log of what an AI agent did, and the memory derived from it.

Repeat a request that got no answer: give each event its `event_id` before the first request, and nothing is stored \
twice. An answer holds a limited number of events, runs or entries. Read on as the operation describes."""

_PRINCIPAL = {
    "name": "Amlog-Principal",
    "in": "header",
    "description": "A JSON object with `tenant` and `scopes`, which narrows the token's principal.",
    "schema": {"type": "string"},
    "example": '{"tenant": "acme", "scopes": {"user": "42"}}',
}

_PROBLEM = {
    "type": "object",
    "description": "A problem (RFC 9457). Further fields are the attributes of the error, such as `actual`.",
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "The stable name of the error."},
        "detail": {"type": "string"},
    },
    "required": ["type", "status", "code", "detail"],
}


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agent-memory-log",
            "version": version("agent-memory-log"),
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": {f"/v1/{name}": {"post": _endpoint(name, operation)} for name, operation in OPERATIONS.items()},
        "components": {
            "schemas": {**schemas_of(OPERATIONS.values()), "Problem": _PROBLEM},
            "responses": {
                "Problem": {
                    "description": "The request failed. `code` and `detail` say why.",
                    "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _endpoint(name: str, operation: type[Operation[Any]]) -> dict[str, Any]:
    summary, _, description = (inspect.getdoc(operation) or "").replace("``", "`").partition("\n")
    reference = {"$ref": f"#/components/schemas/{operation.__name__}"}
    return {
        "operationId": name.replace("/", "_"),
        "tags": [name.partition("/")[0]],
        "summary": summary,
        "description": f"{description.strip()}\n\nNeeds the right `{operation.right}`.".strip(),
        **({"parameters": [_PRINCIPAL]} if needs_principal(operation) else {}),
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference}}},
        "responses": {"200": _answer(operation), "default": {"$ref": "#/components/responses/Problem"}},
    }


def _answer(operation: type[Operation[Any]]) -> dict[str, Any]:
    schema = result_form(operation).schema
    if not operation.stream:
        return {"description": "The result.", "content": {"application/json": {"schema": schema}}}
    data = {"anyOf": [schema, {"$ref": "#/components/schemas/Problem"}, {"type": "null"}]}
    event = {
        "type": "object",
        "properties": {
            "event": {"enum": ["end", "error"]},
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": data},
        },
        "required": ["data"],
    }
    return {
        "description": (
            "Server-sent events; the schema is that of one of them. The data of an event without a name is a result. "
            "The event `end` ends the results, and the event `error` has a problem as its data. A stream that ends "
            "without one of them was interrupted: ask again."
        ),
        "content": {"text/event-stream": {"schema": event}},
    }
