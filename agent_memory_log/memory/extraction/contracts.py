"""The JSON contracts that a model answers an extractor in. What is not as it must be is refused whole, by name.

A model says with each item which messages it rests on, by their numbers, the one that states it first.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agent_memory_log.models.answers import Contract, Text

_Key = Annotated[Text, Field(max_length=120, description="A short stable name in English: lower case, underscores.")]
_Number = Annotated[float, Field(allow_inf_nan=False)]

MAX_TEXT_CHARS = 500
"""How long the words of an episode may be, in characters."""


class PreferenceItem(Contract):
    """How the user wants things."""

    key: _Key
    value: Text = Field(description="The preference in a few words.")
    scope: Text | None = Field(default=None, description="Whose it is; leave it out for the user's own.")
    ttl_days: _Number | None = Field(default=None, description="How many days it holds, 1 to 365; 180 if not said.")
    confidence: _Number | None = Field(default=None, description="0 to 1: how plainly it was said.")


class _Cited(Contract):
    messages: Annotated[tuple[int, ...], Field(min_length=1, max_length=20)] = Field(
        description="The numbers of the messages that it rests on, the one that states it first."
    )


class CitedPreference(PreferenceItem, _Cited):
    """A preference, with the messages it rests on."""


class CitedFact(_Cited):
    """Something lasting about the user."""

    key: _Key
    value: Text = Field(description="The fact in a few words.")
    confidence: _Number | None = Field(default=None, description="0 to 1: how plainly it was said.")


class Profile(Contract):
    """What a conversation says of the user."""

    facts: tuple[CitedFact, ...]
    preferences: tuple[CitedPreference, ...]


class CitedEpisode(_Cited):
    """Something that happened and is worth knowing later."""

    category: Literal["task_result", "user_feedback", "error", "discovery"]
    text: Annotated[Text, Field(max_length=MAX_TEXT_CHARS)] = Field(description="What happened, in one sentence.")
    stars: Annotated[int, Field(ge=1, le=5)] = Field(description="How much it matters later: 1, hardly, to 5.")


class Episodes(Contract):
    """What happened in a conversation."""

    episodes: tuple[CitedEpisode, ...]
