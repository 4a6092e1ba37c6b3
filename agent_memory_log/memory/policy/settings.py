"""The settings of memory as one frozen struct, with a JSON schema.

    settings = MemorySettings.from_environment()
    settings = MemorySettings.from_json('{"budgets": {"max_seconds": 10}}')
    print(json.dumps(MemorySettings.json_schema(), indent=2))

Settings come from the environment, from JSON or from arguments.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from agent_memory_log.memory.policy import MemoryExecution, MemoryPolicy
from agent_memory_log.memory.stream.context import INDEX_BYTES
from agent_memory_log.models.settings import Count, ModelSettings, Seconds, Settings

_Names = frozenset[Annotated[str, Meta(min_length=1, pattern=r"\S")]]


class Budgets(Settings, frozen=True):
    """The limits of one session."""

    max_capture_items: Annotated[
        Count, Meta(description="The largest number of memories that one capture may propose.")
    ] = 6
    max_top_k: Annotated[Count, Meta(description="The largest number of memories that one retrieval may request.")] = 6
    default_top_k: Annotated[Count, Meta(description="The number of memories that a retrieval returns by default.")] = 4
    max_query_chars: Annotated[Count, Meta(description="The limit of a query, in characters.")] = 240
    max_answer_chars: Annotated[Count, Meta(description="The limit of an answer, in characters.")] = 700
    max_value_chars: Annotated[Count, Meta(description="The limit of a value, in characters.")] = 120
    max_seconds: Annotated[Seconds, Meta(description="The time limit of a session, in seconds.")] = 25.0


class ExtractionSettings(Settings, frozen=True):
    """The part of a run that a model reads."""

    min_messages: Annotated[
        Count, Meta(description="The least number of messages, tool messages included. A shorter run is read later.")
    ] = 4
    message_chars: Annotated[Count, Meta(description="The limit of each message that is sent, in characters.")] = 500
    last_messages: Annotated[
        Count, Meta(description="The number of messages that are sent. The last messages are sent.")
    ] = 20


class PolicySettings(Settings, frozen=True):
    """The allowed keys and scopes, and the lifetime of preferences. See ``MemoryPolicy``."""

    allowed_keys: Annotated[_Names | None, Meta(description="The allowed keys. null: any key.")] = None
    allowed_scopes: Annotated[_Names | None, Meta(description="The allowed scopes. null: any scope.")] = None
    preference_ttl_days: Annotated[
        Count | None, Meta(description="The lifetime of a preference that names none, in days. null: for ever.")
    ] = None


class ExecutionSettings(Settings, frozen=True):
    """The denied keys and scopes. See ``MemoryExecution``."""

    denied_keys: Annotated[_Names, Meta(description="The keys that may not be written.")] = frozenset()
    denied_scopes: Annotated[_Names, Meta(description="The scopes that may not be written to.")] = frozenset()
    denied_retrieval_scopes: Annotated[_Names, Meta(description="The scopes that may not be read.")] = frozenset()


class UpkeepSettings(Settings, frozen=True):
    """The number of records that a subject may have, and the limits of ``maintain``."""

    max_keyed: Annotated[
        Count | None, Meta(description="The largest number of preferences and facts of a subject. null: no limit.")
    ] = 1_000
    weak_below: Annotated[
        float, Meta(ge=0, le=1, description="maintain archives unused records with a lower retrievability.")
    ] = 0.1
    unused_days: Annotated[
        float, Meta(ge=0, le=36_500, description="The days without use after which maintain may archive a record.")
    ] = 60.0


class SearchSettings(Settings, frozen=True):
    """The memory that a client uses for search."""

    index_bytes: Annotated[
        int, Meta(ge=1, description="The approximate limit of the indexes of all subjects, in bytes.")
    ] = INDEX_BYTES


class MemorySettings(Settings, frozen=True):
    """All settings of memory. Each has a default. An unknown name is an error."""

    model: ModelSettings = ModelSettings()
    budgets: Budgets = Budgets()
    extraction: ExtractionSettings = ExtractionSettings()
    policy: PolicySettings = PolicySettings()
    execution: ExecutionSettings = ExecutionSettings()
    upkeep: UpkeepSettings = UpkeepSettings()
    search: SearchSettings = SearchSettings()

    def memory_policy(self) -> MemoryPolicy:
        """Return the policy of these settings."""
        return MemoryPolicy(
            allowed_keys=self.policy.allowed_keys,
            allowed_scopes=self.policy.allowed_scopes,
            max_capture_items=self.budgets.max_capture_items,
            max_value_chars=self.budgets.max_value_chars,
            preference_ttl_days=self.policy.preference_ttl_days,
        )

    def memory_execution(self) -> MemoryExecution:
        """Return the execution of these settings."""
        return MemoryExecution(**msgspec.structs.asdict(self.execution))
