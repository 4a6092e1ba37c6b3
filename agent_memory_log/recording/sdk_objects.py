"""Converts the response objects of SDKs to plain maps and lists, without importing any SDK.

The objects are pydantic models. They are dumped as the SDKs dump them for the next request: with the wire names, and
without fields that the provider did not send.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.fields import describe

Map = dict[str, Any]

_SCALARS = frozenset({str, int, float, bool, type(None)})
"""Types of values that are the same in JSON. Most values of an answer have one of them, so they are tested first."""

_HELPER_EVENTS = frozenset(
    {
        "content.delta",
        "content.done",
        "refusal.delta",
        "refusal.done",
        "tool_calls.function.arguments.delta",
        "tool_calls.function.arguments.done",
        "logprobs.content.delta",
        "logprobs.content.done",
        "logprobs.refusal.delta",
        "logprobs.refusal.done",
        "text",
        "thinking",
        "signature",
        "citation",
        "input_json",
        "compaction",
    }
)
"""The types of the events that only the stream helpers of OpenAI and Anthropic send."""


def stream_of(response: object) -> object | None:
    """Return the stream in ``response``, or None. A Converse output has its stream in ``stream``."""
    if isinstance(response, Mapping):
        return cast("Mapping[str, object]", response).get("stream")
    if isinstance(response, (str, bytes)) or _dump_of(response) is not None:
        return None
    return cast("object", response) if isinstance(response, (Iterable, AsyncIterable)) else None


class Received(NamedTuple):
    """A response as the recorder received it.

    Attributes:
        response: The response, or the list of its events if it is a stream.
        failure: The exception that ended the stream, or None.
    """

    response: object
    failure: BaseException | None = None


def read_stream(response: object) -> Received:
    """Read ``response`` to its end if it is a stream. Raises ``InvalidArgument`` for an asynchronous stream."""
    stream = stream_of(response)
    if stream is None:
        return Received(response)
    if not isinstance(stream, Iterable):
        raise InvalidArgument(
            f"a SyncRunRecorder cannot read the asynchronous stream {describe(stream)}; use a RunRecorder"
        )
    events: list[object] = []
    try:
        for event in cast("Iterable[object]", stream):
            events += _raw_events(event)
    except BaseException as failure:  # noqa: BLE001  # the recorder raises it again
        return Received(events, failure)
    return Received(events)


async def read_stream_async(response: object) -> Received:
    """Read ``response`` to its end if it is a stream of either kind."""
    stream = stream_of(response)
    if not isinstance(stream, AsyncIterable):
        return read_stream(response)
    events: list[object] = []
    try:
        async for event in cast("AsyncIterable[object]", stream):
            events += _raw_events(event)
    except BaseException as failure:  # noqa: BLE001  # the recorder raises it again
        return Received(events, failure)
    return Received(events)


def _raw_events(event: object) -> list[object]:
    """Return the provider's event in an event of an SDK's stream helper.

    The helpers of OpenAI and Anthropic add events of their own. These events only repeat what the provider's events
    say, and many of them hold the whole answer up to that point.
    """
    kind, chunk = (_field(event, "type"), _field(event, "chunk"))
    if kind == "chunk" and chunk is not None:
        return [chunk]
    return [] if isinstance(kind, str) and kind in _HELPER_EVENTS else [event]


def _field(event: object, name: str) -> object:
    if isinstance(event, Mapping):
        return cast("Mapping[str, object]", event).get(name)
    return getattr(event, name, None)


def without_sdk_objects(value: object) -> object:
    """Return ``value`` with each SDK object replaced by a map. Bytes stay bytes.

    Raises ``DecodeError`` if an object cannot be dumped as JSON, or if a key is not text.
    """
    if type(value) in _SCALARS:
        return value
    dump = _dump_of(value)
    if dump is not None:
        try:
            dumped: object = dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
            if map_at(getattr(value, "model_config", None)).get("ser_json_bytes") != "base64":
                return dumped
            # Google's SDK decodes base64. pydantic would encode it again with another alphabet than the API's.
            return _with_bytes(dumped, dump(by_alias=True, exclude_unset=True, warnings=False))
        except (TypeError, ValueError) as error:
            raise DecodeError(f"a {type(value).__name__} cannot be read as JSON: {error}") from error
    if isinstance(value, Mapping):
        return {_key(key): without_sdk_objects(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [without_sdk_objects(item) for item in cast("Sequence[object]", value)]
    return value


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise DecodeError(f"the keys of an answer must be text, got {describe(key)}")
    return key


def _with_bytes(dumped: object, plain: object) -> object:
    """Return ``dumped``, a dump as JSON, with the bytes of ``plain``, the dump of the same object as Python values."""
    if isinstance(plain, Mapping):
        values, plain_values = cast("Map", dumped), cast("Mapping[str, object]", plain)
        return {key: _with_bytes(item, plain_values.get(key)) for key, item in values.items()}
    if isinstance(plain, (list, tuple)):
        items, plain_items = cast("list[object]", dumped), cast("Sequence[object]", plain)
        return [_with_bytes(item, other) for item, other in zip(items, plain_items, strict=True)]
    return plain if isinstance(plain, bytes) else dumped


def without_bytes(value: object) -> Any:  # noqa: ANN401  # JSON of any shape
    """Return ``value`` with bytes as base64 text, which is their form on the wire."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: without_bytes(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list):
        return [without_bytes(item) for item in cast("list[object]", value)]
    return value


def maps_in(value: object) -> list[Map]:
    """Return the maps in a list, or an empty list if ``value`` is not a list."""
    return (
        [cast("Map", item) for item in cast("list[object]", value) if isinstance(item, dict)]
        if isinstance(value, list)
        else []
    )


def map_at(value: object, *keys: str) -> Map:
    """Return the map at a path of keys, or an empty map if the path does not lead to a map."""
    for key in keys:
        value = cast("Map", value).get(key) if isinstance(value, dict) else None
    return cast("Map", value) if isinstance(value, dict) else {}


def _dump_of(value: object) -> Any:  # noqa: ANN401  # a method of pydantic
    if isinstance(value, type):
        return None
    dump = getattr(value, "model_dump", None)
    return dump if callable(dump) else None
