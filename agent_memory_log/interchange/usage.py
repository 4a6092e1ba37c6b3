"""Reads the token counts and the cost of a model's answer from the usage report of any provider.

``RunRecorder`` stores the provider's report as the label ``usage``. Providers and interchange formats use different
names for the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import json_or_text
from agent_memory_log.transcript.json_types import is_map

USAGE_LABEL = "usage"
MODEL_LABEL = "model"


class Usage(msgspec.Struct, frozen=True):
    """Token counts and their cost. Each value can be missing (``None``).

    Attributes:
        input_tokens: All tokens of the prompt, including ``cache_read`` and ``cache_write``.
        output_tokens: The tokens of the answer.
        cache_read: The prompt tokens that were read from the cache.
        cache_write: The prompt tokens that were written to the cache.
        reasoning: The tokens of the model's reasoning.
        cost_usd: The cost in US dollars.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cost_usd: float | None = None

    def plus(self, other: Usage) -> Usage:
        """Return the sum of two reports. A value that neither report has stays None."""
        both = zip(self.__struct_fields__, msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        sums = {field: own if added is None else added + (own or 0) for field, own, added in both}
        return Usage(**sums)


NO_USAGE = Usage()

_CACHE_READ = ("cache_read_input_tokens", "cacheReadInputTokens")
_CACHE_WRITE = ("cache_creation_input_tokens", "cacheWriteInputTokens")
_BESIDE_THE_PROMPT = (_CACHE_READ, _CACHE_WRITE, ("toolUsePromptTokenCount",))
_BESIDE_THE_ANSWER = ("thoughtsTokenCount",)
_WORDS: Mapping[str, Sequence[str]] = {
    "input_tokens": ("prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount"),
    "output_tokens": ("completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount"),
    "cache_read": (
        *_CACHE_READ,
        "cachedContentTokenCount",
        "cached_tokens",
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
    ),
    "cache_write": _CACHE_WRITE,
    "reasoning": (
        "completion_tokens_details.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
        "output_tokens_details.thinking_tokens",
        *_BESIDE_THE_ANSWER,
    ),
}
"""The paths of each number in the reports. The first path with an integer is used."""


def usage_of(event: Event) -> Usage:
    """Return the usage of the answer whose first event is ``event``. It is empty without a readable label."""
    text = event.labels.get(USAGE_LABEL)
    report = json_or_text(text) if text else None
    return read_usage(report) if is_map(report) else NO_USAGE


def usage_in(events: Iterable[Event]) -> Usage:
    """Return the total usage of all answers in ``events``. The first event of each answer has its usage."""
    total = NO_USAGE
    for event in events:
        if USAGE_LABEL in event.labels:
            total = total.plus(usage_of(event))
    return total


def read_usage(report: Mapping[str, object]) -> Usage:
    """Return the usage in a report that uses the names of any provider or of this library."""
    counts = {field: _first_count(report, paths) for field, paths in _WORDS.items()}
    prompt = counts["input_tokens"]
    if prompt is not None:  # Anthropic and Bedrock do not include cached tokens here, Gemini not what tools add
        prompt += sum(_first_count(report, paths) or 0 for paths in _BESIDE_THE_PROMPT)
    answer, thoughts = counts["output_tokens"], _first_count(report, _BESIDE_THE_ANSWER)
    if thoughts is not None:  # only Gemini does not include them
        answer = thoughts + (answer or 0)
    cost = report.get("cost_usd")
    cost = cost if isinstance(cost, (int, float)) and not isinstance(cost, bool) else None
    return Usage(**{**counts, "input_tokens": prompt, "output_tokens": answer}, cost_usd=cost)


def _first_count(report: Mapping[str, object], paths: Sequence[str]) -> int | None:
    for path in paths:
        value: object = report
        for key in path.split("."):
            value = value.get(key) if is_map(value) else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
