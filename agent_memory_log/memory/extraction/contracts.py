"""The JSON contracts for a model's answers to an extractor. An item that breaks its contract is refused.

For each item, the model cites the numbers of the messages that support it. The message that states it comes first.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agent_memory_log.models.answers import Contract, Text

_Key = Annotated[Text, Field(max_length=120, description="A short stable name in English: lower case, underscores.")]
_Number = Annotated[float, Field(allow_inf_nan=False)]

MAX_TEXT_CHARS = 500
"""The maximum length of an episode's text, in characters."""


class PreferenceItem(Contract):
    """A preference: how the user wants something done."""

    key: _Key
    value: Text = Field(description="The preference in a few words.")
    scope: Text | None = Field(default=None, description="The owner of the preference; omit it for the user's own.")
    ttl_days: _Number | None = Field(default=None, description="How many days it holds, if the user says it.")
    confidence: _Number | None = Field(default=None, description="0 to 1: how clearly it was said.")


class _Cited(Contract):
    messages: Annotated[tuple[int, ...], Field(min_length=1, max_length=20)] = Field(
        description="The numbers of the messages that support it. The message that states it comes first."
    )


class CitedPreference(PreferenceItem, _Cited):
    """A preference and the messages that support it."""


class CitedFact(_Cited):
    """A lasting fact about the user."""

    key: _Key
    value: Text = Field(description="The fact in a few words.")
    confidence: _Number | None = Field(default=None, description="0 to 1: how clearly it was said.")


class Profile(Contract):
    """The facts and preferences that a conversation states about the user."""

    facts: tuple[CitedFact, ...]
    preferences: tuple[CitedPreference, ...]


class CitedEpisode(_Cited):
    """An event that happened and is worth knowing later."""

    category: Literal["task_result", "user_feedback", "error", "discovery"]
    text: Annotated[Text, Field(max_length=MAX_TEXT_CHARS)] = Field(description="What happened, in one sentence.")
    stars: Annotated[int, Field(ge=1, le=5)] = Field(description="How much it matters later: 1 (hardly) to 5.")


class Episodes(Contract):
    """The episodes of a conversation."""

    episodes: tuple[CitedEpisode, ...]
