"""The table of tools. Each tool is an operation; its description and its arguments come from the operation's struct.

To add a tool, add a line to ``TOOLS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from mcp_types import Tool as ToolDescription
from mcp_types import ToolAnnotations

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import in_quotes
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.grants import Grant
from agent_memory_log.service.mcp.answers import ANSWER_TOKENS, LEAST_ANSWER_TOKENS, MOST_ANSWER_TOKENS
from agent_memory_log.service.table import OPERATIONS, needs_principal
from agent_memory_log.service.wire import decode_operation, schemas_of
from agent_memory_log.service.wire.scalars import Schema

CONTINUE = "continue_from"
MAX_TOKENS = "max_tokens"


class Tool(msgspec.Struct, frozen=True):
    """An operation as a tool for models.

    Attributes:
        operation: The name of the operation.
        purpose: The use of the tool, if the operation's description does not say it. It comes first.
        without: The fields that a model does not set.
        required: The fields that a model must set, besides those that the operation requires.
        fixed: The values of fields that the tool sets. A model cannot change them.
        defaults: The values of fields that a model leaves out, if they differ from those of the operation.
        items: The field of the result with the items that an answer can be cut after. ``"."``: the result itself.
        text: The field of the result that is a text for a model already.
    """

    operation: str
    purpose: str = ""
    without: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = {}
    defaults: Mapping[str, Any] = {}
    items: str = ""
    text: str = ""

    @property
    def struct(self) -> type[Operation[Any]]:
        """The struct of the operation."""
        return OPERATIONS[self.operation]

    @property
    def continues(self) -> bool:
        """Return whether a cut answer can be continued. A tool that writes is not called again for the rest."""
        return bool(self.items) and not self.struct.writes

    def is_for(self, grant: Grant) -> bool:
        """Return whether a caller can use the tool at all."""
        if self.struct.right not in grant.rights:
            return False
        return grant.principal is not None if needs_principal(self.struct) else bool(grant.agents)


_DETAILS = ("data", "source", "evidence", "links", "memory_type")
_LIMITS = ("weak_below", "unused_days", "episode_days", "profile_tokens")
_TUNING = ("boost_preferences", "min_importance", "vectors")

TOOLS: Mapping[str, Tool] = {
    "memory_search": Tool("memory/search", without=_TUNING, items="hits"),
    "memory_context": Tool("memory/context", without=("vectors",), text="text"),
    "memory_store": Tool(
        "memory/remember",
        "Store one fact or preference about the user for later sessions.",
        without=_DETAILS,
        required=("key", "value"),
    ),
    "memory_trace": Tool("memory/trace", without=("limit", "valid_at", "as_of", "scopes"), items="steps"),
    "memory_ingest_conversation": Tool("memory/ingest", items="outcomes"),
    "memory_update": Tool("memory/update", without=("links",)),
    "memory_delete": Tool("memory/delete"),
    "memory_restore": Tool("memory/restore"),
    "memory_forget": Tool("memory/forget", without=("sweep_limit",)),
    "memory_export": Tool("memory/export_jsonl", items="."),
    "memory_maintain": Tool("memory/maintain", without=_LIMITS, defaults={"limit": 1_000}),
    "memory_health": Tool("memory/health"),
    "memory_audit": Tool("memory/audit_events", items="."),
    "memory_evolution": Tool("memory/evolution_events"),
    "runs_list": Tool("runs/list_runs", without=("include_reserved",), defaults={"limit": 20}, items="runs"),
    "run_read": Tool("runs/load_run", without=("last",), defaults={"limit": 50}, items="log"),
    "run_search": Tool(
        "memory/search",
        "Find messages of earlier conversations.",
        without=_TUNING,
        fixed={"kinds": ["message"]},
        items="hits",
    ),
}
"""The tools by name."""


def tools_of(grant: Grant) -> list[ToolDescription]:
    """Return the tools that a caller can use."""
    return [_described(name, tool) for name, tool in TOOLS.items() if tool.is_for(grant)]


def operation_of(name: str, arguments: Mapping[str, Any]) -> Operation[Any]:
    """Return the operation of a call of a tool.

    Raises:
        InvalidArgument: An argument is missing, unknown or has another form. The message names the arguments.
    """
    tool, properties = TOOLS[name], _schema(name, TOOLS[name])["properties"]
    unknown = next((argument for argument in arguments if argument not in properties), None)
    if unknown is not None:
        raise InvalidArgument(f"{name} has no argument {in_quotes(unknown)}, only {', '.join(properties)}")
    missing = next((argument for argument in tool.required if argument not in arguments), None)
    if missing is not None:
        raise InvalidArgument(f"{missing} is missing")
    own = {key: value for key, value in arguments.items() if key in tool.struct.__struct_fields__}
    return decode_operation(tool.struct, {**tool.defaults, **own, **tool.fixed})


def usage_of(name: str) -> str:
    """Return the arguments of a tool as a sentence, for a model whose call was refused."""
    schema = _schema(name, TOOLS[name])
    required = schema.get("required", ())
    arguments = (f"{argument} (required)" if argument in required else argument for argument in schema["properties"])
    return f"Arguments of {name}: {', '.join(arguments)}."


def _described(name: str, tool: Tool) -> ToolDescription:
    struct = tool.struct
    hints = ToolAnnotations(
        title=name.replace("_", " ").capitalize(),
        read_only_hint=not struct.writes,
        destructive_hint=struct.right == "erase",
        idempotent_hint=True,  # every operation can be repeated safely
        open_world_hint=False,
    )
    return ToolDescription(
        name=name,
        title=hints.title,
        description=f"{tool.purpose} {_text(struct.__doc__ or '')}".strip(),
        input_schema=_schema(name, tool),
        annotations=hints,
    )


_schemas: dict[str, dict[str, Any]] = {}


def _schema(name: str, tool: Tool) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, without references to other schemas."""
    if name not in _schemas:
        _schemas[name] = _make_schema(tool)
    return _schemas[name]


