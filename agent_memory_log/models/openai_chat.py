"""The adapter for Chat Completions of OpenAI and of compatible servers. It uses the official ``openai`` client.

The client's own retries are off, for two reasons. Their pauses cannot be configured. The client's timeout applies to
each read and not to the whole call, so several slow attempts would exceed the time limit.
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
"""The model that is used if neither the call nor ``OPENAI_MODEL`` names one."""

_SHOWN_CHARS = 200
_TEMPORARY = frozenset({408, 409, 425, 429})
_SERVER_ERROR = 500


class _TemporaryFailure(Exception):
    """A failure that a retry may solve. ``pause`` is the wait in seconds that the server asked for, or None."""

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
    """A model on an OpenAI-compatible server. It answers with a JSON object, at temperature 0.

    Temporary failures are retried: a missing or broken connection, and the statuses 408, 409, 425, 429 and 500 or
    above. The pause before a retry doubles each time, unless the server asks for another pause. There is no retry if
    the pause would exceed the call's time limit.

    Use the model in a ``with`` block, or call ``close``. Threads may share it.

    Args:
        settings: The model and the limits. By default, they come from the environment.
        api_key: The API key. By default, it comes from ``OPENAI_API_KEY``.

    Raises:
        InvalidArgument: The key is missing or invalid, or the extra ``memory`` is not installed.
    """

    def __init__(self, settings: ModelSettings | None = None, *, api_key: str | None = None) -> None:
        self._settings = settings or ModelSettings.from_environment()
        key = _checked_key(os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key)
        try:
            import openai  # noqa: PLC0415  # an optional dependency that is slow to import
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
        """Close the model's connections."""
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
        """Ask the model; see ``ModelPort.complete``.

        If the server stops in the middle of its answer, the call may take up to twice ``timeout``.
        """
        deadline = Deadline(min(timeout, self._settings.timeout_seconds))
        question = _with_contract(messages, schema)
        name = model or self._settings.name or DEFAULT_MODEL
        attempt = 1
        while True:
            try:
                return _read(self._ask(question, name, max_tokens, deadline))
            except _TemporaryFailure as failure:
                pause = failure.pause
                if pause is None:
                    # Clients that were refused at the same time must not all retry at the same time.
                    spread = random.uniform(0.75, 1)  # noqa: S311  # no secret
                    pause = self._settings.backoff_seconds * 2 ** (attempt - 1) * spread
                if attempt >= self._settings.attempts or pause >= deadline.left():
                    raise failure.error from failure.__cause__
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
            raise _TemporaryFailure(
                ModelTimeout(f"the model's server cannot be reached or is too slow: {error}")
            ) from error
        except self._openai.OpenAIError as error:
            raise ModelUnavailable(f"the model could not be asked: {error}") from error
        except Exception as error:  # the transport's errors differ between releases of the client
            raise _TemporaryFailure(ModelTimeout(f"the connection broke while the model answered: {error}")) from error
        if body is None:
            raise ModelTimeout("the model's answer did not end in time")
        return body


def _received(parts: Iterable[bytes], end: Deadline) -> bytes | None:
    """Return the body of an answer, or None if it did not end in time."""
    body = bytearray()
    for part in parts:
        body += part
        if end.has_passed:
            return None
    return bytes(body)


def _checked_key(key: str) -> str:
    if not key.strip():
        raise InvalidArgument("OPENAI_API_KEY is not set; set it or pass api_key (a local server accepts any text)")
    if not (key.isascii() and key.isprintable()):
        raise InvalidArgument("OPENAI_API_KEY has characters that are invalid in an HTTP header, such as a line break")
    return key


def _with_contract(
    messages: Sequence[ModelMessage], schema: Mapping[str, JsonValue]
) -> list[ChatCompletionMessageParam]:
    """Return the messages with the schema as an instruction. Providers require the word JSON in a message."""
    schema_text = encode_json(dict(schema)).decode()
    contract = f"Answer with one JSON object, and nothing else, that fits this JSON schema:\n{schema_text}"
    request: list[ChatCompletionMessageParam] = []
    for index, message in enumerate(messages):
        try:
            check_text(message.content, "")
        except NotJson as error:
            raise InvalidArgument(f"messages[{index}].content {error}") from error
        request.append(cast("ChatCompletionMessageParam", {"role": message.role, "content": message.content}))
    position = next((index + 1 for index, message in enumerate(messages) if message.role == "system"), 0)
    request.insert(position, {"role": "system", "content": contract})
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


def _refused(error: APIStatusError) -> ModelFailed | _TemporaryFailure:
    reason = " ".join(error.message.split())[:_SHOWN_CHARS]
    failure = ModelUnavailable(f"the model's server answered {error.status_code}: {reason}")
    headers = error.response.headers
    if error.status_code not in _TEMPORARY and error.status_code < _SERVER_ERROR:
        return failure
    if headers.get("x-should-retry") == "false":
        return failure
    return _TemporaryFailure(failure, _requested_pause(headers.get("retry-after")))


def _requested_pause(header: str | None) -> float | None:
    """Return the seconds to wait from a ``retry-after`` header with a number or a date. None means no valid header."""
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
