"""The table of tools. Each tool is an operation; its description and its arguments come from the operation's struct.

To add a tool, add a line to ``TOOLS``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
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
        purpose: When to use the tool. The first paragraph of the operation's description follows, unless the tool is
            narrower than the operation.
        without: The fields that a model does not set.
        required: The fields that a model must set, besides those that the operation requires.
        fixed: The values of fields that the tool sets. A model cannot change them.
        defaults: The values of fields that a model leaves out, if they differ from those of the operation.
        items: The field of the result with the items that an answer can be cut after. ``"."``: the result itself.
    """

    operation: str
    purpose: str = ""
    without: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = {}
    defaults: Mapping[str, Any] = {}
    items: str = ""

    @property
    def struct(self) -> type[Operation[Any]]:
        """The struct of the operation."""
        return OPERATIONS[self.operation]

    @property
    def is_narrower(self) -> bool:
        """Return whether the tool does a part of what its operation does."""
        return bool(self.required or self.fixed)

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
    "memory_search": Tool(
        "memory/search",
        "Find what memory knows about a question. The hits have the ids that other tools take.",
        without=_TUNING,
        items="hits",
    ),
    "memory_context": Tool(
        "memory/context",
        "Call this first, before you answer the user. It is shorter than memory_search, and has no ids.",
        without=("vectors",),
    ),
    "memory_store": Tool(
        "memory/add",
        "Store a statement for later sessions. Use memory_set if a later value replaces it, as for a language.",
        without=("memory_type", "trust_score"),
    ),
    "memory_set": Tool(
        "memory/remember",
        "Store a preference or a fact about the user under a key, such as language. A later value replaces it.",
        without=_DETAILS,
        required=("key", "value"),
    ),
    "memory_trace": Tool(
        "memory/trace",
        "Find out why memory has a record.",
        without=("limit", "valid_at", "as_of", "scopes"),
        items="steps",
    ),
    "memory_ingest_conversation": Tool(
        "memory/ingest",
        "Save a conversation. A turn that is stored already is not stored again, so a call can be repeated.",
        items="outcomes",
    ),
    "memory_update": Tool("memory/update", "Correct a memory.", without=("links",)),
    "memory_delete": Tool("memory/delete", "Take a memory out of use. Use memory_forget to erase it."),
    "memory_restore": Tool("memory/restore", "Bring back a memory that was deleted."),
    "memory_forget": Tool(
        "memory/forget",
        "Erase a memory permanently, because the user asks for it. Use memory_delete if it may be needed again.",
        without=("sweep_limit",),
    ),
    "memory_export": Tool("memory/export_jsonl", "Read all memories.", items="."),
    "memory_maintain": Tool(
        "memory/maintain", "Tidy the memory up, once a day.", without=_LIMITS, defaults={"limit": 1_000}
    ),
    "memory_health": Tool("memory/health", "See whether the memory needs attention."),
    "memory_audit": Tool("memory/audit_events", "See what changed in the memory.", items="."),
    "memory_evolution": Tool("memory/evolution_events", "See how one memory changed.", items="events"),
    "runs_list": Tool(
        "runs/list_runs",
        "See which earlier runs there are.",
        without=("include_reserved",),
        defaults={"limit": 20},
        items="runs",
    ),
    "run_read": Tool("runs/load_run", "Read an earlier run.", without=("last",), defaults={"limit": 50}, items="log"),
    "run_search": Tool(
        "memory/search",
        "Find messages of earlier conversations, and no other memories. The best matches come first.",
        without=_TUNING,
        fixed={"kinds": ["message"]},
        items="hits",
    ),
}
"""The tools by name."""

_TOOL_OF = {tool.operation.rpartition("/")[2]: name for name, tool in TOOLS.items() if not tool.is_narrower}
"""The name of the tool for an operation's method, for the texts that name the method."""


def tools_of(grant: Grant) -> list[ToolDescription]:
    """Return the tools that a caller can use."""
    return [_described(name, tool) for name, tool in TOOLS.items() if tool.is_for(grant)]


def operation_of(name: str, arguments: Mapping[str, Any]) -> Operation[Any]:
    """Return the operation of a call of a tool.

    Raises:
        InvalidArgument: An argument is missing, unknown or has another form. The message names the arguments.
    """
    tool, properties = TOOLS[name], _schema(name)["properties"]
    unknown = next((argument for argument in arguments if argument not in properties), None)
    if unknown is not None:
        raise InvalidArgument(f"{name} has no argument {in_quotes(unknown)}")
    missing = next((argument for argument in tool.required if arguments.get(argument) is None), None)
    if missing is not None:
        raise InvalidArgument(f"{missing} is missing")
    own = {
        key: value
        for key, value in arguments.items()
        if key in tool.struct.__struct_fields__
        and value is not None  # some models send null instead of leaving an argument out
    }
    return decode_operation(tool.struct, {**tool.defaults, **own, **tool.fixed})


def usage_of(name: str) -> str:
    """Return the arguments of a tool with their types, for a model whose call was refused."""
    return f"Arguments of {name}: {_notation(_schema(name))}."


def _notation(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema as a type of TypeScript, which is short and known to models."""
    if "enum" in schema:
        return " | ".join(f'"{name}"' for name in schema["enum"])
    if schema["type"] == "array":
        return f"{_notation(schema['items'])}[]"
    if schema["type"] != "object":
        return str(schema.get("format", schema["type"]))
    required = schema.get("required", ())
    fields = schema["properties"].items()
    return "{" + ", ".join(f"{key}{'' if key in required else '?'}: {_notation(part)}" for key, part in fields) + "}"


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
        description=_text("" if tool.is_narrower else struct.__doc__ or "", tool.purpose),
        input_schema=_schema(name),
        annotations=hints,
    )


@cache
def _schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, without references to other schemas."""
    tool = TOOLS[name]
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


def _text(docstring: str, purpose: str = "") -> str:
    """Return the first paragraph of a docstring as text for a model: without marks of code, and with names of tools."""
    words = " ".join([purpose, *docstring.partition("\n\n")[0].split()]).strip()
    return re.sub("``(.+?)``", lambda method: f"`{_TOOL_OF.get(method[1], method[1])}`", words)
