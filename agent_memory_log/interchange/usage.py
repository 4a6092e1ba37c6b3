"""What a model's answer used, read from the words of whoever reported it.

``RunRecorder`` keeps a provider's own report as the label ``usage``; the interchange formats each have words of their
own for the same few numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import decode_json

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
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.cache_read, other.cache_read),
            _sum(self.cache_write, other.cache_write),
            _sum(self.reasoning, other.reasoning),
            None if self.cost_usd is None and other.cost_usd is None else (self.cost_usd or 0) + (other.cost_usd or 0),
        )


NO_USAGE = Usage()


def usage_of(event: Event) -> Usage:
    """What the answer that begins with ``event`` used; nothing where its label ``usage`` says nothing of the kind."""
    text = event.labels.get(USAGE_LABEL)
    if not text:
        return NO_USAGE
    try:
        report: object = decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return NO_USAGE
    return _read(cast("Mapping[str, object]", report)) if isinstance(report, Mapping) else NO_USAGE


def usage_in(events: Iterable[Event]) -> Usage:
    """What all answers among ``events`` used; each says it once, on its first event."""
    total = NO_USAGE
    for event in events:
        total = total.plus(usage_of(event))
    return total


def _read(report: Mapping[str, object]) -> Usage:
    cost = report.get("cost_usd")
    read = _count(report, "cache_read_input_tokens", "cacheReadInputTokens")
    written = _count(report, "cache_creation_input_tokens", "cacheWriteInputTokens")
    prompt = _count(report, "prompt_tokens", "input_tokens", "inputTokens")
    if prompt is not None:
        prompt += (read or 0) + (written or 0)  # Anthropic and Bedrock count what is cached beside the rest
    if read is None:
        read = _count(report, "cached_tokens")
    for details in ("prompt_tokens_details", "input_tokens_details"):
        if read is None:
            read = _count(report.get(details), "cached_tokens")
    reasoning = _count(report.get("completion_tokens_details"), "reasoning_tokens")
    if reasoning is None:
        reasoning = _count(report.get("output_tokens_details"), "reasoning_tokens", "thinking_tokens")
    return Usage(
        prompt,
        _count(report, "completion_tokens", "output_tokens", "outputTokens"),
        read,
        written,
        reasoning,
        cost if isinstance(cost, (int, float)) and not isinstance(cost, bool) else None,
    )


def _count(report: object, *names: str) -> int | None:
    if not isinstance(report, Mapping):
        return None
    found = cast("Mapping[str, object]", report)
    for name in names:
        value = found.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)
