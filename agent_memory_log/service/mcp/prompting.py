"""The prompts that a user can choose: to recall what memory knows, and to save the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from mcp_types import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent

from agent_memory_log.errors import AccessDenied, InvalidArgument
from agent_memory_log.events.fields import in_quotes
from agent_memory_log.memory.operations import BuildContext
from agent_memory_log.memory.records.arguments import Right
from agent_memory_log.memory.search.quoting import safe_json
from agent_memory_log.models.prompts import read_prompt
from agent_memory_log.service.executing import Caller
from agent_memory_log.service.grants import Grant


class _Row(msgspec.Struct, frozen=True):
    """A prompt with one required argument, and the right that its tools need."""

    right: Right
    description: str
    argument: str
    argument_description: str


_PROMPTS: Mapping[str, _Row] = {
    "recall": _Row("read", "Answer a question with what memory knows.", "question", "The question to answer."),
    "save_session": _Row(
        "write",
        "Save this conversation in memory.",
        "source_id",
        "A name for the conversation. The same name continues the same conversation.",
    ),
}


def list_prompts(grant: Grant) -> list[Prompt]:
    """Return the prompts that a caller can use."""
    return [
        Prompt(
            name=name,
            title=name.replace("_", " ").capitalize(),
            description=row.description,
            arguments=[PromptArgument(name=row.argument, description=row.argument_description, required=True)],
        )
        for name, row in _PROMPTS.items()
        if row.right in grant.rights and grant.principal is not None
    ]


def context_text(context: Mapping[str, Any]) -> str:
    """Return the text of a context for a model, or the reason for its absence."""
    if context["text"] or not context["note"]:
        return context["text"] or "(Memory holds nothing about the question.)"
    return safe_json(context["note"])


async def get_prompt(caller: Caller, name: str, arguments: Mapping[str, str] | None) -> GetPromptResult:
    """Return a prompt with its argument.

    Raises:
        InvalidArgument: The prompt or the argument is unknown, or the argument is missing.
        AccessDenied: The caller cannot use the prompt.
    """
    row = _PROMPTS.get(name)
    if row is None:
        raise InvalidArgument(f"there is no prompt {in_quotes(name)}, only {', '.join(_PROMPTS)}")
    values = dict(arguments or {})
    if values.keys() != {row.argument} or not values[row.argument].strip():
        raise InvalidArgument(f"the prompt {name} needs the argument {row.argument} and no other")
    if row.right not in caller.grant.rights or caller.grant.principal is None:
        raise AccessDenied(f"the prompt {name} needs the right {row.right} to the memory of a user")
    if name == "recall":
        context = await caller.execute(BuildContext(values["question"]))
        values["context"] = context_text(context)
    else:
        values = {"source_id": safe_json(values["source_id"])}
    text = read_prompt("agent_memory_log.service.mcp", name).format(**values)
    return GetPromptResult(
        description=row.description,
        messages=[PromptMessage(role="user", content=TextContent(type="text", text=text))],
    )
