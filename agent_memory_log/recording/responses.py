"""Reads a provider's answer: the messages to send back, and the labels of the recorded events.

The provider is detected from the shape of the answer. One function for each provider reads the assistant's message, the
answer's id and the stop reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, encode_json, own_json
from agent_memory_log.recording.sdk_objects import Map, Received, map_at, maps_in, without_bytes, without_sdk_objects
from agent_memory_log.recording.streams import joined, provider_of_stream
from agent_memory_log.recording.streams.pieces import LONGEST_ERROR
from agent_memory_log.transcript.conversion.rendering import text_or_empty
from agent_memory_log.transcript.gemini.rendering import key_in, value_in
from agent_memory_log.transcript.openai_chat.rendering import is_no_call
from agent_memory_log.transcript.providers import find_provider
from agent_memory_log.transcript.requests import CONTAINER_LABEL
from agent_memory_log.transcript.vendors.profiles import VENDORS, is_openai_model

ANTHROPIC = "anthropic"
BEDROCK = "bedrock"
GEMINI = "gemini"
CHAT = "openai-chat"
RESPONSES = "openai-responses"


class Answer(msgspec.Struct, frozen=True):
    """A provider's answer.

    Attributes:
        provider: The name of the provider.
        messages: The messages to send back; empty if the answer is empty.
        labels: The labels ``provider``, ``model``, ``response_id``, ``stop_reason`` and, for Anthropic, ``container``;
            unknown ones are absent. ``vendor`` is ``unknown`` if the answer is of another vendor whose name was not
            passed.
        usage: The provider's usage data as compact JSON, or ``""`` if the answer has none.
        transcript: The words of spoken audio, for providers that do not have the audio.
        is_partial: Whether the answer is partial. Its labels ``partial`` and ``error`` say why.
        is_compaction: Whether the messages replace the whole conversation.
    """

    provider: str
    messages: list[Map]
    labels: dict[str, str]
    usage: str = ""
    transcript: str = ""
    is_partial: bool = False
    is_compaction: bool = False


_FRAME = frozenset({"id", "role", "status", "type"})
"""The keys of a message that are no content."""

COMPACTED = "response.compaction"
"""The ``object`` of the answer of OpenAI's ``/responses/compact``."""

_UNFINISHED = ("queued", "in_progress")  # a tuple, because a status may be unhashable
"""The statuses of a response whose model still works in the background."""

_AnswerParts = tuple[list[Map], object, object]
"""The messages to send back, the answer's id, and the stop reason."""


def answer_of(received: Received, provider: str | None, requested: str | None = None) -> Answer:
    """Read an answer: an SDK's object, a map, or a list of stream events.

    If an exception ended the stream, its text is the label ``error``, unless the provider sent an error.

    ``requested`` is the provider of the run's latest request. If it is a vendor, an answer in the shape of
    ``openai-chat`` is that vendor's.

    Raises ``InvalidArgument`` if the provider is unknown. Raises ``DecodeError`` if the response is not an answer of
    ``provider``, if its provider cannot be detected, if its stream ended before it had content, or if the model still
    works on it in the background.
    """
    is_named = provider is not None
    if provider is not None:
        provider = find_provider(provider).name
    answer = without_sdk_objects(received.response)
    partial = error = ""
    if isinstance(answer, list):
        events = maps_in(cast("object", answer))
        provider = provider or provider_of_stream(events)
        if provider is None:
            raise DecodeError(f"cannot detect the provider of a stream of {len(events)} events; pass provider=...")
        answer, partial, error = joined(events, provider)
    provider = provider or _provider_of(answer)
    if provider is None:
        raise DecodeError(
            f"cannot detect the provider of an answer: {describe(answer)}; pass the SDK's response, or provider=..."
        )
    if not is_named and provider == CHAT and requested in VENDORS:
        provider = requested
    if not isinstance(answer, dict):
        raise DecodeError(f"an answer of {provider} must be a map, got {describe(answer)}")
    fields = cast("Map", without_bytes(cast("object", answer)))
    transcript = _transcript(fields)
    messages, response_id, stop_reason = _READERS[CHAT if provider in VENDORS else provider](fields)
    if received.failure is not None and not error:
        error = f"{type(received.failure).__name__}: {received.failure}"[:LONGEST_ERROR]
    labels = {
        "provider": provider,
        "model": fields.get("model") or value_in(fields, "modelVersion"),
        "vendor": "unknown" if _is_of_unknown_vendor(provider, fields.get("model")) else "",
        "response_id": response_id,
        "stop_reason": stop_reason,
        CONTAINER_LABEL: map_at(fields, "container").get("id") if provider == ANTHROPIC else None,
        "partial": partial,
        "error": error,
    }
    if not partial and provider == RESPONSES and fields.get("status") in _UNFINISHED:
        raise DecodeError(
            f"the model works in the background: the answer is {fields['status']}; retrieve it again by its id "
            f"{describe(response_id)} until it is completed, and then record it"
        )
    if partial and not any(_has_content(message) for message in messages):
        reason = f"ended with an error: {error}" if error else "was cut off before it had content"
        raise DecodeError(f"a stream of {provider} {reason}; request the answer again")
    is_compaction = provider == RESPONSES and fields.get("object") == COMPACTED
    present = {key: value for key, value in labels.items() if isinstance(value, str) and value}
    usage: Any = fields.get("usage") or value_in(fields, "usageMetadata")
    return Answer(provider, messages, present, _json(usage) if usage else "", transcript, bool(partial), is_compaction)


