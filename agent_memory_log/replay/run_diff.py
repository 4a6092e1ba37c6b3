"""Compares two runs and finds the first event in which they differ.

It compares the types and data of the events in append order. It ignores event ids, times, durations and labels. Each
run has its own call ids, so a call id counts as the number of its call in the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import EventData, ToolCall, ToolResult
from agent_memory_log.pairing import Pairing
from agent_memory_log.replay.differences import Difference, describe_all, differences, json_in, short_json
from agent_memory_log.snapshot import Snapshot, require_snapshot

_JSON_TEXTS = ("payload", "result_json", "server_data")
_CALL_IDS = ("tool_call_id", "parent_tool_call_id")


class RunDiff(msgspec.Struct, frozen=True):
    """The result of comparing two runs. ``str()`` gives a readable report.

    Attributes:
        left: The name of the left run, ``AGENT/RUN``.
        right: The name of the right run.
        common: The number of equal events at the beginning.
        left_event: The first event of the left run that differs, or None if the left run ends there.
        right_event: The first event of the right run that differs, or None if the right run ends there.
        differences: The differences between the two events, with paths into their data such as ``payload.id``. For
            events of different types, the path is ``type``.
    """

    left: str
    right: str
    common: int
    left_event: Event | None = None
    right_event: Event | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        """True if the runs have no difference."""
        return self.left_event is None and self.right_event is None

    def __str__(self) -> str:
        if self.same:
            return f"{self.left} and {self.right} have the same {self.common} events"
        lines = [f"{self.left} and {self.right} differ after {self.common} equal events"]
        lines += [
            f"  {name}: {'ends here' if event is None else _described(event)}"
            for name, event in ((self.left, self.left_event), (self.right, self.right_event))
        ]
        lines += [f"  {line}" for line in describe_all(self.differences, "left", "right")]
        return "\n".join(lines)


def diff(left: Snapshot, right: Snapshot) -> RunDiff:
    """Compare two runs event by event in append order, up to the first difference.

    JSON texts, such as a call's arguments, are compared as JSON. Raises ``InvalidArgument`` if a snapshot was loaded
    with ``types``.

        comparison = diff(recorded, await store.load_run("support-agent", "run-43"))
        assert comparison.same, str(comparison)
    """
    require_snapshot(left)
    require_snapshot(right)
    names = f"{left.agent}/{left.run}", f"{right.agent}/{right.run}"
    for name, snapshot in zip(names, (left, right), strict=True):
        if snapshot.types is not None:
            raise InvalidArgument(f"a comparison needs the whole run; load {name} without types")
    left_calls, right_calls = _CallNumbers(), _CallNumbers()
    for common, (event, other) in enumerate(zip_longest(left.log, right.log)):
        if event is None or other is None:
            return RunDiff(*names, common, event, other)
        if event.type != other.type:
            return RunDiff(*names, common, event, other, (Difference("type", event.type, other.type),))
        maps = [_comparable(event.data, left_calls), _comparable(other.data, right_calls)]
        _restore_texts(maps, (event.data, other.data))
        event_differences = differences(*maps)
        if event_differences:
            return RunDiff(*names, common, event, other, tuple(event_differences))
    return RunDiff(*names, len(left.log))


def _described(event: Event) -> str:
    """Return an event as one short line, such as ``event 7, tool_call {"tool_name": …}``."""
    data = {key: value for key, value in event.data.to_map().items() if key not in _CALL_IDS}
    return f"event {event.seq}, {event.type} {short_json(data)}"


class _CallNumbers:
    """Replaces call ids by call numbers: ids differ from run to run, and a run may use an id twice."""

    def __init__(self) -> None:
        self._count = 0
        self._pairing: Pairing[str] = Pairing()

    def ids_of(self, data: EventData) -> dict[str, JsonValue]:
        """Return the replacements for the call ids of a payload."""
        if not isinstance(data, (ToolCall, ToolResult)):
            return {}
        parent: dict[str, JsonValue] = {}
        if data.parent_tool_call_id:
            parent["parent_tool_call_id"] = self._pairing.parent_of(data) or "call of another run"
        if isinstance(data, ToolResult):
            return {"tool_call_id": self._pairing.add_result(data) or "no open call", **parent}
        self._count += 1
        number = f"call {self._count}"
        self._pairing.add_call(data, number)
        return {"tool_call_id": number, **parent}


def _restore_texts(maps: list[dict[str, JsonValue]], payloads: tuple[EventData, EventData]) -> None:
    """Put the stored texts back if plain text meets a JSON string with the same letters, so that the two differ."""
    for key in _JSON_TEXTS:
        if isinstance(maps[0].get(key), str) and maps[0][key] == maps[1].get(key):
            texts = [data.to_map()[key] for data in payloads]
            if any(text == maps[0][key] for text in texts):
                maps[0][key], maps[1][key] = texts


def _comparable(data: EventData, calls: _CallNumbers) -> dict[str, JsonValue]:
    compared = data.to_map() | calls.ids_of(data)
    if not isinstance(data, (ToolCall, ToolResult)):
        return compared
    compared.pop("duration", None)
    telemetry = compared.get("telemetry")
    if isinstance(telemetry, Mapping):
        compared["telemetry"] = {key: value for key, value in telemetry.items() if key != "DurationMs"}
    for key in _JSON_TEXTS:
        text = compared.get(key)
        if isinstance(text, str):
            compared[key] = json_in(text)
    return compared
