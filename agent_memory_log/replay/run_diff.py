"""Where two runs part: the first event in which they differ, with both sides.

Compared is what happened, in append order: types and data. Event ids, times, durations and labels are left out, and a
call id stands for which call of the run it means, as every run has its own.
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
from agent_memory_log.replay.differences import Difference, describe_all, differences, json_in, shown
from agent_memory_log.snapshot import Snapshot

_JSON_TEXTS = ("payload", "result_json", "server_data")
_CALL_IDS = ("tool_call_id", "parent_tool_call_id")


class RunDiff(msgspec.Struct, frozen=True):
    """Where two runs part. As text, it is for people.

    - ``left``, ``right``: the names of the runs, ``AGENT/RUN``.
    - ``common``: how many events at the beginning are equal; ``same``: whether those are all.
    - ``left_event``, ``right_event``: the first that differ; None where that run has ended.
    - ``differences``: in what those two differ, with paths into their data, as ``payload.id``; ``type`` where they are
      of different types.
    """

    left: str
    right: str
    common: int
    left_event: Event | None = None
    right_event: Event | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether both runs hold the same."""
        return self.left_event is None and self.right_event is None

    def __str__(self) -> str:
        if self.same:
            return f"{self.left} and {self.right} hold the same {self.common} events"
        lines = [f"{self.left} and {self.right} part after {self.common} equal events"]
        lines += [
            f"  {name}: {'ends here' if event is None else _described(event)}"
            for name, event in ((self.left, self.left_event), (self.right, self.right_event))
        ]
        lines += [f"  {line}" for line in describe_all(self.differences, "left", "right")]
        return "\n".join(lines)


def diff(left: Snapshot, right: Snapshot) -> RunDiff:
    """Compare two runs, event by event in append order, up to the first that differ.

    JSON texts, as a call's arguments, are compared as JSON. Raises ``InvalidArgument`` for snapshots that hold only
    some types.

        found = diff(recorded, await store.load_run("support-agent", "run-43"))
        assert found.same, str(found)
    """
    names = f"{left.agent}/{left.run}", f"{right.agent}/{right.run}"
    for name, snapshot in zip(names, (left, right), strict=True):
        if snapshot.types is not None:
            raise InvalidArgument(f"runs are compared whole: load {name} without types")
    left_calls, right_calls = _CallNumbers(), _CallNumbers()
    for common, (one, two) in enumerate(zip_longest(left.log, right.log)):
        if one is None or two is None:
            return RunDiff(*names, common, one, two)
        if one.type != two.type:
            return RunDiff(*names, common, one, two, (Difference("type", one.type, two.type),))
        maps = [_comparable(one.data, left_calls), _comparable(two.data, right_calls)]
        _tell_text_from_json(maps, (one.data, two.data))
        found = differences(*maps)
        if found:
            return RunDiff(*names, common, one, two, tuple(found))
    return RunDiff(*names, len(left.log))


def _described(event: Event) -> str:
    """An event on a line, in short: ``event 7, tool_call {"tool_name": …}``."""
    data = {key: value for key, value in event.data.to_map().items() if key not in _CALL_IDS}
    return f"event {event.seq}, {event.type} {shown(data)}"


class _CallNumbers:
    """Which call of a run an id means, as a number: ids are used more than once, and differ from run to run."""

    def __init__(self) -> None:
        self._count = 0
        self._pairing: Pairing[str] = Pairing()

    def ids_of(self, data: EventData) -> dict[str, JsonValue]:
        """What stands for the call ids of a payload."""
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


def _tell_text_from_json(maps: list[dict[str, JsonValue]], payloads: tuple[EventData, EventData]) -> None:
    """Text that is no JSON is not the JSON string of the same letters, though both are compared as that text."""
    for key in _JSON_TEXTS:
        if isinstance(maps[0].get(key), str) and maps[0][key] == maps[1].get(key):
            written = [data.to_map()[key] for data in payloads]
            if any(text == maps[0][key] for text in written):
                maps[0][key], maps[1][key] = written


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
