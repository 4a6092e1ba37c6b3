"""Records the model's system prompt, tools and parameters, and reads them back for the next call.

The system prompt and the tools are stored only when they change. Each request stores their fingerprints.
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
from agent_memory_log.events.payloads import (
    AssistantMessage,
    EventData,
    ModelRequest,
    SystemMessage,
    Thinking,
    ToolCall,
)
from agent_memory_log.snapshot import Snapshot, require_snapshot
from agent_memory_log.transcript.names import PROVIDERS
from agent_memory_log.transcript.vendors.profiles import provider_name

CONTAINER_LABEL = "container"
"""The label of an answer with the id of the container in which the provider ran code. The next request needs it."""

_DIGEST_SIZE = 16
_SCHEMA_KEYS = ("input_schema", "parameters", "inputSchema", "parametersJsonSchema", "parameters_json_schema")


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool in a form that fits every provider: wire name, description and the JSON schema of the arguments."""

    name: str
    description: str
    schema: Mapping[str, JsonValue]


class RecordedRequest(msgspec.Struct, frozen=True):
    """The latest recorded request, prepared for one provider.

    Attributes:
        own: Whether the request was made to this provider. Otherwise ``model``, ``system``, ``tools`` and
            ``parameters`` are None.
        model: The model; None if it was erased.
        system: The system prompt in the provider's own format.
        tools: The tools in the provider's own format.
        parameters: The other arguments of the request.
        container: The id of the container in which the provider ran code for its latest answers; ``""`` if none.
        system_text: The system prompt as text, for any provider; ``""`` if there is none.
        definitions: The tools for any provider. Tools that a provider runs itself are left out.
    """

    own: bool
    model: str | None = None
    system: JsonValue = None
    tools: JsonValue = None
    parameters: Mapping[str, JsonValue] | None = None
    container: str = ""
    system_text: str = ""
    definitions: tuple[ToolDefinition, ...] = ()


def fingerprint(value: JsonValue) -> str:
    """Return a digest of a system prompt or of tools. Equal JSON has equal digests. The digest of None is ``""``."""
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
    """Return the payload for the next model request of the run in ``snapshot``.

    A system prompt or tools that an earlier request of the run stored are not stored again.

        payload = model_request(snapshot, "anthropic", model="claude-opus-4-8", system="Be kind.")
        store.append_events("support-agent", "run-42", new_event(payload))

    Args:
        snapshot: The run.
        provider: The provider's name, or a vendor's name or base URL.
        model: The model's name.
        system: The system prompt as the provider's call takes it (``instructions`` for ``openai-responses``,
            ``systemInstruction`` for ``gemini``).
        tools: The tools as the provider's call takes them (``toolConfig`` for ``bedrock``).
        parameters: The other arguments of the call.

    Raises:
        InvalidArgument: The provider is unknown, or a value is not JSON.
    """
    require_snapshot(snapshot)
    provider = provider_name(provider)
    if provider not in PROVIDERS:
        raise InvalidArgument(f"unknown provider {describe(provider)}; choose one of {', '.join(sorted(PROVIDERS))}")
    own_system = _owned("system", system)
    own_tools = _owned("tools", tools)
    own_parameters = _owned("parameters", parameters)
    system_hash, tools_hash = fingerprint(own_system), fingerprint(own_tools)
    stored_hashes = snapshot.derive(_Requests, lambda requests: requests.contents.keys() & {system_hash, tools_hash})
    return ModelRequest(
        provider=provider,
        model=model,
        system=None if system_hash in stored_hashes else own_system,
        system_hash=system_hash,
        tools=None if tools_hash in stored_hashes else own_tools,
        tools_hash=tools_hash,
        parameters=cast("Mapping[str, JsonValue] | None", own_parameters),
    )


def recorded_request(snapshot: Snapshot, provider: str, leading: Sequence[SystemMessage]) -> RecordedRequest:
    """Return the latest recorded request for ``provider``. The result shares nothing with the snapshot."""
    newest = snapshot.derive(_Requests, lambda requests: requests.newest())
    return _recorded(newest, _container(snapshot, provider), provider, leading)


def own_request(snapshot: Snapshot, provider: str, leading: Sequence[SystemMessage]) -> RecordedRequest | None:
    """Return the latest request to ``provider``, even if later requests went to other providers; None without one."""
    newest = snapshot.derive(_Requests, lambda requests: requests.newest(provider))
    return None if newest[0] is None else _recorded(newest, _container(snapshot, provider), provider, leading)


def _container(snapshot: Snapshot, provider: str) -> str:
    return snapshot.derive(_Requests, lambda requests: requests.containers.get(provider, ""))


def _recorded(
    newest: tuple[ModelRequest | None, JsonValue, JsonValue],
    container: str,
    provider: str,
    leading: Sequence[SystemMessage],
) -> RecordedRequest:
    latest, system, tools = newest
    text = _text_of(system) or text_of_leading(leading)
    definitions = tuple(_definitions(tools))
    if latest is None or latest.provider != provider:
        return RecordedRequest(own=False, container=container, system_text=text, definitions=definitions)
    return RecordedRequest(
        own=True,
        model=latest.model,
        system=own_json(system),
        tools=own_json(tools),
        parameters=cast("Mapping[str, JsonValue] | None", own_json(latest.parameters)),
        container=container,
        system_text=text,
        definitions=definitions,
    )


