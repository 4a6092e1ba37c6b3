"""Settings: frozen groups of checked values, and the group with the settings of the model.

    settings = ModelSettings.from_environment()
    settings = ModelSettings.from_json('{"timeout_seconds": 10}')
    print(json.dumps(ModelSettings.json_schema(), indent=2))

Secrets are not settings: ``OPENAI_API_KEY`` is read from the environment only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeGuard, cast, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, force_setattr

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe

PREFIX = "AMLOG_MEMORY_"
"""The prefix of environment variables: ``AMLOG_MEMORY_BUDGETS_MAX_SECONDS`` sets ``budgets.max_seconds``."""

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class Settings(msgspec.Struct, frozen=True):
    """The base class of settings groups. Each setting has a default; a setting may be another group.

    The constructor checks each value. It raises ``InvalidArgument`` with the name of each invalid setting.
    """

    __prefix__: ClassVar[str] = PREFIX
    __variables__: ClassVar[Mapping[str, str]] = {}
    """The settings whose environment variables do not have the usual names."""

    def __post_init__(self) -> None:
        for name, value in _checked(type(self), asdict(self)).items():
            force_setattr(self, name, value)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the settings from a JSON object.

        Raises ``InvalidArgument`` with the name of each unknown or invalid setting.
        """
        try:
            data: object = json.loads(text)  # json.loads accepts NaN; the check below then names the setting
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"invalid settings: the text is not JSON: {error}") from error
        return cls(**_checked(cls, data))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the settings from environment variables, by default from those of the process.

        The variable ``AMLOG_MEMORY_<GROUP>_<SETTING>`` holds JSON, such as ``10``, ``["language"]`` or ``null``.
        ``OPENAI_MODEL``, ``OPENAI_BASE_URL`` and ``OPENAI_TIMEOUT_SECONDS`` set the name, server and timeout of the
        group ``model``. An empty variable is ignored. Raises ``InvalidArgument`` with the name of an unknown or invalid
        variable or setting.
        """
        environment = os.environ if environment is None else environment
        paths = _variables(cls, cls.__prefix__)
        data: dict[str, Any] = {}
        for variable, text in environment.items():
            if variable.startswith(cls.__prefix__) and variable not in paths:
                raise InvalidArgument(
                    f"{variable} is not a memory setting; the variables are {', '.join(sorted(paths))}"
                )
            if variable in paths and text.strip():
                *groups, name = paths[variable]
                group = data
                for key in groups:
                    group = group.setdefault(key, {})
                group[name] = _value(variable, text.strip())
        return cls(**_checked(cls, data))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema for ``from_json``, with the description and default of each setting."""
        return msgspec.json.schema(cls)


class ModelSettings(Settings, frozen=True):
    """The settings of the model: its name, server, limits and retries."""

    __prefix__ = f"{PREFIX}MODEL_"
    __variables__: ClassVar[Mapping[str, str]] = {
        "name": "OPENAI_MODEL",
        "base_url": "OPENAI_BASE_URL",
        "timeout_seconds": "OPENAI_TIMEOUT_SECONDS",
    }

    name: Annotated[str, Meta(description="The name of the model. If it is empty, the adapter chooses the model.")] = ""
    base_url: Annotated[
        Annotated[str, Meta(pattern=r"^https?://\S+$")] | None,
        Meta(description="The URL of the server. Null means OpenAI's server."),
    ] = None
    timeout_seconds: Annotated[
        Seconds, Meta(description="The maximum seconds for one question, including retries.")
    ] = 60.0
    max_tokens: Annotated[Count, Meta(description="The maximum length of an answer in tokens.")] = 1_000
    attempts: Annotated[Count, Meta(description="The maximum number of attempts if a call fails temporarily.")] = 3
    backoff_seconds: Annotated[
        Seconds, Meta(description="The seconds before the second attempt. The pause doubles each time.")
    ] = 0.5


_PLAIN_TEXT = frozenset({"OPENAI_MODEL", "OPENAI_BASE_URL"})


def _checked(cls: type[Settings], data: object) -> dict[str, Any]:
    """Return the checked values for ``cls``. Raises ``InvalidArgument`` with each unknown or invalid setting."""
    problems: list[str] = []
    values = _read(cls, data, "", problems)
    if problems:
        raise InvalidArgument(f"invalid settings: {'; '.join(problems)}")
    return values


def _read(cls: type[Settings], data: object, path: str, problems: list[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        problems.append(f"{path or 'the settings'}: expected an object, got {describe(data)}")
        return {}
    kinds = {field.name: field.type for field in msgspec.structs.fields(cls)}
    values: dict[str, Any] = {}
    for name, value in cast("dict[str, object]", data).items():
        setting = f"{path}.{name}" if path else name
        kind = kinds.get(name)
        if kind is None:
            problems.append(f"{setting}: unknown setting")
        elif _is_group(kind):
            values[name] = _group(kind, value, setting, problems)
        elif (group := _group_in_map(kind)) and isinstance(value, Mapping):
            items = cast("Mapping[str, object]", value).items()
            values[name] = {key: _group(group, inner, f"{setting}.{key}", problems) for key, inner in items}
        else:
            try:
                values[name] = msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                problems.append(f"{setting}: {error}")
    return values


def _group(kind: type[Settings], value: object, path: str, problems: list[str]) -> Settings | None:
    """Return the group in ``value``, or None if there are new problems."""
    if isinstance(value, kind):
        return value
    before = len(problems)
    values = _read(kind, value, path, problems)
    return kind(**values) if len(problems) == before else None


def _variables(cls: type[Settings], prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the environment variables of ``cls`` with the path of each setting."""
    paths: dict[str, tuple[str, ...]] = {}
    for field in msgspec.structs.fields(cls):
        name, kind = field.name, field.type
        if _is_group(kind):
            inner = _variables(kind, f"{prefix}{name.upper()}_")
            paths.update((variable, (name, *path)) for variable, path in inner.items())
        else:
            paths[cls.__variables__.get(name, f"{prefix}{name.upper()}")] = (name,)
    return paths


def _group_in_map(kind: object) -> type[Settings] | None:
    """Return the class of the groups in a setting that maps names to groups, or None for another setting."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    group = get_args(kind)[1] if get_origin(kind) is Mapping else None
    return group if _is_group(group) else None


def _is_group(kind: object) -> TypeGuard[type[Settings]]:
    return isinstance(kind, type) and issubclass(kind, Settings)


def _value(variable: str, text: str) -> object:
    if variable in _PLAIN_TEXT:
        return text
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f'{variable} must be JSON, such as 10 or ["language"], got {text[:80]!r}') from error
    return value
