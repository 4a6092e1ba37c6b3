"""Makes a client of an SDK whose requests are answered by a function and never leave the process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, Literal, Protocol

from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument
from agent_memory_log.events.jsonvalue import decode_json, encode_json
from agent_memory_log.replay.clients.answers import Map, answer_body
from agent_memory_log.replay.clients.streams import answer_stream
from agent_memory_log.replay.expectations import ModelTurn
from agent_memory_log.transcript.anthropic.rendering import PROVIDER as ANTHROPIC
from agent_memory_log.transcript.json_types import map_in
from agent_memory_log.transcript.openai_chat.rendering import PROVIDER as CHAT
from agent_memory_log.transcript.openai_responses.rendering import PROVIDER as RESPONSES

PATHS: Mapping[str, Mapping[str, str]] = {
    "openai": {"/chat/completions": CHAT, "/responses": RESPONSES, "/responses/compact": RESPONSES},
    "anthropic": {"/messages": ANTHROPIC},
}
"""For each SDK: the paths that a replay answers, and their providers."""

ClientClass = Literal["OpenAI", "AsyncOpenAI", "Anthropic", "AsyncAnthropic"]

AnswerRequest = Callable[[Map], ModelTurn]
"""Checks the body of a request and returns the recorded turn that answers it."""


class _Url(Protocol):
    path: str


class _HttpRequest(Protocol):
    method: str
    url: _Url
    content: bytes


def replayed_client(name: ClientClass, provider: str, answer: AnswerRequest) -> object:
    """Return a client of an SDK.

    Args:
        name: The class of the client.
        provider: The provider of the replayed messages.
        answer: Answers each request.

    Raises:
        InvalidArgument: The SDK does not speak to ``provider``, or it is not installed.
    """
    package = "openai" if name.endswith("OpenAI") else "anthropic"
    if provider not in PATHS[package].values():
        providers = " or ".join(map(repr, PATHS[package].values()))
        raise InvalidArgument(f"an {package} client needs messages of {providers}; pass it as the replayer's provider")
    try:
        sdk: Any = import_module(package)
    except ImportError as error:
        raise InvalidArgument(
            f"a replayed {package} client needs the SDK, which cannot be imported ({error}): pip install {package}"
        ) from error
    is_async = name.startswith("Async")
    http_client_class: type = sdk.DefaultAsyncHttpxClient if is_async else sdk.DefaultHttpxClient
    # The SDK's versions use different versions of its HTTP package.
    http: Any = import_module(next(kind.__module__ for kind in http_client_class.__mro__ if _is_http(kind)))

    def send(request: _HttpRequest) -> object:
        kind, content = _answered(package, provider, answer, request)
        return http.Response(200, headers={"content-type": kind}, content=content)

    base: Any = getattr(sdk, name)
    request = (_request_async if is_async else _request)(base.request)
    client_class: Any = type(name, (base,), {"request": request})
    client: object = client_class(
        api_key="replayed",
        base_url="http://replay.invalid/v1" if package == "openai" else "http://replay.invalid",
        max_retries=0,
        http_client=http_client_class(transport=http.MockTransport(send)),
    )
    return client


def _is_http(kind: type) -> bool:
    return kind.__module__.startswith("httpx")


def _answered(package: str, provider: str, answer: AnswerRequest, request: _HttpRequest) -> tuple[str, bytes]:
    """Return the content type and the content of the answer to an HTTP request."""
    path = next((path for path in PATHS[package] if request.url.path.endswith(path)), None)
    if path is None or request.method != "POST":
        answered_paths = ", ".join(f"POST {path}" for path in PATHS[package])
        raise InvalidArgument(
            f"a replay has no answer for {request.method} {request.url.path}; it answers only: {answered_paths}"
        )
    if PATHS[package][path] != provider:
        raise InvalidArgument(
            f"the agent sends a request of {PATHS[package][path]}, but the replayer has messages of {provider}: "
            "pass the other provider to the replayer"
        )
    body = map_in(decode_json(request.content))
    turn = answer(body)
    answered = answer_body(turn, provider, str(body.get("model", "")))
    if body.get("stream") is not True:
        return "application/json", encode_json(answered)
    error = turn.events[0].labels.get("error", "")
    with_usage = map_in(body.get("stream_options")).get("include_usage") is True
    content = answer_stream(answered, provider, with_usage=with_usage, partial=turn.partial, error=error)
    return "text/event-stream", content


def _request(send: Callable[..., object]) -> Callable[..., object]:
    """Return the method ``request`` of a client class.

    It raises an error of this library as it is. The SDKs make it the cause of a connection error.
    """

    @wraps(send)
    def request(*args: object, **options: object) -> object:
        try:
            return send(*args, **options)
        except Exception as error:
            if isinstance(error.__cause__, AgentMemoryLogError):
                raise error.__cause__ from None
            raise

    return request


def _request_async(send: Callable[..., Awaitable[object]]) -> Callable[..., object]:
    """Return the method ``request`` of an asynchronous client class."""

    @wraps(send)
    async def request(*args: object, **options: object) -> object:
        try:
            return await send(*args, **options)
        except Exception as error:
            if isinstance(error.__cause__, AgentMemoryLogError):
                raise error.__cause__ from None
            raise

    return request