def stored_up_to(snapshot: Snapshot, provider: str, parameters: Mapping[str, JsonValue]) -> int:
    """Return the seq of the last event that OpenAI itself adds to a request; 0 if it adds no event of this run.

    It adds everything up to the response that ``previous_response_id`` names. To a request with ``conversation``, it
    adds everything up to the latest response in this conversation.
    """
    previous, conversation = parameters.get("previous_response_id"), parameters.get("conversation")
    if previous is None and conversation is None:
        return 0
    stored = 0
    is_in_conversation = False
    for event in snapshot.log:
        if isinstance(event.data, ModelRequest) and event.data.provider == provider:
            now = (event.data.parameters or {}).get("conversation")
            is_in_conversation = conversation is not None and now == conversation
        response_id = event.labels.get("response_id")
        if response_id and (response_id == previous or is_in_conversation):
            stored = event.seq
    return stored


def text_of_leading(leading: Sequence[SystemMessage]) -> str:
    """Return the text of a system prompt made from the leading instructions."""
    return "\n\n".join(data.message for data in leading if data.message)


def latest_request(snapshot: Snapshot, provider: str) -> ModelRequest | None:
    """Return the latest request to ``provider``, as it is stored; None without one."""
    return snapshot.derive(_Requests, lambda requests: requests.latest_of.get(provider))


def recorded_model(snapshot: Snapshot, provider: str) -> str | None:
    """Return the model that the last answer names, or else the latest request to ``provider``; None if unknown."""
    answer = next((event for event in reversed(snapshot.log) if _is_from_model(event.data)), None)
    if answer is not None and answer.labels.get("model"):
        return answer.labels["model"]
    latest = snapshot.derive(_Requests, lambda requests: requests.latest_of.get(provider))
    return None if latest is None else latest.model


def _is_from_model(data: EventData) -> bool:
    if isinstance(data, ToolCall):
        return not data.parent_tool_call_id
    return isinstance(data, (AssistantMessage, Thinking))


class _Requests:
    """The requests of a log: the latest ones, and every stored system prompt and tool list by fingerprint.

    ``containers`` has the latest container of each provider.
    """

    def __init__(self) -> None:
        self.latest: ModelRequest | None = None
        self.latest_of: dict[str, ModelRequest] = {}
        self.contents: dict[str, JsonValue] = {}
        self.containers: dict[str, str] = {}

    def add(self, position: int, event: Event) -> None:
        del position
        data = event.data
        if isinstance(data, ModelRequest):
            self.latest = self.latest_of[data.provider] = data
            for hash_, content in ((data.system_hash, data.system), (data.tools_hash, data.tools)):
                if hash_ and content is not None:
                    self.contents[hash_] = content
        elif CONTAINER_LABEL in event.labels:
            self.containers[event.labels.get("provider", "")] = event.labels[CONTAINER_LABEL]

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
    """Return the text of a system prompt in any provider's format: text, or a list of blocks with text."""
    if isinstance(system, Mapping):
        system = system.get("parts", [system])  # Gemini's content, or one part of it
    if isinstance(system, str):
        return system
    if not isinstance(system, Sequence):
        return ""
    texts = [block.get("text") for block in system if isinstance(block, Mapping)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _definitions(tools: JsonValue) -> list[ToolDefinition]:
    """Return the tools, in any provider's format, that have a definition for every provider."""
    if isinstance(tools, Mapping):
        tools = tools.get("tools")  # Bedrock's toolConfig
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        return []
    maps = [tool for tool in tools if isinstance(tool, Mapping)]
    return [definition for tool in maps for part in _parts_of(tool) if (definition := _definition(part)) is not None]


def _parts_of(tool: Mapping[str, JsonValue]) -> list[Mapping[str, Any]]:
    """Return the definitions in a tool. Only a tool of Gemini has more than one."""
    declarations = tool.get("functionDeclarations", tool.get("function_declarations"))
    if not isinstance(declarations, Sequence):
        return [tool]
    return [declaration for declaration in declarations if isinstance(declaration, Mapping)]


def _definition(tool: Mapping[str, Any]) -> ToolDefinition | None:
    body: Any = tool
    for key in ("function", "toolSpec"):
        if isinstance(tool.get(key), Mapping):
            body = tool[key]
    schema: Any = next((body[key] for key in _SCHEMA_KEYS if key in body), None)
    if isinstance(schema, Mapping) and "inputSchema" in body:
        schema = cast("Mapping[str, Any]", schema).get("json")
    name, description = body.get("name"), body.get("description", "")
    if not isinstance(name, str) or not isinstance(schema, Mapping):
        return None
    own_schema = cast("Mapping[str, JsonValue]", own_json(cast("object", schema)))
    return ToolDefinition(name, description if isinstance(description, str) else "", _in_lower_case(own_schema))


def _in_lower_case(schema: Any) -> Any:  # noqa: ANN401  # JSON of any shape
    """Return a JSON schema with the names of types in lower case. Gemini also accepts ``OBJECT`` and ``STRING``."""
    if isinstance(schema, list):
        return [_in_lower_case(item) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, Any]", schema)
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _in_lower_case(value)
        for key, value in fields.items()
    }