def _is_of_unknown_vendor(provider: str, model: object) -> bool:
    """Return whether an unnamed vendor made the answer: OpenAI has no such model."""
    return provider in (CHAT, RESPONSES) and isinstance(model, str) and bool(model) and not is_openai_model(model)


def _transcript(answer: Map) -> str:
    audios = [map_at(choice, "message", "audio") for choice in maps_in(answer.get("choices"))]
    return "".join(audio["transcript"] for audio in audios if isinstance(audio.get("transcript"), str))


def _has_content(message: Map) -> bool:
    return any(value for key, value in message.items() if key not in _FRAME)


def _has_list(key: str) -> Callable[[Map], bool]:
    return lambda answer: isinstance(answer.get(key), list)


_SHAPES: Mapping[str, Callable[[Map], bool]] = {
    CHAT: _has_list("choices"),
    RESPONSES: _has_list("output"),
    BEDROCK: lambda answer: "message" in map_at(answer, "output"),
    GEMINI: lambda answer: isinstance(answer.get("candidates"), list) or bool(key_in(answer, "promptFeedback")),
    ANTHROPIC: lambda answer: answer.get("type") == "message" and isinstance(answer.get("content"), list),
}
"""Tells for each provider whether an answer has its shape."""


def _provider_of(response: object) -> str | None:
    answer = map_at(response)
    return next((provider for provider, fits in _SHAPES.items() if fits(answer)), None)


def _anthropic(answer: Map) -> _AnswerParts:
    content = answer.get("content")
    if answer.get("role") != "assistant" or not isinstance(content, (list, str)):
        raise _wrong(ANTHROPIC, answer, "a Message with content")
    for block in maps_in(cast("object", content)):
        block.pop("parsed_output", None)
    messages: list[Map] = [{"role": "assistant", "content": content}] if content else []
    return messages, answer.get("id"), answer.get("stop_reason")


def _chat(answer: Map) -> _AnswerParts:
    """Read a Chat Completion.

    The message of a vendor stays as it came, because vendors accept their own messages. For a model of OpenAI, what
    OpenAI's SDK and gateways add is removed, because OpenAI refuses it in requests.
    """
    choices = maps_in(answer.get("choices"))
    if not choices and answer.get("role") == "assistant" and "type" not in answer:
        choices = [{"message": answer}]
    if len(choices) != 1 or not isinstance(choices[0].get("message"), dict):
        raise _wrong(CHAT, answer, f"a Chat Completion with one choice, got {len(choices)} choices")
    choice = choices[0]
    message: Map = choice["message"]
    message.pop("parsed", None)
    is_own_model = is_openai_model(text_or_empty(answer.get("model")))
    audio = map_at(message, "audio")
    if audio.get("id"):
        message["audio"] = {"id": audio["id"]}  # the API accepts only the id
    for call in maps_in(message.get("tool_calls")):
        map_at(call, "function").pop("parsed_arguments", None)
        if is_own_model:
            call.pop("index", None)
    if is_own_model:
        placeholders = {
            "tool_calls": not message.get("tool_calls"),
            "function_call": is_no_call(message.get("function_call")),
            "audio": audio.get("id") == "",
        }
        for key in [key for key, is_placeholder in placeholders.items() if is_placeholder]:
            message.pop(key, None)
    return [message], answer.get("id"), choice.get("finish_reason")


def _responses(answer: Map) -> _AnswerParts:
    output = answer.get("output")
    if not isinstance(output, list):
        raise _wrong(RESPONSES, answer, "a Response with output")
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
        raise _wrong(BEDROCK, answer, "a Converse output with output.message")
    # The API refuses the empty texts that it returns.
    content = [block for block in cast("list[object]", content) if block != {"text": ""}]
    request_id = map_at(answer, "ResponseMetadata").get("RequestId")
    return [{**message, "content": content}] if content else [], request_id, answer.get("stopReason")


def _gemini(answer: Map) -> _AnswerParts:
    candidates = maps_in(answer.get("candidates"))
    block_reason = value_in(map_at(value_in(answer, "promptFeedback")), "blockReason")
    if not candidates and "parts" in answer:
        candidates = [{"content": answer}]
    if len(candidates) != 1 and not (block_reason and not candidates):
        raise _wrong(GEMINI, answer, f"a GenerateContentResponse with one candidate, got {len(candidates)} candidates")
    candidate = candidates[0] if candidates else {}
    content = map_at(candidate, "content")
    messages = [{"role": "model", **content}] if content.get("parts") else []
    return messages, value_in(answer, "responseId"), value_in(candidate, "finishReason") or block_reason


_READERS: dict[str, Callable[[Map], _AnswerParts]] = {
    ANTHROPIC: _anthropic,
    BEDROCK: _bedrock,
    GEMINI: _gemini,
    CHAT: _chat,
    RESPONSES: _responses,
}


def _json(usage: JsonValue) -> str:
    try:
        return encode_json(own_json(usage)).decode()
    except NotJson as error:
        raise DecodeError(f"usage{error.path} {error}") from error


def _wrong(provider: str, answer: Map, expected: str) -> DecodeError:
    keys = ", ".join(map(str, answer)) or "none"
    return DecodeError(f"an answer of {provider} must be {expected}; the keys of this one are: {keys}")