def _make_schema(tool: Tool) -> dict[str, Any]:
    schemas = schemas_of([tool.struct])
    own = cast("dict[str, Any]", schemas[tool.struct.__name__])
    hidden = {*tool.without, *tool.fixed}
    properties = {
        field: _simple(_resolved(schema, schemas), tool.defaults.get(field))
        for field, schema in own["properties"].items()
        if field not in hidden
    }
    if tool.items:
        properties[MAX_TOKENS] = {
            "type": "integer",
            "minimum": LEAST_ANSWER_TOKENS,
            "maximum": MOST_ANSWER_TOKENS,
            "default": ANSWER_TOKENS,
            "description": "The most tokens of the answer.",
        }
    if tool.continues:
        properties[CONTINUE] = {
            "type": "string",
            "description": "To read on after an answer that was cut: its continue_from, with the same arguments.",
        }
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [*tool.required, *(field for field in own.get("required", ()) if field not in hidden)]
    return {**schema, "required": required} if required else schema


def _resolved(schema: object, schemas: Mapping[str, Schema]) -> Any:  # noqa: ANN401  # any part of a JSON schema
    """Return a schema with each reference replaced by the schema that it names, because not all models follow them."""
    if isinstance(schema, list):
        return [_resolved(part, schemas) for part in cast("list[object]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    parts = cast("Mapping[str, object]", schema)
    if "$ref" in parts:
        return _resolved(schemas[str(parts["$ref"]).rpartition("/")[2]], schemas)
    return {key: _resolved(part, schemas) for key, part in parts.items()}


def _simple(schema: dict[str, Any], default: object) -> dict[str, Any]:
    """Return the schema of an argument in fewer words: an argument that may be null may be left out instead."""
    simple = dict(schema)
    if "anyOf" in simple:
        simple = {**simple.pop("anyOf")[0], **simple}
    if default is not None:
        simple["default"] = default
    if simple.get("default", ()) in (None, "", []):
        del simple["default"]
    if "description" in simple:
        simple["description"] = _text(simple["description"])
    return simple


def _text(docstring: str) -> str:
    """Return a docstring as text for a model: without its list of errors and without marks of code."""
    words = docstring.partition("\n    Raises:")[0].split()
    return " ".join(words).replace("``", "`")
