"""The adapter on the official ``openai`` client: Chat Completions of OpenAI, and of every server that speaks the same.

The client's own retries are off: their pauses cannot be set, and its timeout is one of each read, not of the whole
call, so that a server which is slow three times over would be waited for three times over.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import msgspec

from agent_memory_log.errors import (
    InvalidArgument,
    ModelEmpty,
    ModelFailed,
    ModelInvalidJson,
    ModelInvalidSchema,
    ModelTimeout,
    ModelUnavailable,
)
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, check_text, encode_json
from agent_memory_log.models.deadline import Deadline
from agent_memory_log.models.port import Completion, ModelMessage
from agent_memory_log.models.settings import ModelSettings

if TYPE_CHECKING:
    from openai import APIStatusError
    from openai.types.chat import ChatCompletionMessageParam

DEFAULT_MODEL = "gpt-4.1-mini"
"""What is asked where neither the call nor ``OPENAI_MODEL`` says which model."""

_SHOWN_CHARS = 200
_PASSING = frozenset({408, 409, 425, 429})
_SERVER_ERROR = 500


class _Passing(Exception):
    """A failure whose cause may pass; ``pause`` is what the server asked for, in seconds."""

    def __init__(self, error: ModelFailed, pause: float | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.pause = pause


class _AnswerMessage(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _AnswerMessage


class _ChatCompletion(msgspec.Struct):
    choices: list[_Choice]
    usage: dict[str, object] | None = None


class OpenAIModel:
    """A model behind an OpenAI-compatible server; asked for a JSON object at temperature 0.

    What fails for a cause that may pass (no connection, a broken one, 408, 409, 425, 429, 500 and above) is tried
    again, after a pause that doubles or the one that the server asks for, as long as the call's time allows.

    ``settings``: from the environment unless given; ``api_key``: ``OPENAI_API_KEY`` unless given. Raises
    ``InvalidArgument`` when there is no key, or the extra ``memory`` is not installed. Close it, or use it in a
    ``with`` block; threads may share it.
    """

    def __init__(self, settings: ModelSettings | None = None, *, api_key: str | None = None) -> None:
        self._settings = settings or ModelSettings.from_environment()
        key = _checked_key(os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key)
        try:
            import openai  # noqa: PLC0415  # only who asks a model needs it, and it is slow to import
        except ImportError as error:
            raise InvalidArgument(
                "the openai client cannot be imported: pip install 'agent-memory-log[memory]'"
            ) from error
        self._openai = openai
        self._client = openai.OpenAI(api_key=key, base_url=self._settings.base_url, max_retries=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def complete(
        self,
        messages: Sequence[ModelMessage],
        *,
        schema: Mapping[str, JsonValue],
        max_tokens: int,
        timeout: float,
        model: str = "",
    ) -> Completion:
        """See ``ModelPort.complete``. A server that goes silent in the middle of its answer may cost twice the time."""
        deadline = Deadline(min(timeout, self._settings.timeout_seconds))
        question = _with_contract(messages, schema)
        name = model or self._settings.name or DEFAULT_MODEL
        attempt = 1
        while True:
            try:
                return _read(self._ask(question, name, max_tokens, deadline))
            except _Passing as passing:
                pause = passing.pause
                if pause is None:
                    # Not all at once, where many were refused together.
                    spread = random.uniform(0.75, 1)  # noqa: S311  # no secret
                    pause = self._settings.backoff_seconds * 2 ** (attempt - 1) * spread
                if attempt >= self._settings.attempts or pause >= deadline.left():
                    raise passing.error from passing.__cause__
            time.sleep(pause)
            attempt += 1

    def _ask(self, messages: Sequence[ChatCompletionMessageParam], model: str, max_tokens: int, end: Deadline) -> bytes:
        left = end.left()
        if left <= 0:
            raise ModelTimeout("no time was left to ask the model")
        try:
            with self._client.chat.completions.with_streaming_response.create(
                model=model,
                messages=list(messages),
                temperature=0,
                max_tokens=max_tokens,
                response_format={"type": "json_object"},
                timeout=left,
            ) as response:
                body = _received(response.iter_bytes(), end)
        except self._openai.APIStatusError as error:
            raise _refused(error) from error
        except self._openai.APIConnectionError as error:
            raise _Passing(ModelTimeout(f"the model's server cannot be reached, or was too slow: {error}")) from error
        except self._openai.OpenAIError as error:
            raise ModelUnavailable(f"the model could not be asked: {error}") from error
        except Exception as error:  # the transport's own, which differs between the client's releases
            raise _Passing(ModelTimeout(f"the connection broke while the model answered: {error}")) from error
        if body is None:
            raise ModelTimeout("the model's answer did not end in time")
        return body


def _received(parts: Iterable[bytes], end: Deadline) -> bytes | None:
    """The whole of an answer that arrives in parts; None where it did not in time."""
    body = bytearray()
    for part in parts:
        body += part
        if end.has_passed:
            return None
    return bytes(body)


def _checked_key(key: str) -> str:
    if not key.strip():
        raise InvalidArgument("OPENAI_API_KEY is not set: set it, or pass api_key; a local server takes any text")
    if not (key.isascii() and key.isprintable()):
        raise InvalidArgument("OPENAI_API_KEY has characters that no HTTP header can hold, as a line break is")
    return key


def _with_contract(
    messages: Sequence[ModelMessage], schema: Mapping[str, JsonValue]
) -> list[ChatCompletionMessageParam]:
    """The messages, with the schema as an instruction: providers want the word JSON said when they are to write it."""
    schema_text = encode_json(dict(schema)).decode()
    contract = f"Answer with one JSON object, and nothing else, that fits this JSON schema:\n{schema_text}"
    request: list[ChatCompletionMessageParam] = []
    for place, message in enumerate(messages):
        try:
            check_text(message.content, "")
        except NotJson as error:
            raise InvalidArgument(f"messages[{place}].content {error}") from error
        request.append(cast("ChatCompletionMessageParam", {"role": message.role, "content": message.content}))
    place = next((place + 1 for place, message in enumerate(messages) if message.role == "system"), 0)
    request.insert(place, {"role": "system", "content": contract})
    return request


def _read(body: bytes) -> Completion:
    try:
        decoded: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelInvalidJson(f"the model's server sent no JSON: {error}") from error
    try:
        answer = msgspec.convert(decoded, _ChatCompletion)
    except msgspec.ValidationError as error:
        raise ModelInvalidSchema(f"the model's server sent no chat completion: {error}") from error
    if not answer.choices:
        raise ModelInvalidSchema("the model's server sent no choices")
    text = answer.choices[0].message.content
    if text is None or not text.strip():
        raise ModelEmpty("the model's answer is empty")
    return Completion(text, {name: count for name, count in (answer.usage or {}).items() if type(count) is int})


def _refused(error: APIStatusError) -> ModelFailed | _Passing:
    reason = " ".join(error.message.split())[:_SHOWN_CHARS]
    failure = ModelUnavailable(f"the model's server answered {error.status_code}: {reason}")
    headers = error.response.headers
    if error.status_code not in _PASSING and error.status_code < _SERVER_ERROR:
        return failure
    if headers.get("x-should-retry") == "false":
        return failure
    return _Passing(failure, _asked_pause(headers.get("retry-after")))


def _asked_pause(header: str | None) -> float | None:
    """The seconds that a server asks to wait, given as a number or as a date; None where it does not say."""
    if header is None:
        return None
    try:
        pause = float(header)
    except ValueError:
        try:
            pause = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, pause) if isfinite(pause) else None
