"""What a provider answered, as the messages to be sent back to it and the labels its events get.

The provider is found by the answer's shape. One function for each provider says where in its answer the assistant's
message is, and where the model, the reason it stopped for, the answer's id and what it used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, encode_json, own_json
from agent_memory_log.recording.sdk_objects import Map, map_at, maps_in, without_bytes, without_sdk_objects
from agent_memory_log.recording.streams import joined, provider_of_stream
from agent_memory_log.transcript.providers import find_provider

ANTHROPIC = "anthropic"
BEDROCK = "bedrock"
CHAT = "openai-chat"
RESPONSES = "openai-responses"


class Answer(msgspec.Struct, frozen=True):
    """A provider's answer.

    - ``provider``: its name; ``messages``: what is to be sent back, empty where the model said nothing.
    - ``labels``: ``provider``, ``model``, ``response_id`` and ``stop_reason``, those that are known.
    - ``usage``: what the provider says was used, as compact JSON in its own words; ``""`` where it does not.
    """

    provider: str
    messages: list[Map]
    labels: dict[str, str]
    usage: str = ""


_AnswerParts = tuple[list[Map], object, object]
"""What is found in an answer: the messages to be sent back, the answer's id, the reason it stopped for."""


def answer_of(response: object, provider: str | None) -> Answer:
    """Read an answer: an SDK's object, a map, or a list of a stream's events.

    Raises ``InvalidArgument`` for an unknown provider, ``DecodeError`` for what is no answer of ``provider``, or of any
    provider where none is given, and for a stream that was cut off.
    """
    if provider is not None:
        find_provider(provider)
    answer = without_sdk_objects(response)
    if isinstance(answer, list):
        events = maps_in(cast("object", answer))
        provider = provider or provider_of_stream(events)
        if provider is None:
            raise DecodeError(f"a stream of no known provider, of {len(events)} events: name the provider")
        answer = joined(events, provider)
    provider = provider or _provider_of(answer)
    if provider is None:
        raise DecodeError(
            f"an answer of no known provider: {describe(answer)}; give what the SDK returned, or name the provider"
        )
    if not isinstance(answer, dict):
        raise DecodeError(f"an answer of {provider} must be a map, found {describe(answer)}")
    fields = cast("Map", without_bytes(cast("object", answer)))
    messages, response_id, stop_reason = _READERS[provider](fields)
    labels = {
        "provider": provider,
        "model": fields.get("model"),
        "response_id": response_id,
        "stop_reason": stop_reason,
    }
    known = {key: value for key, value in labels.items() if isinstance(value, str) and value}
    usage: Any = fields.get("usage")
    return Answer(provider, messages, known, _json(usage) if usage else "")


def _provider_of(response: object) -> str | None:
    if not isinstance(response, Mapping):
        return None
    answer = cast("Mapping[str, object]", response)
    if isinstance(answer.get("choices"), list):
        return CHAT
    output = answer.get("output")
    if isinstance(output, list):
        return RESPONSES
    if isinstance(output, Mapping) and "message" in output:
        return BEDROCK
    if answer.get("type") == "message" and isinstance(answer.get("content"), list):
        return ANTHROPIC
    return None


def _anthropic(answer: Map) -> _AnswerParts:
    content = answer.get("content")
    if answer.get("role") != "assistant" or not isinstance(content, (list, str)):
        raise _wrong(ANTHROPIC, answer, "a Message, with content")
    for block in maps_in(cast("object", content)):
        block.pop("parsed_output", None)
    messages: list[Map] = [{"role": "assistant", "content": content}] if content else []
    return messages, answer.get("id"), answer.get("stop_reason")


def _chat(answer: Map) -> _AnswerParts:
    choices = maps_in(answer.get("choices"))
    if not choices and answer.get("role") == "assistant" and "type" not in answer:
        choices = [{"message": answer}]
    if len(choices) != 1 or not isinstance(choices[0].get("message"), dict):
        raise _wrong(CHAT, answer, f"a Chat Completion with one choice, which is to be continued, found {len(choices)}")
    choice = choices[0]
    message: Map = choice["message"]
    message.pop("parsed", None)
    for call in maps_in(message.get("tool_calls")):
        map_at(call, "function").pop("parsed_arguments", None)
        call.pop("index", None)  # of the stream it came in
    audio = map_at(message, "audio")
    if "id" in audio:
        message["audio"] = {"id": audio["id"]}  # all that may be sent back
    return [message], answer.get("id"), choice.get("finish_reason")


def _responses(answer: Map) -> _AnswerParts:
    output = answer.get("output")
    if not isinstance(output, list):
        raise _wrong(RESPONSES, answer, "a Response, with output")
    items = maps_in(cast("object", output))
    for item in items:
        item.pop("parsed_arguments", None)
        for part in maps_in(item.get("content")):
            part.pop("parsed", None)
    reason = map_at(answer, "incomplete_details").get("reason") or map_at(answer, "error").get("code")
    return items, answer.get("id"), reason or answer.get("status")


def _bedrock(answer: Map) -> _AnswerParts:
    message = map_at(answer, "output", "message") or answer
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list) or "type" in message:
        raise _wrong(BEDROCK, answer, "what Converse returned, with output.message")
    request_id = map_at(answer, "ResponseMetadata").get("RequestId")
    return [message] if content else [], request_id, answer.get("stopReason")


_READERS: dict[str, Callable[[Map], _AnswerParts]] = {
    ANTHROPIC: _anthropic,
    BEDROCK: _bedrock,
    CHAT: _chat,
    RESPONSES: _responses,
}


def _json(usage: JsonValue) -> str:
    try:
        return encode_json(own_json(usage)).decode()
    except NotJson as error:
        raise DecodeError(f"usage{error.path} {error}") from error


def _wrong(provider: str, answer: Map, wanted: str) -> DecodeError:
    return DecodeError(
        f"an answer of {provider} must be {wanted}; its keys are {', '.join(map(str, answer)) or 'none'}"
    )
