"""The maps inside a payload's map: ``Bounds`` and ``ToolTelemetry`` of a tool result, and references to events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import msgspec

from agent_memory_log.events.fields import NO_UNKNOWN, Int64, Unknown, read_struct
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.writing import struct_to_map


class NestedMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """A map inside a payload's map. Other programs spell its keys in several ways.

    msgspec would treat a key in another spelling as a missing field. ``forbid_unknown_fields`` makes it fail instead,
    and ``read_struct`` then reads the map.

    Attributes:
        unknown_fields: The keys that this release does not know, or ``msgspec.UNSET``. They are written back.
    """

    __loose_keys__: ClassVar[bool] = True
    __map_name__: ClassVar[str]

    unknown_fields: Unknown = NO_UNKNOWN

    def to_map(self) -> dict[str, JsonValue]:
        """Return the fields as a new map with the keys of the wire contract."""
        return struct_to_map(self, self.__map_name__)

    @classmethod
    def from_map(cls, data: Mapping[str, object]) -> Self:
        """Read a map with keys in CamelCase, any other case or snake_case. Raises ``DecodeError``, with the field."""
        return read_struct(cls, data, cls.__map_name__)


class Bounds(NestedMap, frozen=True, rename="pascal"):
    """The limits of a tool result that holds only a part of the data. Every field is always written.

    Attributes:
        returned: The number of items in the result.
        total: The number of items that exist, or None if it is unknown.
        truncated: Whether the result was shortened.
        next_cursor: The cursor for the next items, or None.
        refinement_hint: Advice for a narrower request.
    """

    __map_name__ = "bounds"

    returned: Int64 = 0
    total: Int64 | None = None
    truncated: bool = False
    next_cursor: str | None = None
    refinement_hint: str = ""


class ToolTelemetry(NestedMap, frozen=True, rename="pascal"):
    """The cost of running a tool. Every field is always written.

    Attributes:
        duration_ms: The duration in milliseconds.
        tokens_used: The number of model tokens that the tool used.
        model: The model that the tool used.
        extra: A map of further measurements, or None.
    """

    __map_name__ = "telemetry"

    duration_ms: Int64 = 0
    tokens_used: Int64 = 0
    model: str = ""
    extra: Mapping[str, JsonValue] | None = None


class EventPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reference to an event of a run.

    Attributes:
        agent: The agent of the run. *Always written*.
        run: The id of the run. *Always written*.
        seq: The seq of the event. *Always written*.
        event_id: The id of the event, or ``""``.
    """

    agent: str
    run: str
    seq: Int64
    event_id: str = ""
