"""The shape of an ATIF document, as far as it is read: what is wrong with one is said here, with its place.

Fields and versions of ATIF that are newer than this release are let through: what is not read is kept.
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
"""The version that is written."""

OURS = "agent_memory_log"
"""The key under which a document's ``extra`` fields hold what ATIF has no field for."""

_MAJOR = 1
_VERSION = re.compile(r"ATIF-v(\d{1,6})\.\d{1,6}", re.ASCII)
_SLACK = 16
"""How many levels a document nests what an event holds."""

JsonMap = dict[str, JsonValue]


class Part(msgspec.Struct, frozen=True):
    """A piece of a message: text, or a reference to an image or to sound."""

    type: str
    text: str | None = None


class Call(msgspec.Struct, frozen=True):
    """A call of a tool."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, object]


class Reference(msgspec.Struct, frozen=True):
    """Where the trajectory of a sub-agent is."""

    trajectory_id: str | None = None


class Result(msgspec.Struct, frozen=True):
    """What a call, or something else, came to."""

    source_call_id: str | None = None
    content: str | list[Part] | None = None
    subagent_trajectory_ref: list[Reference] | None = None


class Observation(msgspec.Struct, frozen=True):
    """The results of a step."""

    results: list[Result]


class AtifStep(msgspec.Struct, frozen=True):
    """A step."""

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
    """Who acted."""

    name: str
    version: str


class Trajectory(msgspec.Struct, frozen=True):
    """A document."""

    schema_version: str
    agent: AtifAgent
    steps: list[AtifStep]
    session_id: str | None = None
    trajectory_id: str | None = None
    extra: dict[str, object] | None = None
    subagent_trajectories: list[dict[str, object]] | None = None


def own_document(document: object) -> JsonMap:
    """An own copy of what should be an ATIF document. Raises ``DecodeError`` naming the place."""
    if not isinstance(document, Mapping):
        raise DecodeError(f"a trajectory must be a map, found {describe(document)}")
    try:
        return cast("JsonMap", own_json(cast("object", document), -_SLACK))
    except NotJson as error:
        raise DecodeError(f"trajectory{error.path} {error}") from error


def read_document(document: JsonMap, where: str) -> Trajectory:
    """The document as structs; the trajectories embedded in it stay maps. Raises ``DecodeError`` naming the place."""
    try:
        trajectory = msgspec.convert(document, Trajectory)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise DecodeError(f"{where}{place.removesuffix('`')}: {message[:1].lower()}{message[1:]}") from error
    for index, step in enumerate(trajectory.steps):
        if step.step_id != index + 1:
            raise DecodeError(f"{where}.steps[{index}].step_id must be {index + 1}, found {step.step_id}")
    return trajectory


def check_version(written: str) -> None:
    """Raise ``DecodeError`` for what is no version of ATIF, ``SchemaTooNew`` for one that is too new."""
    match = _VERSION.fullmatch(written)
    if match is None:
        raise DecodeError(f"trajectory.schema_version must be as {SCHEMA_VERSION}, found {describe(written)}")
    if int(match[1]) > _MAJOR:
        raise SchemaTooNew(
            f"trajectory.schema_version is {written}; this release reads ATIF-v{_MAJOR}: upgrade agent-memory-log",
            actual=int(match[1]),
            supported=_MAJOR,
        )


def read_time(text: str, where: str) -> datetime:
    """An ISO 8601 time in UTC; one without an offset is taken for UTC. Raises ``DecodeError`` naming ``where``."""
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.utcoffset() is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"{where} must be ISO 8601, found {describe(text)}") from error


def text_of(content: str | Sequence[Part] | None) -> str:
    """The text of a message or a result; that of several parts on lines of their own."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if part.type == "text" and part.text is not None)
