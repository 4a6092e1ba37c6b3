"""Settings: frozen groups of values, each checked when it is made; and the group that says how to ask a model.

    settings = ModelSettings.from_environment()
    settings = ModelSettings.from_json('{"timeout_seconds": 10}')
    print(json.dumps(ModelSettings.json_schema(), indent=2))

A secret is no setting: ``OPENAI_API_KEY`` stays in the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeGuard, cast

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, force_setattr

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe

PREFIX = "AMLOG_MEMORY_"
"""How the variables of the environment begin: ``AMLOG_MEMORY_BUDGETS_MAX_SECONDS`` is ``budgets.max_seconds``."""

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class Settings(msgspec.Struct, frozen=True):
    """Settings, each with a default; a setting may be a group of settings.

    Making one checks every value, and raises ``InvalidArgument`` naming each setting that is wrong.
    """

    __prefix__: ClassVar[str] = PREFIX
    __variables__: ClassVar[Mapping[str, str]] = {}
    """The settings whose variables have names of their own."""

    def __post_init__(self) -> None:
        for name, value in _checked(type(self), asdict(self)).items():
            force_setattr(self, name, value)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read them from a JSON object. Raises ``InvalidArgument`` naming each setting that is unknown or wrong."""
        try:
            data: object = json.loads(text)  # NaN and infinities are read, and then refused by name
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"these settings cannot be: all: not JSON: {error}") from error
        return cls(**_checked(cls, data))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read them from variables, those of the process where none are given.

        ``AMLOG_MEMORY_<GROUP>_<SETTING>`` holds JSON: ``10``, ``["language"]``, ``null``. ``OPENAI_MODEL``,
        ``OPENAI_BASE_URL`` and ``OPENAI_TIMEOUT_SECONDS`` stand for those of the group ``model``; an empty one is as
        good as none. Raises ``InvalidArgument`` naming the variable or setting that is wrong.
        """
        environment = os.environ if environment is None else environment
        paths = _variables(cls, cls.__prefix__)
        data: dict[str, Any] = {}
        for variable, text in environment.items():
            if variable.startswith(cls.__prefix__) and variable not in paths:
                raise InvalidArgument(f"{variable} is no setting of memory; those are {', '.join(sorted(paths))}")
            if variable in paths and text.strip():
                *groups, name = paths[variable]
                group = data
                for key in groups:
                    group = group.setdefault(key, {})
                group[name] = _value(variable, text.strip())
        return cls(**_checked(cls, data))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON schema of what ``from_json`` reads, with a description and a default for each setting."""
        return msgspec.json.schema(cls)


class ModelSettings(Settings, frozen=True):
    """The model, and how long to try."""

    __prefix__ = f"{PREFIX}MODEL_"
    __variables__: ClassVar[Mapping[str, str]] = {
        "name": "OPENAI_MODEL",
        "base_url": "OPENAI_BASE_URL",
        "timeout_seconds": "OPENAI_TIMEOUT_SECONDS",
    }

    name: Annotated[str, Meta(description="Which model to ask; empty: the adapter's own choice.")] = ""
    base_url: Annotated[
        Annotated[str, Meta(pattern=r"^https?://\S+$")] | None, Meta(description="The server; null: OpenAI's own.")
    ] = None
    timeout_seconds: Annotated[Seconds, Meta(description="Seconds that one question may take, with all retries.")] = (
        60.0
    )
    max_tokens: Annotated[Count, Meta(description="How long an answer may be, in tokens.")] = 1_000
    attempts: Annotated[Count, Meta(description="How often a call that fails for a cause that may pass is made.")] = 3
    backoff_seconds: Annotated[Seconds, Meta(description="Seconds before the second attempt; doubled each time.")] = 0.5


_PLAIN_TEXT = frozenset({"OPENAI_MODEL", "OPENAI_BASE_URL"})


def _checked(cls: type[Settings], data: object) -> dict[str, Any]:
    """The values that ``data`` has for ``cls``. Raises ``InvalidArgument`` naming each that is unknown or wrong."""
    problems: list[str] = []
    values = _read(cls, data, "", problems)
    if problems:
        raise InvalidArgument(f"these settings cannot be: {'; '.join(problems)}")
    return values


def _read(cls: type[Settings], data: object, where: str, problems: list[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        problems.append(f"{where or 'all'}: expected an object, found {describe(data)}")
        return {}
    kinds = {field.name: field.type for field in msgspec.structs.fields(cls)}
    values: dict[str, Any] = {}
    for name, value in cast("dict[str, object]", data).items():
        place = f"{where}.{name}" if where else name
        kind = kinds.get(name)
        if kind is None:
            problems.append(f"{place}: there is no such setting")
        elif _is_group(kind) and not isinstance(value, kind):
            before = len(problems)
            inner = _read(kind, value, place, problems)
            if len(problems) == before:
                values[name] = kind(**inner)
        else:
            try:
                values[name] = msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                problems.append(f"{place}: {error}")
    return values


def _variables(cls: type[Settings], prefix: str) -> dict[str, tuple[str, ...]]:
    """The variables of ``cls``, and the path to the setting of each."""
    paths: dict[str, tuple[str, ...]] = {}
    for field in msgspec.structs.fields(cls):
        name, kind = field.name, field.type
        if _is_group(kind):
            inner = _variables(kind, f"{prefix}{name.upper()}_")
            paths.update((variable, (name, *path)) for variable, path in inner.items())
        else:
            paths[cls.__variables__.get(name, f"{prefix}{name.upper()}")] = (name,)
    return paths


def _is_group(kind: object) -> TypeGuard[type[Settings]]:
    return isinstance(kind, type) and issubclass(kind, Settings)


def _value(variable: str, text: str) -> object:
    if variable in _PLAIN_TEXT:
        return text
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f'{variable} must hold JSON, as in 10 or ["language"], found {text[:80]!r}') from error
    return value
