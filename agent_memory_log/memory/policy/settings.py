"""The settings of derived memory: every number and name that can be set, in one frozen struct.

settings = MemorySettings.from_environment()
settings = MemorySettings.from_json('{"budgets": {"max_seconds": 10}}')
print(json.dumps(MemorySettings.json_schema(), indent=2))
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
    """What one session may spend."""

    max_capture_items: Annotated[Count, Meta(description="Memories that one capture may propose.")] = 6
    max_top_k: Annotated[Count, Meta(description="Memories that one retrieval may ask for.")] = 6
    default_top_k: Annotated[Count, Meta(description="Memories that a retrieval gets that names no number.")] = 4
    max_query_chars: Annotated[Count, Meta(description="Characters of a query.")] = 240
    max_answer_chars: Annotated[Count, Meta(description="Characters of an answer.")] = 700
    max_value_chars: Annotated[Count, Meta(description="Characters of a remembered value.")] = 120
    max_seconds: Annotated[Seconds, Meta(description="Seconds of a session.")] = 25.0


class ExtractionSettings(Settings, frozen=True):
    """What a model reads of a run."""

    min_messages: Annotated[
        Count, Meta(description="A run with fewer messages, tool messages counted, waits for more.")
    ] = 4
    message_chars: Annotated[Count, Meta(description="Characters of a message that are sent.")] = 500
    last_messages: Annotated[Count, Meta(description="Messages that are sent: the last ones.")] = 20


class PolicySettings(Settings, frozen=True):
    """What may be asked for; see ``MemoryPolicy``."""

    allowed_keys: Annotated[_Names | None, Meta(description="The keys; null: any.")] = None
    allowed_scopes: Annotated[_Names | None, Meta(description="The scopes; null: any.")] = None


class ExecutionSettings(Settings, frozen=True):
    """What is permitted now; see ``MemoryExecution``."""

    denied_keys: Annotated[_Names, Meta(description="Keys that are not written.")] = frozenset()
    denied_scopes: Annotated[_Names, Meta(description="Scopes that are not written to.")] = frozenset()
    denied_retrieval_scopes: Annotated[_Names, Meta(description="Scopes that are not read from.")] = frozenset()


class UpkeepSettings(Settings, frozen=True):
    """How much a subject holds, and what ``cleanup`` archives."""

    max_keyed: Annotated[Count | None, Meta(description="Preferences and facts of a subject; null: any number.")] = 100
    older_than_days: Annotated[
        float, Meta(ge=0, le=36_500, description="Episodes as old as this, in days, may be archived ...")
    ] = 90.0
    below_stars: Annotated[float, Meta(ge=1, le=6, description="... where they have fewer stars than this.")] = 3.0


class SearchSettings(Settings, frozen=True):
    """What a client keeps at hand to search."""

    index_bytes: Annotated[
        int, Meta(ge=1, description="Bytes of memory that the indexes of all subjects may take, about.")
    ] = INDEX_BYTES


class MemorySettings(Settings, frozen=True):
    """All settings of derived memory. Every one has a default; an unknown one is refused."""

    model: ModelSettings = ModelSettings()
    budgets: Budgets = Budgets()
    extraction: ExtractionSettings = ExtractionSettings()
    policy: PolicySettings = PolicySettings()
    execution: ExecutionSettings = ExecutionSettings()
    upkeep: UpkeepSettings = UpkeepSettings()
    search: SearchSettings = SearchSettings()

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
        return MemoryExecution(**msgspec.structs.asdict(self.execution))
