"""Converts the response objects of SDKs to plain maps and lists, without importing any SDK.

The objects are pydantic models. They are dumped as the SDKs dump them for the next request: with the wire names, and
without fields that the provider did not send.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Any, cast

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.fields import describe

Map = dict[str, Any]


def stream_of(response: object) -> object | None:
    """Return the stream in ``response``, or None. A Converse output has its stream in ``stream``."""
    if isinstance(response, Mapping):
        return cast("Mapping[str, object]", response).get("stream")
    if isinstance(response, (str, bytes)) or _dump_of(response) is not None:
        return None
    return cast("object", response) if isinstance(response, (Iterable, AsyncIterable)) else None


def read_stream(response: object) -> object:
    """Return ``response``, or the list of its events if it is a stream.

    Raises ``InvalidArgument`` for an asynchronous stream.
    """
    stream = stream_of(response)
    if stream is None:
        return response
    if not isinstance(stream, Iterable):
        raise InvalidArgument(
            f"a SyncRunRecorder cannot read the asynchronous stream {describe(stream)}; use a RunRecorder"
        )
    return list(cast("Iterable[object]", stream))


async def read_stream_async(response: object) -> object:
    """Return ``response``, or the list of its events if it is a stream of either kind."""
    stream = stream_of(response)
    if not isinstance(stream, AsyncIterable):
        return read_stream(response)
    return [event async for event in cast("AsyncIterable[object]", stream)]


def without_sdk_objects(value: object) -> object:
    """Return ``value`` with each SDK object replaced by a map. Bytes stay bytes.

    Raises ``DecodeError`` if an object cannot be dumped as JSON.
    """
    dump = _dump_of(value)
    if dump is not None:
        try:
            return dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
        except (TypeError, ValueError) as error:
            raise DecodeError(f"a {type(value).__name__} cannot be read as JSON: {error}") from error
    if isinstance(value, Mapping):
        return {key: without_sdk_objects(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [without_sdk_objects(item) for item in cast("Sequence[object]", value)]
    return value


def without_bytes(value: object) -> Any:  # noqa: ANN401  # JSON of any shape
    """Return ``value`` with bytes as base64 text, which is their form on the wire."""
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
