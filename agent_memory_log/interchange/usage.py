"""What a model's answer used, read from the words of whoever reported it.

``RunRecorder`` keeps a provider's own report as the label ``usage``; the interchange formats each have words of their
own for the same few numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import json_or_text
from agent_memory_log.transcript.kinds import is_map

USAGE_LABEL = "usage"
MODEL_LABEL = "model"


class Usage(msgspec.Struct, frozen=True):
    """Tokens, and what they cost in US dollars; None where it was not reported.

    ``input_tokens`` are all of the prompt's, those in ``cache_read`` and ``cache_write`` included.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cost_usd: float | None = None

    def plus(self, other: Usage) -> Usage:
        """The sum; what neither reported stays None."""
        both = zip(self.__struct_fields__, msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        sums = {field: one if two is None else two + (one or 0) for field, one, two in both}
        return Usage(**sums)


NO_USAGE = Usage()

_CACHE_READ = ("cache_read_input_tokens", "cacheReadInputTokens")
_CACHE_WRITE = ("cache_creation_input_tokens", "cacheWriteInputTokens")
_BESIDE_THE_PROMPT = (_CACHE_READ, _CACHE_WRITE)
_WORDS: Mapping[str, Sequence[str]] = {
    "input_tokens": ("prompt_tokens", "input_tokens", "inputTokens"),
    "output_tokens": ("completion_tokens", "output_tokens", "outputTokens"),
    "cache_read": (
        *_CACHE_READ,
        "cached_tokens",
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
    ),
    "cache_write": _CACHE_WRITE,
    "reasoning": (
        "completion_tokens_details.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
        "output_tokens_details.thinking_tokens",
    ),
}
"""Where reports say each number: the first path that holds one counts."""


def usage_of(event: Event) -> Usage:
    """What the answer that begins with ``event`` used; nothing where its label ``usage`` says nothing of the kind."""
    text = event.labels.get(USAGE_LABEL)
    report = json_or_text(text) if text else None
    return read_usage(report) if is_map(report) else NO_USAGE


def usage_in(events: Iterable[Event]) -> Usage:
    """What all answers among ``events`` used; each says it once, on its first event."""
    total = NO_USAGE
    for event in events:
        if USAGE_LABEL in event.labels:
            total = total.plus(usage_of(event))
    return total


def read_usage(report: Mapping[str, object]) -> Usage:
    """What a report says was used, in the words of any provider, or in ours."""
    counts = {field: _first_count(report, paths) for field, paths in _WORDS.items()}
    prompt = counts["input_tokens"]
    if prompt is not None:  # Anthropic and Bedrock count what is cached beside the rest
        prompt += sum(_first_count(report, paths) or 0 for paths in _BESIDE_THE_PROMPT)
    cost = report.get("cost_usd")
    cost = cost if isinstance(cost, (int, float)) and not isinstance(cost, bool) else None
    return Usage(**{**counts, "input_tokens": prompt}, cost_usd=cost)


def _first_count(report: Mapping[str, object], paths: Sequence[str]) -> int | None:
    for path in paths:
        value: object = report
        for key in path.split("."):
            value = value.get(key) if is_map(value) else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
