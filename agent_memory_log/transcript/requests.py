"""What a model is asked with beside the conversation: recording it, and reading it back for another call.

System prompt and tools are stored only when they changed; a fingerprint says which they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, encode_canonical, own_json
from agent_memory_log.events.payloads import ModelRequest, SystemMessage
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.names import PROVIDERS

_DIGEST_SIZE = 16


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool as every provider can be told of it: its name on the wire, what it is for, its arguments' JSON schema."""

    name: str
    description: str
    schema: Mapping[str, JsonValue]


class RecordedRequest(msgspec.Struct, frozen=True):
    """What the log knows of the latest request, for one provider.

    - ``own``: whether it was made to this provider, which then takes ``model``, ``system``, ``tools`` and
      ``parameters`` as they are; they are None otherwise, or where they were erased.
    - ``system_text``: the system prompt as text, whoever it was recorded for; ``""`` where there is none.
    - ``definitions``: the tools, whoever they were recorded for; those run by another provider are not among them.
    """

    own: bool
    model: str | None = None
    system: JsonValue = None
    tools: JsonValue = None
    parameters: Mapping[str, JsonValue] | None = None
    system_text: str = ""
    definitions: tuple[ToolDefinition, ...] = ()


def fingerprint(value: JsonValue) -> str:
    """What stands for a system prompt or tools: equal for equal JSON; ``""`` for None."""
    return "" if value is None else hashlib.blake2b(encode_canonical(value), digest_size=_DIGEST_SIZE).hexdigest()


def model_request(
    snapshot: Snapshot,
    provider: str,
    *,
    model: str,
    system: JsonValue = None,
    tools: JsonValue = None,
    parameters: Mapping[str, JsonValue] | None = None,
) -> ModelRequest:
    """The payload that says what the model is asked with next, for a run as it is in ``snapshot``.

    ``system``, ``tools`` and ``parameters`` are the arguments of the provider's own call, as they are sent (for
    ``openai-responses`` ``instructions`` is the system prompt, for ``bedrock`` ``toolConfig`` the tools); None where
    there are none. What an earlier request of the run had is not stored again. Raises ``InvalidArgument`` naming what
    is unknown or not JSON.

        asked = model_request(snapshot, "anthropic", model="claude-opus-4-8", system="Be kind.")
        store.append_events("support-agent", "run-42", new_event(asked))
    """
    if provider not in PROVIDERS:
        raise InvalidArgument(f"unknown provider {describe(provider)}; known: {', '.join(sorted(PROVIDERS))}")
    own_system = _owned("system", system)
    own_tools = _owned("tools", tools)
    own_parameters = _owned("parameters", parameters)
    system_hash, tools_hash = fingerprint(own_system), fingerprint(own_tools)
    known = snapshot.derive(_Requests, lambda requests: requests.contents.keys() & {system_hash, tools_hash})
    return ModelRequest(
        provider=provider,
        model=model,
        system=None if system_hash in known else own_system,
        system_hash=system_hash,
        tools=None if tools_hash in known else own_tools,
        tools_hash=tools_hash,
        parameters=cast("Mapping[str, JsonValue] | None", own_parameters),
    )


def recorded_request(snapshot: Snapshot, provider: str, leading: Sequence[SystemMessage]) -> RecordedRequest:
    """What the log knows for the next request to ``provider``; copies, sharing nothing with the snapshot."""
    return _recorded(snapshot.derive(_Requests, lambda requests: requests.newest()), provider, leading)


def own_request(snapshot: Snapshot, provider: str, leading: Sequence[SystemMessage]) -> RecordedRequest | None:
    """The latest request that was made to ``provider``, whoever was asked since; None where there was none."""
    newest = snapshot.derive(_Requests, lambda requests: requests.newest(provider))
    return None if newest[0] is None else _recorded(newest, provider, leading)


def _recorded(
    newest: tuple[ModelRequest | None, JsonValue, JsonValue], provider: str, leading: Sequence[SystemMessage]
) -> RecordedRequest:
    latest, system, tools = newest
    text = _text_of(system) or text_of_leading(leading)
    definitions = tuple(_definitions(tools))
    if latest is None or latest.provider != provider:
        return RecordedRequest(own=False, system_text=text, definitions=definitions)
    return RecordedRequest(
        own=True,
        model=latest.model,
        system=own_json(system),
        tools=own_json(tools),
        parameters=cast("Mapping[str, JsonValue] | None", own_json(latest.parameters)),
        system_text=text,
        definitions=definitions,
    )


def text_of_leading(leading: Sequence[SystemMessage]) -> str:
    """The system prompt that instructions before the conversation make."""
    return "\n\n".join(data.message for data in leading if data.message)


def recorded_parameters(snapshot: Snapshot, provider: str) -> Mapping[str, JsonValue] | None:
    """The parameters of the latest request to ``provider``; shared with the snapshot."""
    latest = snapshot.derive(_Requests, lambda requests: requests.latest_of.get(provider))
    return None if latest is None else latest.parameters


class _Requests:
    """The requests of a log: the latest, and every content by its fingerprint."""

    def __init__(self) -> None:
        self.latest: ModelRequest | None = None
        self.latest_of: dict[str, ModelRequest] = {}
        self.contents: dict[str, JsonValue] = {}

    def add(self, position: int, event: Event) -> None:
        del position
        data = event.data
        if isinstance(data, ModelRequest):
            self.latest = self.latest_of[data.provider] = data
            for hash_, content in ((data.system_hash, data.system), (data.tools_hash, data.tools)):
                if hash_ and content is not None:
                    self.contents[hash_] = content

    def newest(self, provider: str | None = None) -> tuple[ModelRequest | None, JsonValue, JsonValue]:
        latest = self.latest if provider is None else self.latest_of.get(provider)
        if latest is None:
            return None, None, None
        return latest, self.contents.get(latest.system_hash), self.contents.get(latest.tools_hash)


def _owned(name: str, value: JsonValue) -> JsonValue:
    try:
        return own_json(value)
    except NotJson as error:
        raise InvalidArgument(f"{name}{error.path} {error}") from error


def _text_of(system: JsonValue) -> str:
    """The text of a system prompt in any provider's form: text, or a list of blocks that have it."""
    if isinstance(system, str):
        return system
    if not isinstance(system, Sequence):
        return ""
    texts = [block.get("text") for block in system if isinstance(block, Mapping)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _definitions(tools: JsonValue) -> list[ToolDefinition]:
    """The tools of any provider's form that every provider can be told of."""
    if isinstance(tools, Mapping):
        tools = tools.get("tools")  # Bedrock's toolConfig
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        return []
    return [found for tool in tools if isinstance(tool, Mapping) and (found := _definition(tool)) is not None]


def _definition(tool: Mapping[str, Any]) -> ToolDefinition | None:
    body: Any = tool
    for key in ("function", "toolSpec"):
        if isinstance(tool.get(key), Mapping):
            body = tool[key]
    schema: Any = body.get("input_schema", body.get("parameters", body.get("inputSchema")))
    if isinstance(schema, Mapping) and "inputSchema" in body:
        schema = cast("Mapping[str, Any]", schema).get("json")
    name, description = body.get("name"), body.get("description", "")
    if not isinstance(name, str) or not isinstance(schema, Mapping):
        return None
    return ToolDefinition(
        name,
        description if isinstance(description, str) else "",
        cast("Mapping[str, JsonValue]", own_json(cast("object", schema))),
    )
