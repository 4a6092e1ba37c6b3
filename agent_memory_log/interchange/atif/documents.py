"""The parts of an ATIF document that this library reads, and the checks of a document with error paths.

Unknown fields and newer minor versions are accepted, and the unknown fields are stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, cast

import msgspec

from agent_memory_log.errors import DecodeError, SchemaTooNew
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_json

SCHEMA_VERSION = "ATIF-v1.8"
"""The version that this library writes."""

EXTRA_KEY = "agent_memory_log"
"""The key in ``extra`` for data that has no field in ATIF."""

_MAJOR = 1
_VERSION = re.compile(r"ATIF-v(\d{1,6})\.\d{1,6}", re.ASCII)
_SLACK = 16
"""The number of levels that a document adds around an event's value."""

JsonMap = dict[str, JsonValue]


class Part(msgspec.Struct, frozen=True):
    """A part of a message: text, or a reference to an image or to audio."""

    type: str
    text: str | None = None


class Call(msgspec.Struct, frozen=True):
    """A tool call."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, object]


class Reference(msgspec.Struct, frozen=True):
    """A reference to the trajectory of a sub-agent."""

    trajectory_id: str | None = None


class Result(msgspec.Struct, frozen=True):
    """The result of a call, or another observation."""

    source_call_id: str | None = None
    content: str | list[Part] | None = None
    subagent_trajectory_ref: list[Reference] | None = None


class Observation(msgspec.Struct, frozen=True):
    """The results of a step."""

    results: list[Result]


class AtifStep(msgspec.Struct, frozen=True):
    """A step of a trajectory."""

    step_id: int
    source: Literal["user", "system", "agent"]
    message: str | list[Part]
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None
    observation: Observation | None = None
    metrics: dict[str, object] | None = None
    extra: dict[str, object] | None = None


class AtifAgent(msgspec.Struct, frozen=True):
    """The agent of a trajectory."""

    name: str
    version: str


class Trajectory(msgspec.Struct, frozen=True):
    """An ATIF document."""

    schema_version: str
    agent: AtifAgent
    steps: list[AtifStep]
    session_id: str | None = None
    trajectory_id: str | None = None
    extra: dict[str, object] | None = None
    subagent_trajectories: list[dict[str, object]] | None = None


def own_document(document: object) -> JsonMap:
    """Return a copy of an ATIF document. Raises ``DecodeError`` with the path if it is not a JSON map."""
    if not isinstance(document, Mapping):
        raise DecodeError(f"a trajectory must be a map, got {describe(document)}")
    try:
        return cast("JsonMap", own_json(cast("object", document), -_SLACK))
    except NotJson as error:
        raise DecodeError(f"trajectory{error.path} {error}") from error


def read_document(document: JsonMap, path: str) -> Trajectory:
    """Return the document as structs; its embedded trajectories stay maps. Raises ``DecodeError`` with the path."""
    try:
        trajectory = msgspec.convert(document, Trajectory)
    except msgspec.ValidationError as error:
        message, _, inner_path = str(error).partition(" - at `$")
        raise DecodeError(f"{path}{inner_path.removesuffix('`')}: {message[:1].lower()}{message[1:]}") from error
    for index, step in enumerate(trajectory.steps):
        if step.step_id != index + 1:
            raise DecodeError(f"{path}.steps[{index}].step_id must be {index + 1}, got {step.step_id}")
    return trajectory


def check_version(written: str) -> None:
    """Raise ``DecodeError`` if the text is not a version of ATIF, and ``SchemaTooNew`` if the version is too new."""
    match = _VERSION.fullmatch(written)
    if match is None:
        raise DecodeError(f"trajectory.schema_version must be like {SCHEMA_VERSION}, got {describe(written)}")
    if int(match[1]) > _MAJOR:
        raise SchemaTooNew(
            f"trajectory.schema_version is {written}, but this release reads ATIF-v{_MAJOR}; upgrade agent-memory-log",
            actual=int(match[1]),
            supported=_MAJOR,
        )


def read_time(text: str, path: str) -> datetime:
    """Return an ISO 8601 time in UTC. A time without an offset is UTC. Raises ``DecodeError`` with the path."""
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.utcoffset() is None else time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"{path} must be an ISO 8601 time, got {describe(text)}") from error


def text_of(content: str | Sequence[Part] | None) -> str:
    """Return the text of a message or a result. Several text parts are joined with line breaks."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if part.type == "text" and part.text is not None)
