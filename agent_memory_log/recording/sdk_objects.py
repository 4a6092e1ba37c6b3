"""What SDKs return as plain maps and lists, without importing any SDK.

Their objects are pydantic models, and are dumped as the SDKs do it when an object is sent back: by the names on the
wire, and without what the provider did not send. What an SDK adds on its own side (``parsed`` and the like) goes.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Any, cast

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.fields import describe

Map = dict[str, Any]


def stream_of(response: object) -> object | None:
    """The stream to be read where ``response`` is one, or holds one as Converse's output does; None where it is not."""
    if isinstance(response, Mapping):
        return cast("Mapping[str, object]", response).get("stream")
    if isinstance(response, (str, bytes)) or _dump_of(response) is not None:
        return None
    return cast("object", response) if isinstance(response, (Iterable, AsyncIterable)) else None


def read_stream(response: object) -> object:
    """``response``, read to its end where it is a stream. Raises ``InvalidArgument`` for one that must be awaited."""
    stream = stream_of(response)
    if stream is None:
        return response
    if not isinstance(stream, Iterable):
        raise InvalidArgument(
            f"a SyncRunRecorder cannot read {describe(stream)}, which must be awaited: use a RunRecorder"
        )
    return list(cast("Iterable[object]", stream))


async def read_stream_async(response: object) -> object:
    """``response``, read to its end where it is a stream of either kind."""
    stream = stream_of(response)
    if not isinstance(stream, AsyncIterable):
        return read_stream(response)
    return [event async for event in cast("AsyncIterable[object]", stream)]


def without_sdk_objects(value: object) -> object:
    """``value`` with every SDK object in it as the map it came as; bytes stay. Raises ``DecodeError``."""
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


def without_bytes(value: object) -> Any:  # noqa: ANN401  # JSON, to be taken apart
    """``value`` with bytes as base64 text, as they are on the wire."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: without_bytes(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list):
        return [without_bytes(item) for item in cast("list[object]", value)]
    return value


def maps_in(value: object) -> list[Map]:
    """The maps in a list; none where it is no list."""
    return (
        [cast("Map", item) for item in cast("list[object]", value) if isinstance(item, dict)]
        if isinstance(value, list)
        else []
    )


def map_at(value: object, *keys: str) -> Map:
    """The map at these keys, one inside the other; an empty one where there is none."""
    for key in keys:
        value = cast("Map", value).get(key) if isinstance(value, dict) else None
    return cast("Map", value) if isinstance(value, dict) else {}


def _dump_of(value: object) -> Any:  # noqa: ANN401  # pydantic's method, whose parameters are its own
    if isinstance(value, type):
        return None
    dump = getattr(value, "model_dump", None)
    return dump if callable(dump) else None
