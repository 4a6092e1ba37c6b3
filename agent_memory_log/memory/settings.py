"""The settings of derived memory: every number and name that can be set, in one frozen model.

    settings = MemorySettings.from_environment()
    settings = MemorySettings.from_json('{"budgets": {"max_seconds": 10}}')
    print(json.dumps(MemorySettings.model_json_schema(), indent=2))

Needs the extra ``memory``. A secret is no setting: ``OPENAI_API_KEY`` stays in the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory.context import INDEX_BYTES
from agent_memory_log.memory.policy import MemoryExecution, MemoryPolicy

PREFIX = "AMLOG_MEMORY_"
"""How the variables of the environment begin: ``AMLOG_MEMORY_BUDGETS_MAX_SECONDS`` is ``budgets.max_seconds``."""

_OPENAI = {
    "OPENAI_MODEL": ("model", "name"),
    "OPENAI_BASE_URL": ("model", "base_url"),
    "OPENAI_TIMEOUT_SECONDS": ("model", "timeout_seconds"),
}

_Count = Annotated[int, Field(ge=1, le=1_000_000)]
_Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
_Names = frozenset[Annotated[str, Field(min_length=1, pattern=r"\S")]]


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ModelSettings(_Group):
    """The model, and how long to try."""

    name: str = Field(default="", description="Which model to ask; empty: the adapter's own choice.")
    base_url: str | None = Field(default=None, pattern=r"^https?://\S+$", description="The server; null: OpenAI's own.")
    timeout_seconds: _Seconds = Field(default=60.0, description="Seconds that one question may take, with all retries.")
    max_tokens: _Count = Field(default=1_000, description="How long an answer may be, in tokens.")
    attempts: _Count = Field(default=3, description="How often a call that fails for a cause that may pass is made.")
    backoff_seconds: _Seconds = Field(default=0.5, description="Seconds before the second attempt; doubled each time.")


class Budgets(_Group):
    """What one session may spend."""

    max_capture_items: _Count = Field(default=6, description="Memories that one capture may propose.")
    max_top_k: _Count = Field(default=6, description="Memories that one retrieval may ask for.")
    default_top_k: _Count = Field(default=4, description="Memories that a retrieval gets that names no number.")
    max_query_chars: _Count = Field(default=240, description="Characters of a query.")
    max_answer_chars: _Count = Field(default=700, description="Characters of an answer.")
    max_value_chars: _Count = Field(default=120, description="Characters of a remembered value.")
    max_seconds: _Seconds = Field(default=25.0, description="Seconds of a session.")


class ExtractionSettings(_Group):
    """What a model reads of a run."""

    min_messages: _Count = Field(
        default=4, description="A run with fewer messages, tool messages counted, waits for more."
    )
    message_chars: _Count = Field(default=500, description="Characters of a message that are sent.")
    last_messages: _Count = Field(default=20, description="Messages that are sent: the last ones.")


class PolicySettings(_Group):
    """What may be asked for; see ``MemoryPolicy``."""

    allowed_keys: _Names | None = Field(default=None, description="The keys; null: any.")
    allowed_scopes: _Names | None = Field(default=None, description="The scopes; null: any.")


class ExecutionSettings(_Group):
    """What is permitted now; see ``MemoryExecution``."""

    denied_keys: _Names = Field(default=frozenset(), description="Keys that are not written.")
    denied_scopes: _Names = Field(default=frozenset(), description="Scopes that are not written to.")
    denied_retrieval_scopes: _Names = Field(default=frozenset(), description="Scopes that are not read from.")


class UpkeepSettings(_Group):
    """How much a subject holds, and what ``cleanup`` archives."""

    max_keyed: _Count | None = Field(default=100, description="Preferences and facts of a subject; null: any number.")
    older_than_days: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=90.0, description="Episodes as old as this, in days, may be archived ..."
    )
    below_stars: Annotated[float, Field(ge=1, le=6, allow_inf_nan=False)] = Field(
        default=3.0, description="... where they have fewer stars than this."
    )


class SearchSettings(_Group):
    """What a client keeps at hand to search."""

    index_bytes: Annotated[int, Field(ge=1)] = Field(
        default=INDEX_BYTES, description="Bytes of memory that the indexes of all subjects may take, about."
    )


class MemorySettings(_Group):
    """All settings of derived memory. Every one has a default; an unknown one is refused."""

    model: ModelSettings = ModelSettings()
    budgets: Budgets = Budgets()
    extraction: ExtractionSettings = ExtractionSettings()
    policy: PolicySettings = PolicySettings()
    execution: ExecutionSettings = ExecutionSettings()
    upkeep: UpkeepSettings = UpkeepSettings()
    search: SearchSettings = SearchSettings()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read them from a JSON object. Raises ``InvalidArgument`` naming each setting that cannot be."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InvalidArgument(f"these settings cannot be: {_said(error)}") from error

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read them from variables, those of the process where none are given.

        ``AMLOG_MEMORY_<GROUP>_<SETTING>`` holds JSON: ``10``, ``["language"]``, ``null``. ``OPENAI_MODEL``,
        ``OPENAI_BASE_URL`` and ``OPENAI_TIMEOUT_SECONDS`` stand for those of the group ``model``; an empty one is as
        good as none. Raises ``InvalidArgument`` naming the variable or setting that cannot be.
        """
        given = os.environ if environment is None else environment
        found: dict[str, dict[str, object]] = {}
        places = _OPENAI | {
            f"{PREFIX}{group}_{name}".upper(): (group, name)
            for group, field in cls.model_fields.items()
            if isinstance(field.default, _Group)
            for name in type(field.default).model_fields
            if (group, name) not in _OPENAI.values()
        }
        for variable, text in given.items():
            if variable.startswith(PREFIX) and variable not in places:
                raise InvalidArgument(f"{variable} is no setting of memory; those are {', '.join(sorted(places))}")
            if variable in places and text.strip():
                group, name = places[variable]
                found.setdefault(group, {})[name] = _value(variable, text.strip())
        return cls.from_json(json.dumps(found))

    def memory_policy(self) -> MemoryPolicy:
        """The policy that they describe."""
        return MemoryPolicy(
            allowed_keys=self.policy.allowed_keys,
            allowed_scopes=self.policy.allowed_scopes,
            max_capture_items=self.budgets.max_capture_items,
            max_value_chars=self.budgets.max_value_chars,
        )

    def memory_execution(self) -> MemoryExecution:
        """The execution that they describe."""
        return MemoryExecution(
            denied_keys=self.execution.denied_keys,
            denied_scopes=self.execution.denied_scopes,
            denied_retrieval_scopes=self.execution.denied_retrieval_scopes,
        )


def _value(variable: str, text: str) -> object:
    if variable in {"OPENAI_MODEL", "OPENAI_BASE_URL"}:
        return text
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f'{variable} must hold JSON, as in 10 or ["language"], found {text[:80]!r}') from error
    return value


def _said(error: ValidationError) -> str:
    """Each finding with its place; what was found may be long, and is left out."""
    return "; ".join(f"{'.'.join(str(part) for part in one['loc']) or 'all'}: {one['msg']}" for one in error.errors())
